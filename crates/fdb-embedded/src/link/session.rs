//! One guest, as its host serves it.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;

use super::commit::{Base, Commit};
use super::message::{At, PROTOCOL, Request, Response};
use super::stream::{Frames, Outbox};
use super::wire::Malformed;
use crate::engine::{CommitPromise, Engine, ReadView};
use crate::error::{Code, Result};
use crate::future::Future;
use crate::rows::{Direction, RowSet, Want};

/// Views that one guest may have open.
const MAX_VIEWS: usize = 65_536;
/// Watches that one guest may have armed: many database handles' worth. A further one fails with `TOO_MANY_WATCHES`.
const MAX_WATCHES: usize = 1_000_000;
/// No further request is read from a guest while this much waits for it to read, bytes.
const MAX_UNREAD: usize = 8 << 20;
/// How long a new connection has to say who it is: what does not is no guest, and would take the place of one.
const HELLO_PATIENCE: Duration = Duration::from_secs(5);
/// No further request is read from a guest while this much of its commits is not answered, bytes.
const MAX_UNANSWERED: usize = 64 << 20;

/// Why a session ended before its guest closed it.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionError {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("it does not begin with a greeting")]
    NoGreeting,
    #[error("it speaks version {0} of the protocol, this process {PROTOCOL}")]
    Protocol(u32),
    #[error("it has more than {MAX_VIEWS} views")]
    TooMuch,
}

/// What has been answered and not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unsent {
    Nothing,
    /// The version of one view.
    ReadView(u64),
    More,
}

type Watches = Arc<Mutex<HashMap<u64, Arc<Future>>>>;

/// The host's end of a connection.
pub(super) struct Session {
    engine: Arc<Engine>,
    outbox: Arc<Outbox>,
    views: HashMap<u64, Result<ReadView>>,
    watches: Watches,
    /// Commits that are not answered yet.
    committing: Arc<AtomicUsize>,
    unsent: Unsent,
}

impl Session {
    pub(super) fn new(engine: Arc<Engine>, outbox: Arc<Outbox>) -> Session {
        let (views, watches, committing) = Default::default();
        Session { engine, outbox, views, watches, committing, unsent: Unsent::Nothing }
    }

    /// Serves until the guest closes, or does what no guest does.
    pub(super) fn run(&mut self, socket: &UnixStream) -> Result<(), SessionError> {
        let mut frames = Frames::new(socket);
        let first = frames.next_by(Instant::now() + HELLO_PATIENCE).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => SessionError::NoGreeting,
            _ => error.into(),
        })?;
        let Some(frame) = first else { return Ok(()) };
        let Request::Hello { protocol } = Request::decode(frame)? else {
            return Err(SessionError::NoGreeting);
        };
        // A guest of another version reads this much, and says which versions do not fit.
        self.answer(&Response::Welcome { protocol: PROTOCOL, pid: std::process::id() });
        self.outbox.flush();
        if protocol != PROTOCOL {
            return Err(SessionError::Protocol(protocol));
        }
        loop {
            if self.unsent != Unsent::Nothing && !frames.is_next_here() {
                self.outbox.flush();
                self.unsent = Unsent::Nothing;
            }
            let Some(frame) = frames.next()? else { return Ok(()) };
            let length = frame.len();
            self.serve(Request::decode(frame)?, length)?;
            self.outbox.wait_below(MAX_UNREAD, MAX_UNANSWERED);
        }
    }

    fn answer(&self, response: &Response) {
        push(&self.outbox, response);
    }

    /// Serves a request that was `length` bytes long.
    fn serve(&mut self, request: Request, length: usize) -> Result<(), SessionError> {
        match request {
            Request::Hello { .. } => return Err(Malformed("it greets twice").into()),
            Request::OpenView { view, at } => self.open_view(view, at)?,
            Request::CloseView { view } => drop(self.views.remove(&view)),
            Request::Get { request, view, key } => {
                let value = self.view(view).and_then(|view| view.get(&key));
                self.unsent = Unsent::More;
                self.answer(&Response::Value { request, value });
            }
            Request::Range { request, view, begin, end, backward, rows, bytes } => {
                let direction = if backward { Direction::Backward } else { Direction::Forward };
                let want = Want { rows: rows.min(Want::MOST.rows), bytes: bytes.min(Want::MOST.bytes) };
                let rows = self.view(view).and_then(|view| read_rows(view, &begin, &end, direction, want));
                self.unsent = Unsent::More;
                self.answer(&Response::Rows { request, rows });
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

    fn open_view(&mut self, id: u64, at: At) -> Result<(), SessionError> {
        if self.views.len() >= MAX_VIEWS {
            // Of those that are too old to be read a guest may have any number.
            self.views.retain(|_, view| view.as_ref().is_ok_and(|view| !view.is_expired()));
            if self.views.len() >= MAX_VIEWS {
                return Err(SessionError::TooMuch);
            }
        }
        let view = match at {
            At::Newest => Ok(self.engine.read()),
            At::Version(version) => self.engine.read_at(version),
            At::Pinned => self.engine.pin(),
        };
        self.unsent = if self.unsent == Unsent::Nothing { Unsent::ReadView(id) } else { Unsent::More };
        self.answer(&Response::View {
            view: id,
            version: view.as_ref().map(|view| view.version).map_err(|e| *e),
        });
        self.views.insert(id, view);
        Ok(())
    }

    /// A view by its id. One that the guest never opened is gone, to all intents.
    fn view(&self, id: u64) -> Result<&ReadView> {
        match self.views.get(&id) {
            Some(view) => view.as_ref().map_err(|code| *code),
            None => Err(Code::TRANSACTION_TOO_OLD),
        }
    }

    fn commit(&mut self, request: u64, commit: Commit<u64>, length: usize) {
        if let Base::View(view) = commit.base
            && self.unsent == Unsent::ReadView(view)
        {
            // A transaction that has read nothing asks for its version only now; the commit's answer takes it along.
            self.unsent = Unsent::Nothing;
        }
        let (outbox, committing) = (Arc::clone(&self.outbox), Arc::clone(&self.committing));
        committing.fetch_add(1, Ordering::AcqRel);
        outbox.owe(length);
        let answer = CommitPromise::new(move |result| {
            push(&outbox, &Response::Committed { request, result });
            // This is the committer's thread. More answers are sent at once by another; waking that one for a single
            // answer would take as long as sending it.
            if committing.fetch_sub(1, Ordering::AcqRel) == 1 {
                outbox.flush();
            } else {
                outbox.leave();
            }
            outbox.settle(length);
        });
        let read_version = match commit.base {
            Base::Now => Ok(self.engine.read().version),
            Base::Version(version) => Ok(version),
            Base::View(view) => self.view(view).map(|view| view.version),
        };
        match read_version {
            Ok(read_version) => self.engine.commit(commit.request(read_version, answer)),
            Err(code) => answer.complete(Err(code.into())),
        }
    }

    fn arm(&self, watch: u64, key: &[u8], baseline: Option<Bytes>) {
        let future = Future::pending();
        {
            let mut watches = self.watches.lock();
            // A guest that is not sure arms a watch again.
            if watches.contains_key(&watch) {
                return;
            }
            if watches.len() >= MAX_WATCHES {
                drop(watches);
                push(&self.outbox, &Response::Fired { watch, error: Some(Code::TOO_MANY_WATCHES) });
                return self.outbox.leave();
            }
            watches.insert(watch, Arc::clone(&future));
        }
        let (watches, outbox, fired) =
            (Arc::clone(&self.watches), Arc::clone(&self.outbox), Arc::downgrade(&future));
        future.hook(Box::new(move || {
            // One that the guest has disarmed is not there any more, and nobody waits for it.
            if watches.lock().remove(&watch).is_none() {
                return;
            }
            let error = fired.upgrade().and_then(|future| future.result().err());
            push(&outbox, &Response::Fired { watch, error });
            outbox.leave();
        }));
        self.engine.arm(key, baseline, &future);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Lets go of the watches outside their lock: each ends in a hook that takes it.
        let watches = std::mem::take(&mut *self.watches.lock());
        for future in watches.into_values() {
            future.fail(Code::OPERATION_CANCELLED);
        }
    }
}

fn push(outbox: &Outbox, response: &Response) {
    // No answer is too long, and of a guest that takes none any more the session finds the end.
    let _ = outbox.push(|frame| response.encode(frame));
}

fn read_rows(view: &ReadView, begin: &[u8], end: &[u8], direction: Direction, want: Want) -> Result<RowSet> {
    let mut rows = RowSet::default();
    let _ = view.scan(begin, end, direction, &mut |key, value| {
        rows.push(key, value);
        rows.more = want.is_met_by(&rows);
        if rows.more { std::ops::ControlFlow::Break(()) } else { std::ops::ControlFlow::Continue(()) }
    })?;
    Ok(rows)
}
