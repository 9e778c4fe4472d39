//! The host's side: listens in the directory and accepts guests.

use baton::thread::{self, JoinHandle};
use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use baton::Mutex;
use rustix::event::{PollFd, PollFlags};

use super::address;
use super::session::GuestSession;
use super::stream::{self, Outbox};
use crate::engine::{Engine, FileId};
use crate::fork::CloseOnFork;
use crate::reports;

/// The most guests at a time. Each costs two threads.
const MAX_GUESTS: usize = 1_024;
/// The pause after the system failed to accept a connection, for example for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long a connection that the host ends waits for the guest to read the last responses.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(200);

/// The connection of a guest, and the thread that serves it.
struct ServedGuest {
    outbox: Arc<Outbox>,
    reader: JoinHandle<()>,
}

struct Guests {
    /// `None` after the host has stopped.
    serving: Option<HashMap<u64, ServedGuest>>,
    sequence: u64,
}

/// Closes a guest's connection when its session ends in any way.
struct SessionGuard {
    guests: Arc<Mutex<Guests>>,
    outbox: Arc<Outbox>,
    id: u64,
}

impl Drop for SessionGuard {
    fn drop(&mut self) {
        // The end of the connection tells the guest that none of its commits is in flight.
        self.outbox.await_none_in_flight();
        let left = self.guests.lock().serving.as_mut().and_then(|serving| serving.remove(&self.id));
        // A host that is stopping closes the connection itself, after the last responses.
        if left.is_some() {
            self.outbox.drain(baton::now() + DRAIN_TIMEOUT);
            self.outbox.close();
        }
    }
}

/// A socket in the directory, and the thread that accepts guests there.
struct Listener {
    id: FileId,
    socket: Arc<CloseOnFork<UnixListener>>,
    is_stopped: Arc<AtomicBool>,
    accepting: JoinHandle<()>,
}

impl Listener {
    fn start(directory: &Path, engine: &Weak<Engine>, guests: &Arc<Mutex<Guests>>) -> io::Result<Listener> {
        let (socket, id) = address::listen(directory)?;
        // The socket is polled, so that accepting never blocks.
        socket.set_nonblocking(true)?;
        let (socket, is_stopped) = (Arc::new(socket), Arc::new(AtomicBool::new(false)));
        let (accepted, end) = (Arc::clone(&socket), Arc::clone(&is_stopped));
        let (engine, guests) = (Weak::clone(engine), Arc::clone(guests));
        let accept = move || accept(&accepted, &end, &engine, &guests);
        let accepting = thread::Builder::new().name("fdb-host".to_owned()).spawn(accept)?;
        Ok(Listener { id, socket, is_stopped, accepting })
    }

    fn stop(self) {
        self.is_stopped.store(true, Ordering::Release);
        // Makes `accept` fail. This fails only if the socket is shut down already.
        let _ = rustix::net::shutdown(&**self.socket, rustix::net::Shutdown::Both);
        let _ = self.accepting.join();
    }
}

/// Listens for guests until it is stopped.
pub(super) struct Host {
    directory: PathBuf,
    engine: Weak<Engine>,
    guests: Arc<Mutex<Guests>>,
    listener: Mutex<Listener>,
    errors: Mutex<RepeatFilter>,
}

impl Host {
    /// Listens in `directory` for guests of `engine`.
    pub(super) fn listen(directory: &Path, engine: &Arc<Engine>) -> io::Result<Host> {
        let guests = Arc::new(Mutex::new(Guests { serving: Some(HashMap::new()), sequence: 0 }));
        let engine = Arc::downgrade(engine);
        let listener = Mutex::new(Listener::start(directory, &engine, &guests)?);
        Ok(Host { directory: directory.to_path_buf(), engine, guests, listener, errors: Mutex::default() })
    }

    /// Listens again if the name of the socket does not lead to it any more. Connections go on.
    /// Without this, programs that remove old sockets would lock out all processes but the guests.
    pub(super) fn check_socket(&self) {
        let mut listener = self.listener.lock();
        match address::is_at_its_place(&self.directory, listener.id) {
            Ok(true) => return self.errors.lock().end(),
            Ok(false) => {}
            // The next check may find it out.
            Err(_) => return,
        }
        let socket = address::socket(&self.directory);
        let socket = socket.display();
        let report = |text: String| self.errors.lock().report(text, reports::report);
        match Listener::start(&self.directory, &self.engine, &self.guests) {
            Ok(new) => {
                std::mem::replace(&mut *listener, new).stop();
                report(format!(
                    "{socket} was removed or replaced, and is made again; programs that clean up should leave it alone"
                ));
            }
            Err(error) => report(format!(
                "cannot make {socket} again, without which no other process can use the database: {error}; remove what \
                 stands there, and check that this user may write in the directory"
            )),
        }
    }

    /// How many guests are connected.
    #[cfg(feature = "testing")]
    pub(super) fn guests(&self) -> usize {
        self.guests.lock().serving.as_ref().map_or(0, HashMap::len)
    }

    /// Accepts no more guests and requests. Requests in flight can still be answered until the
    /// returned value is dropped.
    pub(super) fn stop(self) -> DrainingConnections {
        let listener = self.listener.into_inner();
        address::remove(&self.directory, listener.id);
        let serving = self.guests.lock().serving.take().unwrap_or_default();
        listener.stop();
        let mut outboxes = Vec::new();
        for ServedGuest { outbox, reader } in serving.into_values() {
            outbox.stop_reading();
            if reader.thread().id() != thread::current().id() {
                // The panic hook has reported a session that panicked.
                let _ = reader.join();
            }
            outboxes.push(outbox);
        }
        DrainingConnections { outboxes }
    }
}

/// The open connections of a host that has stopped. Dropping it closes them.
pub(super) struct DrainingConnections {
    outboxes: Vec<Arc<Outbox>>,
}

impl Drop for DrainingConnections {
    fn drop(&mut self) {
        let deadline = baton::now() + DRAIN_TIMEOUT;
        for outbox in &self.outboxes {
            outbox.drain(deadline);
            outbox.close();
        }
    }
}

fn accept(
    listener: &UnixListener,
    is_stopped: &AtomicBool,
    engine: &Weak<Engine>,
    guests: &Arc<Mutex<Guests>>,
) {
    let mut errors = RepeatFilter::default();
    loop {
        match accept_one(listener) {
            Ok(socket) => {
                let Some(engine) = engine.upgrade() else { return };
                match start_session(socket, engine, guests) {
                    Ok(()) => errors.end(),
                    Err(error) => errors.report(format!("turned a guest away: {error}"), reports::report),
                }
            }
            Err(_) if is_stopped.load(Ordering::Acquire) => return,
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            Err(error) => {
                errors.report(format!("cannot accept a guest: {error}"), reports::report);
                thread::sleep(ACCEPT_PAUSE);
            }
        }
    }
}

/// Reports an error once, until it changes or ends.
#[derive(Default)]
struct RepeatFilter(Option<String>);

impl RepeatFilter {
    fn report(&mut self, trouble: String, report: impl FnOnce(&str)) {
        if self.0.as_ref() != Some(&trouble) {
            report(&trouble);
            self.0 = Some(trouble);
        }
    }

    fn end(&mut self) {
        self.0 = None;
    }
}

fn accept_one(listener: &UnixListener) -> io::Result<CloseOnFork<UnixStream>> {
    rustix::event::poll(&mut [PollFd::new(listener, PollFlags::IN)], None)?;
    CloseOnFork::open(|| listener.accept().map(|(socket, _)| socket))
}

fn start_session(
    socket: CloseOnFork<UnixStream>,
    engine: Arc<Engine>,
    guests: &Arc<Mutex<Guests>>,
) -> io::Result<()> {
    if !stream::is_trusted(&socket)? {
        return Err(io::Error::new(ErrorKind::PermissionDenied, "it belongs to another user"));
    }
    let mut guests_now = guests.lock();
    let Guests { serving: Some(serving), sequence } = &mut *guests_now else { return Ok(()) };
    if serving.len() >= MAX_GUESTS {
        return Err(io::Error::other(format!("{MAX_GUESTS} are being served")));
    }
    let outbox = Arc::new(Outbox::of_host(socket));
    let writer = Arc::clone(&outbox);
    thread::Builder::new().name("fdb-host-out".to_owned()).spawn(move || writer.run_writer())?;
    *sequence += 1;
    let (id, of_session, guests) = (*sequence, Arc::clone(&outbox), Arc::clone(guests));
    let serve = move || {
        let _guard = SessionGuard { guests, outbox: Arc::clone(&of_session), id };
        let mut session = GuestSession::new(engine, Arc::clone(&of_session));
        if let Err(error) = session.run(of_session.socket()) {
            reports::report(&format!("closing the connection of a guest: {error}"));
        }
    };
    match thread::Builder::new().name("fdb-host-in".to_owned()).spawn(serve) {
        Ok(reader) => {
            serving.insert(id, ServedGuest { outbox, reader });
            Ok(())
        }
        Err(error) => {
            outbox.close();
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_reported_once_until_it_changes_or_ends() {
        let (mut errors, mut told) = (RepeatFilter::default(), Vec::new());
        for trouble in ["a", "a", "b", "b", "a", "", "a"] {
            if trouble.is_empty() {
                errors.end();
            } else {
                errors.report(trouble.to_owned(), |text| told.push(text.to_owned()));
            }
        }
        assert_eq!(told, ["a", "b", "a", "a"]);
    }
}
