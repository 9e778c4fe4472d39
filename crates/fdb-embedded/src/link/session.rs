//! A session: the host's side of one guest's connection.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use baton::Mutex;
use bytes::Bytes;

use super::commit::{CommitBase, CommitMessage};
use super::message::{PROTOCOL, Request, Response, ViewVersion};
use super::stream::{Frames, Outbox};
use super::wire::Malformed;
use crate::engine::{CommitPromise, Engine, ReadView};
use crate::error::{Code, Result};
use crate::future::Future;
use crate::rows::{Direction, FetchHint, RowSet};

/// The most views that a guest may have open.
const MAX_VIEWS: usize = 65_536;
/// The most watches that a guest may have armed. Another one fails with `TOO_MANY_WATCHES`.
const MAX_WATCHES: usize = 1_000_000;
/// No more requests are read from a guest while it has this many bytes of responses to read.
const MAX_UNREAD: usize = 8 << 20;
/// How long a new connection may take for its first message. Connections that send nothing would
/// take guests' places.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// No more requests are read from a guest while this many bytes of its commits are not answered.
const MAX_UNANSWERED: usize = 64 << 20;

/// Why the host ends a session.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionError {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("cannot serve it: its first message is not a greeting")]
    NoGreeting,
    #[error("cannot serve it: it uses protocol {0}, this process {PROTOCOL}; use the same version of both")]
    Protocol(u32),
    #[error("cannot serve it: it has more than {MAX_VIEWS} open views")]
    TooManyViews,
}

/// Responses that are encoded but not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UnsentResponses {
    Nothing,
    /// Only the version of this view.
    ReadView(u64),
    More,
}

type GuestWatches = Arc<Mutex<HashMap<u64, Arc<Future>>>>;

/// The session of one guest.
pub(super) struct GuestSession {
    engine: Arc<Engine>,
    outbox: Arc<Outbox>,
    views: HashMap<u64, Result<ReadView>>,
    watches: GuestWatches,
    /// The number of commits that are not answered.
    committing: Arc<AtomicUsize>,
    unsent: UnsentResponses,
}

impl GuestSession {
    pub(super) fn new(engine: Arc<Engine>, outbox: Arc<Outbox>) -> GuestSession {
        let (views, watches, committing) = Default::default();
        GuestSession { engine, outbox, views, watches, committing, unsent: UnsentResponses::Nothing }
    }

    /// Serves requests until the guest closes the connection or violates the protocol.
    pub(super) fn run(&mut self, socket: &UnixStream) -> Result<(), SessionError> {
        let mut frames = Frames::new(socket);
        let first = frames.next_by(baton::now() + HELLO_TIMEOUT).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => SessionError::NoGreeting,
            _ => error.into(),
        })?;
        let Some(frame) = first else { return Ok(()) };
        let Request::Hello { protocol } = Request::decode(frame)? else {
            return Err(SessionError::NoGreeting);
        };
        // A guest with another protocol understands this message, and reports both versions.
        self.respond(&Response::Welcome { protocol: PROTOCOL, pid: std::process::id() });
        self.outbox.flush();
        if protocol != PROTOCOL {
            return Err(SessionError::Protocol(protocol));
        }
        loop {
            if self.unsent != UnsentResponses::Nothing && !frames.is_next_here() {
                self.outbox.flush();
                self.unsent = UnsentResponses::Nothing;
            }
            let Some(frame) = frames.next()? else { return Ok(()) };
            let length = frame.len();
            self.serve(Request::decode(frame)?, length)?;
            self.outbox.wait_below(MAX_UNREAD, MAX_UNANSWERED);
        }
    }

    fn respond(&self, response: &Response) {
        push(&self.outbox, response);
    }

    /// Serves a request of `length` bytes.
    fn serve(&mut self, request: Request, length: usize) -> Result<(), SessionError> {
        match request {
            Request::Hello { .. } => return Err(Malformed("it greets twice").into()),
            Request::OpenView { view, at } => self.open_view(view, at)?,
            Request::CloseView { view } => drop(self.views.remove(&view)),
            Request::Get { request, view, key } => {
                let value = self.view(view).and_then(|view| view.get(&key));
                self.unsent = UnsentResponses::More;
                self.respond(&Response::Value { request, value });
            }
            Request::Range { request, view, begin, end, backward, rows, bytes } => {
                let direction = if backward { Direction::Backward } else { Direction::Forward };
                let want =
                    FetchHint { rows: rows.min(FetchHint::MAX.rows), bytes: bytes.min(FetchHint::MAX.bytes) };
                let rows = self.view(view).and_then(|view| read_rows(view, &begin, &end, direction, want));
                self.unsent = UnsentResponses::More;
                self.respond(&Response::Rows { request, rows });
            }
            Request::Commit { request, commit } => self.commit(request, commit, length),
            Request::Arm { watch, key, baseline } => self.arm(watch, &key, baseline),
            Request::Disarm { watch } => {
                let armed = self.watches.lock().remove(&watch);
                if let Some(armed) = armed {
                    armed.fail(Code::OPERATION_CANCELLED);
                }
            }
        }
        Ok(())
    }

    fn open_view(&mut self, id: u64, at: ViewVersion) -> Result<(), SessionError> {
        if self.views.len() >= MAX_VIEWS {
            // The limit does not count views that are too old to be read.
            self.views.retain(|_, view| view.as_ref().is_ok_and(|view| !view.is_expired()));
            if self.views.len() >= MAX_VIEWS {
                return Err(SessionError::TooManyViews);
            }
        }
        let view = match at {
            ViewVersion::Newest => Ok(self.engine.read()),
            ViewVersion::Version(version) => self.engine.read_at(version),
            ViewVersion::Pinned => self.engine.pin(),
        };
        self.unsent = if self.unsent == UnsentResponses::Nothing {
            UnsentResponses::ReadView(id)
        } else {
            UnsentResponses::More
        };
        self.respond(&Response::View {
            view: id,
            version: view.as_ref().map(|view| view.version).map_err(|e| *e),
        });
        self.views.insert(id, view);
        Ok(())
    }

    /// A view by its id. An unknown one counts as too old.
    fn view(&self, id: u64) -> Result<&ReadView> {
        match self.views.get(&id) {
            Some(view) => view.as_ref().map_err(|code| *code),
            None => Err(Code::TRANSACTION_TOO_OLD),
        }
    }

    fn commit(&mut self, request: u64, commit: CommitMessage<u64>, length: usize) {
        if let CommitBase::View(view) = commit.base
            && self.unsent == UnsentResponses::ReadView(view)
        {
            // A transaction without reads asks for its version only now. It is sent together with
            // the commit's result.
            self.unsent = UnsentResponses::Nothing;
        }
        let (outbox, committing) = (Arc::clone(&self.outbox), Arc::clone(&self.committing));
        committing.fetch_add(1, Ordering::AcqRel);
        outbox.add_in_flight(length);
        let promise = CommitPromise::new(move |result| {
            push(&outbox, &Response::Committed { request, result });
            // On the committer's thread. If more results follow, the writer thread sends them
            // together. For a single result, waking that thread would take as long as sending.
            if committing.fetch_sub(1, Ordering::AcqRel) == 1 {
                outbox.flush();
            } else {
                outbox.hand_to_writer();
            }
            outbox.remove_in_flight(length);
        });
        let read_version = match commit.base {
            CommitBase::Newest => Ok(self.engine.read().version),
            CommitBase::Version(version) => Ok(version),
            CommitBase::View(view) => self.view(view).map(|view| view.version),
        };
        match read_version {
            Ok(read_version) => self.engine.commit(commit.request(read_version, promise)),
            Err(code) => promise.complete(Err(code.into())),
        }
    }

    fn arm(&self, watch: u64, key: &[u8], baseline: Option<Bytes>) {
        let future = Future::pending();
        {
            let mut watches = self.watches.lock();
            // After a takeover, a guest may arm a watch twice.
            if watches.contains_key(&watch) {
                return;
            }
            if watches.len() >= MAX_WATCHES {
                drop(watches);
                push(&self.outbox, &Response::Fired { watch, error: Some(Code::TOO_MANY_WATCHES) });
                return self.outbox.hand_to_writer();
            }
            watches.insert(watch, Arc::clone(&future));
        }
        let (watches, outbox, fired) =
            (Arc::clone(&self.watches), Arc::clone(&self.outbox), Arc::downgrade(&future));
        future.hook(Box::new(move || {
            // The guest has disarmed the watch.
            if watches.lock().remove(&watch).is_none() {
                return;
            }
            let error = fired.upgrade().and_then(|future| future.result().err());
            push(&outbox, &Response::Fired { watch, error });
            outbox.hand_to_writer();
        }));
        self.engine.arm(key, baseline, &future);
    }
}

impl Drop for GuestSession {
    fn drop(&mut self) {
        // Ends the watches without their lock, because each one's hook takes it.
        let watches = std::mem::take(&mut *self.watches.lock());
        for future in watches.into_values() {
            future.fail(Code::OPERATION_CANCELLED);
        }
    }
}

fn push(outbox: &Outbox, response: &Response) {
    // No response is too long. If the guest reads no more, the session ends by itself.
    let _ = outbox.push(|frame| response.encode(frame));
}

fn read_rows(
    view: &ReadView,
    begin: &[u8],
    end: &[u8],
    direction: Direction,
    want: FetchHint,
) -> Result<RowSet> {
    let mut rows = RowSet::default();
    let _ = view.scan(begin, end, direction, &mut |key, value| {
        rows.push(key, value);
        rows.more = want.is_met_by(&rows);
        if rows.more { std::ops::ControlFlow::Break(()) } else { std::ops::ControlFlow::Continue(()) }
    })?;
    Ok(rows)
}
