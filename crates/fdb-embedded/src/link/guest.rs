//! This process as a guest: its connection to the process that hosts the directory.

use std::collections::HashMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;

use super::address;
use super::commit::{Base, Commit};
use super::message::{At, PROTOCOL, Request, Response};
use super::remote::{Fetch, RemoteView, Then};
use super::stream::{self, Frames, Outbox, Refused};
use crate::engine::CommitPromise;
use crate::error::Code;
use crate::rows::Direction;

/// Requests are refused, with an error that is retried, while this many bytes wait for a host that does not read.
const MAX_UNSENT: usize = 256 << 20;
/// Requests are refused likewise while so many are not answered. Each keeps its transaction, also one that has been given up,
/// and what that has written.
const MAX_WAITING: usize = 1 << 18;
/// Closed views are told of at once from this many on; fewer go with the next request.
const MAX_UNTOLD: usize = 64;

/// From so many requests under way, new ones are left to the writer thread, which sends what has collected at once;
/// below, the caller sends its own, which is sooner.
const BUSY: usize = 8;

/// Why there is no connection to a host.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    /// Nobody listens (yet, or any more).
    #[error("nobody listens")]
    Absent,
    /// Somebody does, and says nothing.
    #[error("it does not answer (is it stopped?)")]
    Silent,
    /// It belongs to another user.
    #[error("it belongs to another user")]
    Untrusted,
    /// It speaks otherwise than we do.
    #[error(
        "it speaks version {theirs} of the protocol and this process {PROTOCOL}; use the same version of both"
    )]
    Protocol { theirs: u32 },
    #[error("{0}")]
    Io(#[from] io::Error),
}

enum Waiting {
    Fetch { view: Weak<RemoteView>, fetch: Fetch, then: Then },
    Commit(CommitPromise),
}

#[derive(Default)]
struct State {
    is_lost: bool,
    views: HashMap<u64, Weak<RemoteView>>,
    waiting: HashMap<u64, Waiting>,
    /// Views of which the host has not said yet which version they are.
    unopened: usize,
    /// Views closed since the host was last told of one.
    untold: usize,
}

impl State {
    /// May one more request be made? The ends of views and watches always may: each goes with a request that was.
    fn takes_more(&self, outbox: &Outbox) -> bool {
        !self.is_lost && self.unopened + self.waiting.len() < MAX_WAITING && outbox.len() <= MAX_UNSENT
    }
}

/// A connection to the host.
pub struct Guest {
    outbox: Outbox,
    state: Mutex<State>,
    sequence: AtomicU64,
}

/// What happens on the connection, for the link.
pub(super) trait Events: Send + 'static {
    /// A watch has fired or failed.
    fn fired(&self, watch: u64, error: Option<Code>);
    /// The host is gone. Called once, last.
    fn lost(&self);
}

impl Guest {
    /// Connects to the process that hosts `directory`, and waits for so long until it answers.
    pub(super) fn connect(directory: &Path, patience: Duration) -> Result<Arc<Guest>, ConnectError> {
        let socket = match address::connect(directory) {
            Ok(socket) => socket,
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                return Err(ConnectError::Absent);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(ConnectError::Absent),
            // So many wait for it already that no other may.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(ConnectError::Silent),
            Err(error) => return Err(error.into()),
        };
        if !stream::is_trusted(&socket)? {
            return Err(ConnectError::Untrusted);
        }
        let (outbox, state) = (Outbox::of_guest(socket), Mutex::default());
        let guest = Guest { outbox, state, sequence: AtomicU64::new(1) };
        guest.push(&Request::Hello { protocol: PROTOCOL });
        guest.outbox.flush();
        welcome(guest.outbox.socket(), patience)?;
        Ok(Arc::new(guest))
    }

    /// Starts the connection's threads.
    pub(super) fn start(self: &Arc<Self>, events: impl Events) -> io::Result<()> {
        let writer = Arc::clone(self);
        thread::Builder::new().name("fdb-guest-out".to_owned()).spawn(move || writer.outbox.run_writer())?;
        let reader = Arc::clone(self);
        let work = move || {
            // A read that panics when it is run again has been reported by the panic hook; the others still get an end.
            let _ = catch_unwind(AssertUnwindSafe(|| reader.read(&events)));
            // A host that lives ends the connection when it has settled our commits; until then they are in flight.
            reader.outbox.stop_sending();
            stream::await_end(reader.outbox.socket());
            reader.lose();
            events.lost();
        };
        thread::Builder::new().name("fdb-guest-in".to_owned()).spawn(work)?;
        Ok(())
    }

    fn next_id(&self) -> u64 {
        self.sequence.fetch_add(1, Ordering::Relaxed)
    }

    /// Opens a view; its version arrives with the first answer.
    pub(super) fn open_view(self: &Arc<Self>, at: At) -> Arc<RemoteView> {
        let id = self.next_id();
        let view = Arc::new(RemoteView::new(id, Arc::clone(self), at == At::Pinned));
        let is_refused = {
            let mut state = self.state.lock();
            let is_refused = !state.takes_more(&self.outbox);
            if !is_refused {
                state.views.insert(id, Arc::downgrade(&view));
                state.unopened += 1;
            }
            is_refused
        };
        if is_refused {
            view.opened(Err(Code::TRANSACTION_TOO_OLD));
        } else {
            self.push(&Request::OpenView { view: id, at });
        }
        view
    }

    /// A view is dropped. The host is told with the next request, or at once.
    pub(super) fn forget_view(&self, id: u64, at_once: bool) {
        let mut state = self.state.lock();
        if state.views.remove(&id).is_none() || state.is_lost {
            return;
        }
        state.untold += 1;
        let tell = at_once || state.untold >= MAX_UNTOLD;
        if tell {
            state.untold = 0;
        }
        drop(state);
        self.push(&Request::CloseView { view: id });
        if tell {
            self.outbox.flush();
        }
    }

    /// Has something fetched into its view; `then` is called when it is there, or never will be.
    pub(super) fn fetch(&self, view: &Arc<RemoteView>, fetch: Fetch, then: Then) {
        if fetch == Fetch::Version {
            match view.await_version(then) {
                Some(then) => then(),
                // The message that opens the view may still lie in the outbox.
                None => self.outbox.flush(),
            }
            return;
        }
        let (request, view_id) = (self.next_id(), view.id());
        let message = match &fetch {
            Fetch::Key(key) => Request::Get { request, view: view_id, key: key.clone() },
            Fetch::Range { begin, end, direction, want } => Request::Range {
                request,
                view: view_id,
                begin: begin.clone(),
                end: end.clone(),
                backward: *direction == Direction::Backward,
                rows: want.rows,
                bytes: want.bytes,
            },
            Fetch::Version => unreachable!("handled above"),
        };
        let waiting = Waiting::Fetch { view: Arc::downgrade(view), fetch, then };
        if let Err((code, Waiting::Fetch { fetch, then, .. })) = self.ask(request, waiting, &message) {
            view.fail(fetch, code);
            then();
        }
    }

    /// Sends a request that is answered later. One that cannot be sent gives `waiting` back, and why.
    fn ask(&self, request: u64, waiting: Waiting, message: &Request) -> Result<(), (Code, Waiting)> {
        let is_busy = {
            let mut state = self.state.lock();
            if !state.takes_more(&self.outbox) {
                return Err((Code::TRANSACTION_TOO_OLD, waiting));
            }
            state.waiting.insert(request, waiting);
            state.waiting.len() >= BUSY
        };
        if let Err(refused) = self.outbox.push(|frame| message.encode(frame)) {
            let code = match refused {
                Refused::TooLong => Code::TRANSACTION_TOO_LARGE,
                Refused::Closed => Code::TRANSACTION_TOO_OLD,
            };
            // Unless the connection has been lost meanwhile, which has ended what waits.
            let waiting = self.state.lock().waiting.remove(&request);
            return waiting.map_or(Ok(()), |waiting| Err((code, waiting)));
        }
        if is_busy {
            self.outbox.leave();
        } else {
            self.outbox.flush();
        }
        Ok(())
    }

    /// Sends a commit. If the connection is lost before the answer, that says that the outcome is unknown.
    pub(super) fn commit(&self, commit: Commit<u64>, answer: CommitPromise) {
        let request = self.next_id();
        let message = Request::Commit { request, commit };
        if let Err((code, Waiting::Commit(answer))) = self.ask(request, Waiting::Commit(answer), &message) {
            // It was not sent, so it certainly did not happen.
            answer.complete(Err(code.into()));
        }
    }

    /// Arms a watch at the host.
    pub(super) fn arm(&self, watch: u64, key: &[u8], baseline: Option<Bytes>) {
        self.tell(&Request::Arm { watch, key: key.to_vec(), baseline });
    }

    /// Ends a watch at the host.
    pub(super) fn disarm(&self, watch: u64) {
        self.tell(&Request::Disarm { watch });
    }

    fn tell(&self, message: &Request) {
        self.push(message);
        self.outbox.flush();
    }

    /// For a request that is not answered, or whose answer nobody waits for once the connection is closed.
    fn push(&self, message: &Request) {
        let _ = self.outbox.push(|frame| message.encode(frame));
    }

    /// Ends the connection, once the host has answered what it has been sent; the reader thread does the rest.
    pub(super) fn close(&self) {
        self.outbox.stop_sending();
    }

    /// Is `base` a view of this connection?
    pub(super) fn owns(self: &Arc<Self>, view: &RemoteView) -> Option<Base<u64>> {
        Arc::ptr_eq(self, view.guest()).then(|| Base::View(view.id()))
    }

    fn read(&self, events: &impl Events) {
        let mut frames = Frames::new(self.outbox.socket());
        loop {
            let response = match frames.next() {
                Ok(Some(frame)) => Response::decode(frame).map_err(|error| error.to_string()),
                Ok(None) => return,
                Err(error) => Err(error.to_string()),
            };
            match response {
                Ok(response) => self.receive(response, events),
                Err(error) => {
                    crate::report(&format!("closing the connection to the host of the database: {error}"));
                    return;
                }
            }
        }
    }

    fn receive(&self, response: Response, events: &impl Events) {
        match response {
            Response::Welcome { .. } => {}
            Response::View { view, version } => {
                let view = {
                    let mut state = self.state.lock();
                    state.unopened = state.unopened.saturating_sub(1);
                    state.views.get(&view).and_then(Weak::upgrade)
                };
                view.into_iter().for_each(|view| view.opened(version));
            }
            Response::Value { request, value } => self.arrived(request, |view, fetch| match (fetch, value) {
                (Fetch::Key(key), Ok(value)) => view.insert_value(key, value),
                (fetch, Err(code)) => view.fail(fetch, code),
                // The answer to another question: the read will ask again.
                _ => {}
            }),
            Response::Rows { request, rows } => self.arrived(request, |view, fetch| match (fetch, rows) {
                (Fetch::Range { begin, end, direction, .. }, Ok(rows)) => {
                    view.insert_rows(begin, end, direction, &rows);
                }
                (fetch, Err(code)) => view.fail(fetch, code),
                _ => {}
            }),
            Response::Committed { request, result } => {
                let waiting = self.state.lock().waiting.remove(&request);
                if let Some(Waiting::Commit(answer)) = waiting {
                    answer.complete(result);
                }
            }
            Response::Fired { watch, error } => events.fired(watch, error),
        }
    }

    /// Puts what has arrived into its view and repeats the read that waits for it.
    fn arrived(&self, request: u64, insert: impl FnOnce(&RemoteView, Fetch)) {
        let waiting = self.state.lock().waiting.remove(&request);
        let Some(Waiting::Fetch { view, fetch, then }) = waiting else { return };
        if let Some(view) = view.upgrade() {
            insert(&view, fetch);
        }
        then();
    }

    /// The connection has ended: nothing more will be answered.
    fn lose(&self) {
        self.outbox.close();
        let (views, waiting) = {
            let mut state = self.state.lock();
            state.is_lost = true;
            (std::mem::take(&mut state.views), std::mem::take(&mut state.waiting))
        };
        views.into_values().filter_map(|view| view.upgrade()).for_each(|view| view.lost());
        for waiting in waiting.into_values() {
            match waiting {
                Waiting::Fetch { then, .. } => then(),
                // Dropped, an answer says that the outcome is unknown.
                Waiting::Commit(answer) => drop(answer),
            }
        }
    }
}

/// Reads the host's first message, for as long as patience lasts.
fn welcome(socket: &UnixStream, patience: Duration) -> Result<(), ConnectError> {
    let mut frames = Frames::new(socket);
    let response = match frames.next_by(Instant::now() + patience) {
        Ok(Some(frame)) => {
            Response::decode(frame).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?
        }
        Ok(None) => return Err(ConnectError::Absent),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(ConnectError::Silent),
        Err(error) => return Err(error.into()),
    };
    match response {
        Response::Welcome { protocol: PROTOCOL, .. } => Ok(()),
        Response::Welcome { protocol, .. } => Err(ConnectError::Protocol { theirs: protocol }),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "the host's first message is no welcome").into()),
    }
}

#[cfg(test)]
mod tests;
