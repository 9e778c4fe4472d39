//! This process as the host: it listens in the directory and serves the guests.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags};

use super::address::{self, Identity};
use super::session::Session;
use super::stream::{self, Outbox};
use crate::engine::Engine;
use crate::fork::Own;

/// Guests at a time; each costs two threads.
const MAX_GUESTS: usize = 1_024;
/// How long the listener rests when the system refuses a connection, for want of descriptors say.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long a connection that the host ends waits for its guest to read the last answers.
const FAREWELL_PATIENCE: Duration = Duration::from_millis(200);

/// A guest's connection and the thread that serves it.
struct Serving {
    outbox: Arc<Outbox>,
    reader: JoinHandle<()>,
}

struct Guests {
    /// `None` once the host is closing.
    serving: Option<HashMap<u64, Serving>>,
    sequence: u64,
}

/// Ends the connection of a guest with the session, whatever ends that.
struct Departure {
    guests: Arc<Mutex<Guests>>,
    outbox: Arc<Outbox>,
    id: u64,
}

impl Drop for Departure {
    fn drop(&mut self) {
        // A guest that finds the end takes it that none of its commits is in flight.
        self.outbox.await_settled();
        let left = self.guests.lock().serving.as_mut().and_then(|serving| serving.remove(&self.id));
        // A host that is stopping has it in hand, and closes it when the last answers are given.
        if left.is_some() {
            self.outbox.finish(Instant::now() + FAREWELL_PATIENCE);
            self.outbox.close();
        }
    }
}

/// Listens until it is closed.
pub(super) struct Host {
    directory: PathBuf,
    socket: Identity,
    listener: Arc<Own<UnixListener>>,
    guests: Arc<Mutex<Guests>>,
    accepting: Option<JoinHandle<()>>,
}

impl Host {
    /// Listens in `directory` for guests of `engine`.
    pub(super) fn listen(directory: &Path, engine: &Arc<Engine>) -> io::Result<Host> {
        let (listener, socket) = address::listen(directory)?;
        let guests = Arc::new(Mutex::new(Guests { serving: Some(HashMap::new()), sequence: 0 }));
        // Who accepts waits for a guest, and then takes no time.
        listener.set_nonblocking(true)?;
        let listener = Arc::new(listener);
        let (accepted, engine, serving) =
            (Arc::clone(&listener), Arc::downgrade(engine), Arc::clone(&guests));
        let accept = move || accept(&accepted, &engine, &serving);
        let accepting = thread::Builder::new().name("fdb-host".to_owned()).spawn(accept)?;
        Ok(Host { directory: directory.to_path_buf(), socket, listener, guests, accepting: Some(accepting) })
    }

    /// Takes no further guests and no further requests. What is under way can still be answered, until the returned
    /// value is dropped.
    pub(super) fn stop(mut self) -> Farewell {
        address::remove(&self.directory, self.socket);
        let serving = self.guests.lock().serving.take().unwrap_or_default();
        // Shut down, `accept` fails; it fails here only if it is shut down already.
        let _ = rustix::net::shutdown(&**self.listener, rustix::net::Shutdown::Both);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
        let mut outboxes = Vec::new();
        for Serving { outbox, reader } in serving.into_values() {
            outbox.stop_reading();
            if reader.thread().id() != thread::current().id() {
                // A session that panicked has been reported by the panic hook.
                let _ = reader.join();
            }
            outboxes.push(outbox);
        }
        Farewell { outboxes }
    }
}

/// The connections of a host that has stopped.
pub(super) struct Farewell {
    outboxes: Vec<Arc<Outbox>>,
}

impl Drop for Farewell {
    fn drop(&mut self) {
        let deadline = Instant::now() + FAREWELL_PATIENCE;
        for outbox in &self.outboxes {
            outbox.finish(deadline);
            outbox.close();
        }
    }
}

fn accept(listener: &UnixListener, engine: &Weak<Engine>, guests: &Arc<Mutex<Guests>>) {
    let mut troubles = Troubles::default();
    loop {
        match accept_one(listener) {
            Ok(socket) => {
                let Some(engine) = engine.upgrade() else { return };
                match greet(socket, engine, guests) {
                    Ok(()) => troubles.end(),
                    Err(error) => troubles.tell(format!("turned a guest away: {error}"), crate::report),
                }
            }
            Err(_) if guests.lock().serving.is_none() => return,
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            Err(error) => {
                troubles.tell(format!("cannot accept a guest: {error}"), crate::report);
                thread::sleep(ACCEPT_PAUSE);
            }
        }
    }
}

/// What keeps guests from being accepted, told once until it changes or ends.
#[derive(Default)]
struct Troubles(Option<String>);

impl Troubles {
    fn tell(&mut self, trouble: String, report: impl FnOnce(&str)) {
        if self.0.as_ref() != Some(&trouble) {
            report(&trouble);
            self.0 = Some(trouble);
        }
    }

    fn end(&mut self) {
        self.0 = None;
    }
}

fn accept_one(listener: &UnixListener) -> io::Result<Own<UnixStream>> {
    rustix::event::poll(&mut [PollFd::new(listener, PollFlags::IN)], None)?;
    Own::open(|| listener.accept().map(|(socket, _)| socket))
}

fn greet(socket: Own<UnixStream>, engine: Arc<Engine>, guests: &Arc<Mutex<Guests>>) -> io::Result<()> {
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
        let _departure = Departure { guests, outbox: Arc::clone(&of_session), id };
        let mut session = Session::new(engine, Arc::clone(&of_session));
        if let Err(error) = session.run(of_session.socket()) {
            crate::report(&format!("closing the connection of a guest: {error}"));
        }
    };
    match thread::Builder::new().name("fdb-host-in".to_owned()).spawn(serve) {
        Ok(reader) => {
            serving.insert(id, Serving { outbox, reader });
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
    fn a_trouble_is_told_once_until_it_changes_or_ends() {
        let (mut troubles, mut told) = (Troubles::default(), Vec::new());
        for trouble in ["a", "a", "b", "b", "a", "", "a"] {
            if trouble.is_empty() {
                troubles.end();
            } else {
                troubles.tell(trouble.to_owned(), |text| told.push(text.to_owned()));
            }
        }
        assert_eq!(told, ["a", "b", "a", "a"]);
    }
}
