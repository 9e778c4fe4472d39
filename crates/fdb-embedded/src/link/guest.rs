//! The guest's side of the connection to the host.

use baton::thread;
use std::collections::HashMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use baton::Mutex;
use bytes::Bytes;

use super::address;
use super::commit::{CommitBase, CommitMessage};
use super::message::{PROTOCOL, Request, Response, ViewVersion};
use super::remote::{Continuation, Fetch, RemoteView};
use super::stream::{self, Frames, Outbox, PushError};
use crate::engine::CommitPromise;
use crate::error::Code;
use crate::rows::Direction;

/// Requests fail with a retryable error while this many bytes wait for a host that does not read.
const MAX_UNSENT: usize = 256 << 20;
/// Requests fail with a retryable error while this many are not answered. Each keeps the memory of
/// its transaction, even if the client has given up.
const MAX_PENDING: usize = 1 << 18;
/// After this many closed views the host is informed at once; fewer are sent with the next request.
const MAX_UNREPORTED_CLOSES: usize = 64;

/// With this many requests in flight, new ones go to the writer thread, which sends several at once.
/// Below, the caller sends its own, which is faster.
const BUSY_REQUESTS: usize = 8;

/// Why connecting to a host failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    /// No process listens.
    #[error("no process listens")]
    Absent,
    /// A process listens but does not answer.
    #[error("it does not answer (is it stopped?)")]
    Silent,
    /// The host belongs to another user.
    #[error("it belongs to another user")]
    Untrusted,
    /// The host uses another version of the protocol.
    #[error("it uses protocol {theirs} and this process {PROTOCOL}; use the same version of both")]
    Protocol { theirs: u32 },
    #[error("{0}")]
    Io(#[from] io::Error),
}

enum PendingRequest {
    Fetch {
        view: Weak<RemoteView>,
        fetch: Fetch,
        then: Continuation,
    },
    Commit(CommitPromise),
    /// A commit that could not be sent. Called at the end of the connection, which has begun.
    UnsentCommit(Continuation),
}

/// Why a request was not sent.
enum Unsent {
    /// The connection has ended.
    Lost(PendingRequest),
    /// The connection is ending. The request stays pending until then.
    Ending,
    /// The request itself is refused.
    Refused(Code, PendingRequest),
}

#[derive(Default)]
struct GuestState {
    is_lost: bool,
    views: HashMap<u64, Weak<RemoteView>>,
    pending: HashMap<u64, PendingRequest>,
    /// Views whose version has not arrived yet.
    unopened: usize,
    /// Views closed since the host was last informed.
    unreported_closes: usize,
}

impl GuestState {
    /// Whether another request may be sent. Closing views and watches is always allowed, because
    /// each of them had a request.
    fn accepts_requests(&self, outbox: &Outbox) -> bool {
        self.unopened + self.pending.len() < MAX_PENDING && outbox.len() <= MAX_UNSENT
    }
}

/// A connection to the host.
pub struct Guest {
    outbox: Outbox,
    state: Mutex<GuestState>,
    sequence: AtomicU64,
}

/// Events of the connection, for the link.
pub(super) trait ConnectionEvents: Send + 'static {
    /// A watch has fired or failed.
    fn fired(&self, watch: u64, error: Option<Code>);
    /// The connection is ending: what begins from now on has to wait for the next host.
    fn ending(&self);
    /// The host is gone. Called once, as the last event.
    fn lost(&self);
}

impl Guest {
    /// Connects to the host of `directory`, and waits up to `patience` for its answer.
    pub(super) fn connect(directory: &Path, patience: Duration) -> Result<Arc<Guest>, ConnectError> {
        let socket = match address::connect(directory) {
            Ok(socket) => socket,
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                return Err(ConnectError::Absent);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(ConnectError::Absent),
            // The host's queue of connections is full.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(ConnectError::Silent),
            Err(error) => return Err(error.into()),
        };
        if !stream::is_trusted(&socket)? {
            return Err(ConnectError::Untrusted);
        }
        #[cfg(feature = "testing")]
        let socket = super::delay::by_environment(socket)?;
        let (outbox, state) = (Outbox::of_guest(socket), Mutex::default());
        let guest = Guest { outbox, state, sequence: AtomicU64::new(1) };
        guest.push(&Request::Hello { protocol: PROTOCOL });
        guest.outbox.flush();
        await_welcome(guest.outbox.socket(), patience)?;
        Ok(Arc::new(guest))
    }

    /// Starts the threads of the connection.
    pub(super) fn start(self: &Arc<Self>, events: impl ConnectionEvents) -> io::Result<()> {
        let writer = Arc::clone(self);
        thread::Builder::new().name("fdb-guest-out".to_owned()).spawn(move || writer.outbox.run_writer())?;
        let reader = Arc::clone(self);
        let work = move || {
            // The panic hook has reported a read that panicked. The other requests still get an
            // end.
            let _ = catch_unwind(AssertUnwindSafe(|| reader.read(&events)));
            events.ending();
            // A running host ends the connection when it has answered our commits. Until then they
            // are in flight.
            reader.outbox.stop_sending();
            stream::await_end(reader.outbox.socket());
            reader.fail_pending();
            events.lost();
        };
        thread::Builder::new().name("fdb-guest-in".to_owned()).spawn(work)?;
        Ok(())
    }

    fn next_id(&self) -> u64 {
        self.sequence.fetch_add(1, Ordering::Relaxed)
    }

    /// Opens a view. Its version arrives with the first response.
    pub(super) fn open_view(self: &Arc<Self>, at: ViewVersion) -> Arc<RemoteView> {
        let id = self.next_id();
        let view = Arc::new(RemoteView::new(id, Arc::clone(self), at == ViewVersion::Pinned));
        let mut state = self.state.lock();
        if state.is_lost {
            drop(state);
            view.lost();
        } else if !state.accepts_requests(&self.outbox) {
            drop(state);
            view.opened(Err(Code::TRANSACTION_TOO_OLD));
        } else {
            state.views.insert(id, Arc::downgrade(&view));
            state.unopened += 1;
            drop(state);
            self.push(&Request::OpenView { view: id, at });
        }
        view
    }

    /// Closes a view. The host is informed with the next request, or at once.
    pub(super) fn close_view(&self, id: u64, at_once: bool) {
        let mut state = self.state.lock();
        if state.views.remove(&id).is_none() || state.is_lost {
            return;
        }
        state.unreported_closes += 1;
        let reports_now = at_once || state.unreported_closes >= MAX_UNREPORTED_CLOSES;
        if reports_now {
            state.unreported_closes = 0;
        }
        drop(state);
        self.push(&Request::CloseView { view: id });
        if reports_now {
            self.outbox.flush();
        }
    }

    /// Fetches data into its view, and calls `then` when it has arrived or cannot arrive.
    pub(super) fn fetch(&self, view: &Arc<RemoteView>, fetch: Fetch, then: Continuation) {
        if fetch == Fetch::Version {
            match view.await_version(then) {
                Some(then) => then(),
                // The message that opens the view may not have been sent.
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
        let pending = PendingRequest::Fetch { view: Arc::downgrade(view), fetch, then };
        match self.send_request(request, pending, &message) {
            Err(Unsent::Lost(PendingRequest::Fetch { then, .. })) => {
                view.lost();
                then();
            }
            Err(Unsent::Refused(code, PendingRequest::Fetch { fetch, then, .. })) => {
                view.fail(fetch, code);
                then();
            }
            _ => {}
        }
    }

    /// Sends a request that is answered later.
    fn send_request(&self, request: u64, pending: PendingRequest, message: &Request) -> Result<(), Unsent> {
        let is_busy = {
            let mut state = self.state.lock();
            if state.is_lost {
                return Err(Unsent::Lost(pending));
            }
            if !state.accepts_requests(&self.outbox) {
                return Err(Unsent::Refused(Code::TRANSACTION_TOO_OLD, pending));
            }
            state.pending.insert(request, pending);
            state.pending.len() >= BUSY_REQUESTS
        };
        match self.outbox.push(|frame| message.encode(frame)) {
            Ok(()) => {}
            Err(PushError::Closed) => return Err(Unsent::Ending),
            Err(PushError::TooLong) => {
                // If the connection was lost meanwhile, the request has been failed already.
                let pending = self.state.lock().pending.remove(&request);
                let refused = |pending| Err(Unsent::Refused(Code::TRANSACTION_TOO_LARGE, pending));
                return pending.map_or(Ok(()), refused);
            }
        }
        if is_busy {
            self.outbox.hand_to_writer();
        } else {
            self.outbox.flush();
        }
        Ok(())
    }

    /// Sends a commit. If the connection is lost before the result, the promise is dropped, and so
    /// the outcome is unknown. A commit that is not sent because the connection ends goes to
    /// `unsent`, after [`ConnectionEvents::ending`].
    pub(super) fn commit(
        &self,
        commit: CommitMessage<u64>,
        promise: CommitPromise,
        unsent: impl FnOnce(CommitMessage<u64>, CommitPromise) + Send + 'static,
    ) {
        let request = self.next_id();
        let message = Request::Commit { request, commit };
        let sent = self.send_request(request, PendingRequest::Commit(promise), &message);
        let Request::Commit { commit, .. } = message else { unreachable!("made above") };
        match sent {
            Err(Unsent::Lost(PendingRequest::Commit(promise))) => unsent(commit, promise),
            // The commit was not sent, so it did not happen.
            Err(Unsent::Refused(code, PendingRequest::Commit(promise))) => promise.complete(Err(code.into())),
            Err(Unsent::Ending) => {
                let mut state = self.state.lock();
                // If the connection has ended meanwhile, the outcome counts as unknown.
                if let Some(PendingRequest::Commit(promise)) = state.pending.remove(&request) {
                    let again = PendingRequest::UnsentCommit(Box::new(move || unsent(commit, promise)));
                    state.pending.insert(request, again);
                }
            }
            _ => {}
        }
    }

    /// Arms a watch at the host.
    pub(super) fn arm(&self, watch: u64, key: &[u8], baseline: Option<Bytes>) {
        self.send(&Request::Arm { watch, key: key.to_vec(), baseline });
    }

    /// Ends a watch at the host.
    pub(super) fn disarm(&self, watch: u64) {
        self.send(&Request::Disarm { watch });
    }

    fn send(&self, message: &Request) {
        self.push(message);
        self.outbox.flush();
    }

    /// Sends a message without a response, or whose response does not matter once the connection is
    /// closed.
    fn push(&self, message: &Request) {
        let _ = self.outbox.push(|frame| message.encode(frame));
    }

    /// Ends the connection after the host has answered. The reader thread does the rest.
    pub(super) fn close(&self) {
        self.outbox.stop_sending();
    }

    /// The view's id, if it belongs to this connection.
    pub(super) fn owns(self: &Arc<Self>, view: &RemoteView) -> Option<CommitBase<u64>> {
        Arc::ptr_eq(self, view.guest()).then(|| CommitBase::View(view.id()))
    }

    fn read(&self, events: &impl ConnectionEvents) {
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
                    crate::reports::report(&format!(
                        "closing the connection to the host of the database: {error}"
                    ));
                    return;
                }
            }
        }
    }

    fn receive(&self, response: Response, events: &impl ConnectionEvents) {
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
            Response::Value { request, value } => {
                self.complete_fetch(request, |view, fetch| match (fetch, value) {
                    (Fetch::Key(key), Ok(value)) => view.insert_value(key, value),
                    (fetch, Err(code)) => view.fail(fetch, code),
                    // A response of the wrong kind. The read will ask again.
                    _ => {}
                });
            }
            Response::Rows { request, rows } => {
                self.complete_fetch(request, |view, fetch| match (fetch, rows) {
                    (Fetch::Range { begin, end, direction, .. }, Ok(rows)) => {
                        view.insert_rows(begin, end, direction, &rows);
                    }
                    (fetch, Err(code)) => view.fail(fetch, code),
                    _ => {}
                });
            }
            Response::Committed { request, result } => {
                let pending = self.state.lock().pending.remove(&request);
                if let Some(PendingRequest::Commit(promise)) = pending {
                    promise.complete(result);
                }
            }
            Response::Fired { watch, error } => events.fired(watch, error),
        }
    }

    /// Puts arrived data into its view, and repeats the read that needs it.
    fn complete_fetch(&self, request: u64, insert: impl FnOnce(&RemoteView, Fetch)) {
        let pending = self.state.lock().pending.remove(&request);
        let Some(PendingRequest::Fetch { view, fetch, then }) = pending else { return };
        if let Some(view) = view.upgrade() {
            insert(&view, fetch);
        }
        then();
    }

    /// Ends everything that waits for the connection, which has ended.
    fn fail_pending(&self) {
        self.outbox.close();
        let (views, pending) = {
            let mut state = self.state.lock();
            state.is_lost = true;
            (std::mem::take(&mut state.views), std::mem::take(&mut state.pending))
        };
        views.into_values().filter_map(|view| view.upgrade()).for_each(|view| view.lost());
        for pending in pending.into_values() {
            match pending {
                PendingRequest::Fetch { then: continuation, .. }
                | PendingRequest::UnsentCommit(continuation) => continuation(),
                // Dropping the promise says that the outcome is unknown.
                PendingRequest::Commit(promise) => drop(promise),
            }
        }
    }
}

/// Reads the host's first message, and waits up to `patience` for it.
fn await_welcome(socket: &UnixStream, patience: Duration) -> Result<(), ConnectError> {
    let mut frames = Frames::new(socket);
    let response = match frames.next_by(baton::now() + patience) {
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
