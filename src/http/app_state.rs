//! The state that all requests share.

use std::sync::Arc;

use actix_web::http::header::{self, HeaderMap};
use tokio::{runtime::Handle, sync::Semaphore, task::JoinHandle};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    body, events,
    guard::{Hosts, Rotation, SessionKey, SignedIn, Token},
    item_wait::ItemWaits,
    pull::Pullers,
    push::Producers,
    server::scheme,
    sign_in::Links,
    ticker::Ticker,
    token_cache::TokenCache,
};
use crate::{access::TokenStore, config::Config, consumer::clock, control::DaemonHandle};

/// The most requests that use the database at a time.
const AT_THE_DATABASE: usize = 16;

/// The most clients with a wrong secret that wait for their answers at a time.
const KEPT_WAITING: usize = 32;

/// The parts of the state that the server has before its thread starts.
pub(super) struct Start {
    pub(super) hosts: Hosts,
    pub(super) is_tls: bool,
    pub(super) session_secret: [u8; 32],
    pub(super) links: Arc<Links>,
}

/// The state of the HTTP server.
pub(crate) struct AppState {
    pub(super) daemon: DaemonHandle,
    pub(super) hosts: Hosts,
    rotation: Rotation,
    pub(super) tokens: TokenCache,
    /// Whether clients reach the daemon by TLS.
    pub(super) is_tls: bool,
    /// Signs sessions if there is no operator's secret.
    session_secret: [u8; 32],
    /// Links that sign browsers in.
    pub(super) links: Arc<Links>,
    /// Permits to use the database.
    pub(super) permits: Semaphore,
    /// Permits of clients with a wrong secret.
    pub(super) waiting: Semaphore,
    /// Permits of clients that follow events.
    pub(super) followers: Arc<Semaphore>,
    /// The events that they get.
    pub(super) ticker: Ticker,
    /// Permits for the memory of bodies, one for each byte.
    pub(super) room: Arc<Semaphore>,
    /// Cancelled when the daemon has stopped, so that streams of events end.
    pub(super) stopping: CancellationToken,
    pub(super) producers: Producers,
    /// The fetches of workers.
    pub(super) pullers: Pullers,
    /// The requests that wait for items.
    pub(super) item_waits: ItemWaits,
    /// Tasks that finish even if their client is gone, and the runtime of these tasks.
    pub(super) tasks: TaskTracker,
    runtime: Handle,
}

impl AppState {
    pub(super) fn new(daemon: DaemonHandle, start: Start, runtime: Handle) -> Self {
        let Start { hosts, is_tls, session_secret, links } = start;
        Self {
            daemon,
            is_tls,
            session_secret,
            links,
            hosts,
            rotation: Rotation::default(),
            tokens: TokenCache::default(),
            permits: Semaphore::new(AT_THE_DATABASE),
            waiting: Semaphore::new(KEPT_WAITING),
            followers: Arc::new(Semaphore::new(events::FOLLOWERS)),
            ticker: Ticker::default(),
            room: Arc::new(Semaphore::new(body::HELD)),
            stopping: CancellationToken::new(),
            producers: Producers::default(),
            pullers: Pullers::default(),
            item_waits: ItemWaits::default(),
            tasks: TaskTracker::new(),
            runtime,
        }
    }

    /// Runs a task that finishes even if its client is gone.
    pub(super) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.tasks.spawn_on(task, &self.runtime)
    }

    /// The active configuration.
    pub(super) fn config(&self) -> Arc<Config> {
        self.daemon.config.borrow().clone()
    }

    /// The access tokens in the database.
    pub(super) fn token_store(&self) -> TokenStore {
        TokenStore::new(self.config().prefix.as_bytes())
    }

    /// The secret that clients must send, if there is one.
    pub(super) fn token(&self) -> Option<Token> {
        self.daemon.token.borrow().clone()
    }

    /// The scheme of the daemon's URL.
    pub(super) fn scheme(&self) -> &'static str {
        scheme(self.is_tls)
    }

    /// The key that signs the sessions of browsers.
    pub(super) fn session_key(&self) -> SessionKey {
        SessionKey::of(self.token().as_ref(), &self.session_secret)
    }

    /// Who has signed in with the browser that sends this request.
    pub(super) fn signed_in(&self, headers: &HeaderMap) -> Option<SignedIn> {
        headers.get(header::COOKIE)?;
        self.session_key().signed_in(headers, clock::now())
    }

    /// Whether the client sends the secret that the file has now. If so, that secret replaces the old one.
    pub(super) async fn knows_new_token(&self, headers: &HeaderMap) -> bool {
        let config = self.config();
        let Some(path) = config.http.token_path(&config.database) else { return false };
        let Some(found) = self.rotation.read(path).await else { return false };
        if found.check(headers).is_err() {
            return false;
        }
        if self.daemon.token.send_replace(Some(found.clone())) != Some(found) {
            tracing::info!(
                event = "secret_changed",
                "http.token-file has changed; requests now need the new secret"
            );
        }
        true
    }
}
