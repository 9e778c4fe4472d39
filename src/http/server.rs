//! The thread that serves HTTP.

use std::{
    convert::Infallible,
    future::pending,
    io,
    os::fd::AsFd,
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};

use actix_tls::accept::rustls_0_23::TlsStream;
use actix_web::{
    App, HttpServer,
    dev::{self, Extensions, ServerHandle},
    rt::net::{TcpStream, UnixStream},
    web,
};
use rustix::net::sockopt;
use tokio::{
    runtime,
    sync::{oneshot, watch},
    time::timeout,
};

use super::{
    app_state::{AppState, Start},
    guard::{Caller, Hosts, Token},
    handle::DaemonHandle,
    keys::{Key, Keys},
    links::Links,
    listener::Listener,
    open_files,
    peer::Peer,
    places::{self, Places},
    scheme::scheme,
    serve::serve,
    slow_readers::Connections,
    tls,
};
use crate::config::{Http, Listen, reachable};

/// How long the head of a request may take.
const HEAD: Duration = Duration::from_secs(5);

/// How long a client may leave an answer unread.
const UNREAD: Duration = Duration::from_secs(20);

/// How long answers that have begun may take once the daemon has stopped, in seconds.
const LAST_ANSWERS: u64 = 2;

/// HTTP cannot be served as the configuration says.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The address cannot be had.
    #[error(
        "cannot listen on {listen}: another kvqueue may use the address (`kvqueue status` shows it); set http.listen to another address, or to \"off\""
    )]
    Listen {
        /// The address.
        listen: Listen,
        /// The system's error.
        #[source]
        error: io::Error,
    },
    /// There is no thread for it.
    #[error("cannot start the thread for HTTP")]
    Thread(#[source] io::Error),
    /// TLS cannot be used.
    #[error("cannot use TLS")]
    Tls(#[from] rustls::Error),
}

/// Limits of connections.
struct Limits {
    places: Arc<Places>,
    /// The most that may be open at a time, also before they have a place.
    open: usize,
    /// How long one may be silent between requests.
    keep_alive: Duration,
}

/// Serves until it is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    /// Dropping it stops the thread.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    /// The URL of the page; none on a Unix socket.
    url: Option<String>,
    needs_token: bool,
    links: Arc<Links>,
    /// The secret that clients must send.
    token: watch::Sender<Option<Token>>,
}

impl Server {
    /// The URL of the page, which signs one browser in if clients need a token.
    pub(crate) fn page_link(&self) -> Option<String> {
        let url = self.url.as_ref()?;
        // Without random bytes the person gets the page's address, and enters a token.
        let secret = self.token.borrow().clone();
        let path = self.needs_token.then(|| self.links.make(Caller::Operator, secret).ok()).flatten();
        Some(format!("{url}{}", path.as_deref().unwrap_or("/")))
    }
}

/// Serves in a thread of its own; `None` if there is to be no HTTP.
pub(crate) fn start(http: &Http, daemon: DaemonHandle) -> Result<Option<Server>, HttpError> {
    let listener = Listener::open(&http.listen)
        .map_err(|error| HttpError::Listen { listen: http.listen.clone(), error })?;
    let Some(listener) = listener else { return Ok(None) };
    let address = listener.to_string();
    let is_tls = http.tls_certificate.is_some();
    let tls = is_tls.then(|| tls::server(daemon.certificate.clone())).transpose()?;
    let keys = Keys::new(Key::random().map_err(|error| HttpError::Thread(io::Error::other(error)))?);
    let links = Arc::<Links>::default();
    let start = Start { hosts: Hosts::of(listener.address(), is_tls), is_tls, keys, links: links.clone() };
    let url = listener.address().map(|address| format!("{}://{}", scheme(is_tls), reachable(address)));
    let (stop, stopped) = oneshot::channel();
    let (tell, started) = mpsc::channel();
    let limits = Limits {
        places: Places::new(http.max_connections, daemon.status.metrics.displaced.clone()),
        open: places::most_open(http.max_connections, is_tls),
        keep_alive: http.keep_alive,
    };
    open_files::allow(limits.open);
    let token = daemon.token.clone();
    let thread = thread::Builder::new()
        .name("kvqueue-http".to_owned())
        .spawn(move || {
            let app = |runtime| Arc::new(AppState::new(daemon, start, runtime));
            run(listener, tls, limits, app, &tell, stopped);
        })
        .map_err(HttpError::Thread)?;
    // A thread that ends without a message has panicked, and that was logged.
    let started = started.recv().unwrap_or_else(|_| Err(io::Error::other("it ended at once")));
    started.map_err(HttpError::Thread)?;
    tracing::info!(event = "listening", address, tls = is_tls, "listening for HTTP");
    let needs_token = http.needs_token();
    Ok(Some(Server { stop: Some(stop), thread: Some(thread), url, needs_token, links, token }))
}

fn run(
    listener: Listener,
    tls: Option<rustls::ServerConfig>,
    limits: Limits,
    app: impl FnOnce(runtime::Handle) -> Arc<AppState>,
    tell: &mpsc::Sender<io::Result<()>>,
    stopped: oneshot::Receiver<()>,
) {
    let runtime = match runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        // The starter waits for the answer.
        Err(error) => return drop(tell.send(Err(error))),
    };
    let app = app(runtime.handle().clone());
    runtime.block_on(async {
        let factory = {
            let app = web::Data::from(app.clone());
            move || App::new().app_data(app.clone()).default_service(web::to(serve))
        };
        let unix = Connections::default();
        let opened = unix.clone();
        let server = HttpServer::new(factory)
            .workers(1)
            .disable_signals()
            .max_connections(limits.open)
            .max_connection_rate(places::HANDSHAKES)
            .client_request_timeout(HEAD)
            .keep_alive(limits.keep_alive)
            .on_connect(move |io, kept| {
                let encrypted = io.downcast_ref::<TlsStream<TcpStream>>().map(|stream| stream.get_ref().0);
                if let Some(stream) = io.downcast_ref::<TcpStream>().or(encrypted) {
                    give_up_on_slow_readers(stream);
                    know_peer(stream, kept, &limits.places);
                }
                if let Some(stream) = io.downcast_ref::<UnixStream>()
                    && let Some(peer) = know_peer(stream, kept, &limits.places)
                {
                    opened.add(&peer);
                }
            })
            .shutdown_timeout(LAST_ANSWERS);
        let (server, _file) = match listener {
            Listener::Tcp(listener, _) => match tls {
                Some(tls) => (server.listen_rustls_0_23(listener, tls), None),
                None => (server.listen(listener), None),
            },
            Listener::Unix(listener, file) => (server.listen_uds(listener), Some(file)),
        };
        let server = match server {
            Ok(server) => server.run(),
            Err(error) => return drop(tell.send(Err(error))),
        };
        let handle = server.handle();
        if tell.send(Ok(())).is_err() {
            return;
        }
        tokio::select! {
            // `end` stops the server, and then still waits for tasks, so the end of the server must
            // not end this.
            never = until_never(server) => match never {},
            () = end(stopped, handle, &app) => {}
            never = app.keys.read(&app.backend) => match never {},
            never = app.ticker.run(&app.backend.daemon.status) => match never {},
            never = unix.end_slow_readers(UNREAD) => match never {},
        }
    });
}

/// Has the system end a connection whose client does not read its answer. Nothing else would:
/// neither time limit is about answers.
fn give_up_on_slow_readers(stream: &TcpStream) {
    let millis = u32::try_from(UNREAD.as_millis()).unwrap_or(u32::MAX);
    if let Err(error) = sockopt::set_tcp_user_timeout(stream, millis) {
        tracing::debug!(
            event = "slow_reader_unlimited",
            %error,
            "cannot limit how slowly this connection is read"
        );
    }
}

/// Gives a connection its place, and lets its requests know who sends them, and whether their client still waits.
fn know_peer(stream: &impl AsFd, kept: &mut Extensions, places: &Arc<Places>) -> Option<Arc<Peer>> {
    match Peer::of(stream) {
        Ok(peer) => {
            let peer = Arc::new(peer);
            kept.insert(Arc::new(places.enter(peer.clone())));
            kept.insert(peer.clone());
            Some(peer)
        }
        Err(error) => {
            tracing::debug!(event = "client_unwatched", %error, "cannot see whether a client closes its connection");
            None
        }
    }
}

/// Drives the server, and does not return after its end.
async fn until_never(server: dev::Server) -> Infallible {
    if let Err(error) = server.await {
        tracing::error!(event = "http_ended", %error, "the HTTP server has ended; the daemon goes on without HTTP");
    }
    pending().await
}

/// Waits for the end, and lets answers that have begun be finished.
async fn end(stopped: oneshot::Receiver<()>, server: ServerHandle, app: &AppState) {
    // The sender is dropped, never used.
    let _ = stopped.await;
    app.backend.stopping.cancel();
    server.stop(true).await;
    app.producers.clear();
    app.pullers.clear();
    app.backend.tasks.close();
    // A session that takes longer leaves its token to a sweeper.
    let _ = timeout(Duration::from_secs(LAST_ANSWERS), app.backend.tasks.wait()).await;
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic in there was logged.
            let _ = thread.join();
        }
    }
}
