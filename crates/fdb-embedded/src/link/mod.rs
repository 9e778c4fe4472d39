//! The link between this process and a database directory: it hosts the engine, or is a guest of the process that does.
//!
//! | file | what |
//! |---|---|
//! | `host`, `session` | serving the other processes, one session each |
//! | `guest`, `remote` | being served: the connection, and views whose data arrives over it |
//! | `takeover` | becoming one or the other, at first and whenever the host goes away |
//! | `warden` | giving the role of the host up when its storage fails or its files are gone |
//! | `message`, `commit`, `wire` | what is said on a connection, byte by byte |
//! | `stream`, `address` | frames over a Unix socket, and where that is |
//!
//! The first process to open a directory takes its lock, opens the engine and listens on a socket beside the data.
//! Others find the lock taken and connect. When the host ends, however it does, the system releases the lock and closes
//! its connections; each guest then tries for the lock, one gets it and hosts, and the others connect to that one.
//!
//! What a guest loses with its host is what FoundationDB loses in a recovery. Reads of older versions fail with
//! `transaction_too_old`, commits under way with `commit_unknown_result`, and watches are armed again with the value
//! that their transaction saw. Such a commit is not in flight any more: the old host is dead, or has let go of the lock
//! by the time a new one answers, or it lives and has ended this one connection, which it does when the commits that
//! came over it are settled. A guest that gives its connection up stops sending and waits for that end.
//!
//! A host that is stopped but alive keeps the lock: its guests, and processes that open the directory meanwhile, wait, under their
//! transactions' timeouts, until it continues.
//!
//! A host whose storage fails gives up its role as if it had ended, and then tries for the lock with all others.

mod address;
mod commit;
mod guest;
mod host;
mod message;
mod remote;
mod session;
mod stream;
mod takeover;
mod view;
mod warden;
mod wire;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, OnceLock, Weak};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};

use guest::{ConnectError, Guest};
use host::Host;
use message::At;
use takeover::{Hope, Place, Refused, Setbacks};

use crate::engine::{CommitPromise, Engine, FileId, OpenError};
use crate::error::{Code, Result};
use crate::fork::{self, Forked};
use crate::future::Future;

pub use commit::{Base, Commit};
pub use remote::Then;
pub use view::View;

/// What this process is to the directory.
enum Role {
    Host {
        engine: Arc<Engine>,
        host: Host,
    },
    Guest(Arc<Guest>),
    /// The host is gone, and who follows is being found out. What is called when that is known waits here.
    Between(Mutex<Vec<Then>>),
    /// The directory cannot be opened: not at the moment, or not by this link any more.
    Failed(Code),
    /// The network has been stopped: nothing is answered any more.
    Closed(Mutex<Vec<Then>>),
}

/// What this process is at the moment, without the lock.
enum Now {
    Host(Arc<Engine>),
    Guest(Arc<Guest>),
    Unsettled,
    Failed(Code),
}

/// A watch that is armed at an engine, kept to be armed at the next one.
struct Watch {
    key: Vec<u8>,
    baseline: Option<Bytes>,
    future: Arc<Future>,
}

/// This process's link to one directory.
pub struct Link {
    directory: PathBuf,
    role: RwLock<Role>,
    watches: Mutex<HashMap<u64, Watch>>,
    sequence: AtomicU64,
    /// Which data file this link has worked on: another one in its place is another database.
    database: OnceLock<FileId>,
    setbacks: Mutex<Setbacks>,
    /// It has failed for good: the next opening of the directory makes another link.
    is_over: AtomicBool,
}

/// The links of this process, by canonical directory.
static OPEN: LazyLock<Mutex<HashMap<PathBuf, Weak<Link>>>> = LazyLock::new(Mutex::default);
/// Whose turn it is to open a directory: that may take long, and must not hold up who opens another.
static TURNS: LazyLock<Mutex<HashMap<PathBuf, Weak<Turn>>>> = LazyLock::new(Mutex::default);

type Turn = Mutex<()>;

/// How long opening waits for a host to answer.
const OPENING_WELCOME: Duration = Duration::from_secs(1);
/// How long opening waits for a host that is coming or going.
const OPENING_PATIENCE: Duration = Duration::from_secs(10);

impl Link {
    /// Links this process to a directory, or returns the link that it has.
    pub fn open(path: &Path) -> Result<Arc<Link>, OpenError> {
        if fork::is_forked() {
            return Err(OpenError::Forked(Forked));
        }
        let (turn, deadline) = (turn(path), Instant::now() + OPENING_PATIENCE);
        loop {
            let mine = turn.lock();
            let found = lookup(&OPEN.lock(), path);
            let try_once = || takeover::attempt(path, OPENING_WELCOME).and_then(|at| Link::at(path, at));
            let opened = found.map_or_else(try_once, Ok);
            let opened = match opened {
                // As with a cluster that cannot be reached: transactions wait, as long as their timeouts let them.
                Err(Refused { hope: Hope::Stopped, .. }) => Link::to_stopped(path),
                opened => opened,
            };
            drop(mine);
            let Err(refused) = opened else { return opened.map_err(|refused| refused.error) };
            let is_held = matches!(refused.error, OpenError::Held { .. });
            if !is_held || Instant::now() >= deadline {
                return Err(refused.error);
            }
            thread::sleep(takeover::PAUSE);
        }
    }

    /// A link that takes its place.
    fn at(path: &Path, place: Place) -> Result<Arc<Link>, Refused> {
        let link = Link::new(path.canonicalize().unwrap_or_else(|_| path.to_path_buf()));
        link.settle(place)?;
        let mut open = OPEN.lock();
        if let Some(other) = lookup(&open, path) {
            // By another name that the directory had before it was made, say.
            return Ok(other);
        }
        open.retain(|_, link| link.strong_count() > 0);
        open.insert(link.directory.clone(), Arc::downgrade(&link));
        Ok(link)
    }

    /// A link to a directory whose host does not answer. It goes on trying.
    fn to_stopped(path: &Path) -> Result<Arc<Link>, Refused> {
        let link = Link::new(path.canonicalize().unwrap_or_else(|_| path.to_path_buf()));
        crate::report(&format!(
            "the process that hosts the database at {} does not answer (is it stopped?); transactions wait for it",
            path.display()
        ));
        let weak = Arc::downgrade(&link);
        let seek = move || Link::seek(&weak, None);
        thread::Builder::new().name("fdb-guest-in".to_owned()).spawn(seek).map_err(|source| {
            let error = OpenError::Io { path: path.to_path_buf(), source };
            Refused { error, hope: Hope::None }
        })?;
        OPEN.lock().insert(link.directory.clone(), Arc::downgrade(&link));
        Ok(link)
    }

    fn new(directory: PathBuf) -> Arc<Link> {
        let role = RwLock::new(Role::Between(Mutex::default()));
        let (watches, database, setbacks, is_over) = Default::default();
        Arc::new(Link { directory, role, watches, sequence: AtomicU64::new(1), database, setbacks, is_over })
    }

    /// The engine of the directory, if this process hosts it.
    pub fn hosted(path: &Path) -> Option<Arc<Engine>> {
        if fork::is_forked() {
            return None;
        }
        let link = lookup(&OPEN.lock(), path)?;
        match link.now() {
            Now::Host(engine) => Some(engine),
            _ => None,
        }
    }

    /// The directory, by a name that does not depend on where this process is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// No caller holds the lock of the role while it does anything else: what it does may come back to this link.
    fn now(&self) -> Now {
        if fork::is_forked() {
            return Now::Failed(fork::refuse());
        }
        match &*self.role.read() {
            Role::Host { engine, .. } => Now::Host(Arc::clone(engine)),
            Role::Guest(guest) => Now::Guest(Arc::clone(guest)),
            Role::Between(_) | Role::Closed(_) => Now::Unsettled,
            Role::Failed(code) => Now::Failed(*code),
        }
    }

    /// Lets go of all directories: the network has stopped, so this process can answer nobody any more.
    pub fn close_all() {
        if fork::is_forked() {
            return;
        }
        let open = std::mem::take(&mut *OPEN.lock());
        for link in open.into_values().filter_map(|link| link.upgrade()) {
            let role = std::mem::replace(&mut *link.role.write(), Role::Closed(Mutex::default()));
            role.end();
        }
    }

    /// A new view at `version`, or at the newest. Fails with [`Code::MISSING`] while there is no host.
    pub fn view(&self, version: Option<i64>) -> Result<View> {
        match self.now() {
            Now::Host(engine) => Ok(View::Here(match version {
                Some(version) => engine.read_at(version)?,
                None => engine.read(),
            })),
            Now::Guest(guest) => Ok(View::There(guest.open_view(version.map_or(At::Newest, At::Version)))),
            Now::Unsettled => Err(Code::MISSING),
            Now::Failed(code) => Err(code),
        }
    }

    /// A view at the newest version that can be read until it is dropped. Fails as [`Link::view`] does, and with
    /// [`Code::OPERATION_FAILED`] if there are too many of them.
    pub fn pin(&self) -> Result<View> {
        match self.now() {
            Now::Host(engine) => Ok(View::Here(engine.pin()?)),
            Now::Guest(guest) => Ok(View::There(guest.open_view(At::Pinned))),
            Now::Unsettled => Err(Code::MISSING),
            Now::Failed(code) => Err(code),
        }
    }

    /// A new read version, if the engine is this process's.
    pub fn version_here(&self) -> Option<i64> {
        match self.now() {
            Now::Host(engine) => Some(engine.read().version),
            Now::Guest(_) | Now::Unsettled | Now::Failed(_) => None,
        }
    }

    /// Whether a test keeps a client, which is to wait before it tries again, at its gate.
    pub fn stops_backoff(&self, future: &Arc<Future>) -> bool {
        matches!(self.now(), Now::Host(engine) if engine.stop_backoff(future))
    }

    /// Calls `then` when there is a host, or it is known that there will be none.
    pub fn when_settled(&self, then: Then) {
        if !fork::is_forked()
            && let Role::Between(waiting) | Role::Closed(waiting) = &*self.role.read()
        {
            waiting.lock().push(then);
            return;
        }
        then();
    }

    /// Hands a commit to the host; it is answered later, on whatever thread the answer comes by.
    pub fn commit(self: &Arc<Self>, commit: Commit<View>, answer: CommitPromise) {
        match self.now() {
            Now::Host(engine) => commit_here(&engine, commit, answer),
            Now::Guest(guest) => commit_there(&guest, commit, answer),
            Now::Failed(code) => answer.complete(Err(code.into())),
            Now::Unsettled => {
                let link = Arc::clone(self);
                self.when_settled(Box::new(move || link.commit(commit, answer)));
            }
        }
    }

    /// Arms a watch: `future` succeeds when the value of `key` is, or becomes, another than `baseline`.
    pub fn arm(self: &Arc<Self>, key: &[u8], baseline: Option<Bytes>, future: &Arc<Future>) {
        if fork::is_forked() {
            future.fail(fork::refuse());
            return;
        }
        let id = self.sequence.fetch_add(1, Ordering::Relaxed);
        let watch = Watch { key: key.to_vec(), baseline: baseline.clone(), future: Arc::clone(future) };
        self.watches.lock().insert(id, watch);
        // Whoever becomes the host from here on finds the watch above; being armed twice does it no harm.
        match self.now() {
            Now::Host(engine) => engine.arm(key, baseline, future),
            Now::Guest(guest) => guest.arm(id, key, baseline),
            Now::Failed(code) => {
                future.fail(code);
            }
            Now::Unsettled => {}
        }
        let link = Arc::downgrade(self);
        future.hook(Box::new(move || link.upgrade().into_iter().for_each(|link| link.forget(id))));
    }

    /// The client has no more use for a watch.
    fn forget(&self, id: u64) {
        if !fork::is_forked()
            && self.watches.lock().remove(&id).is_some()
            && let Now::Guest(guest) = self.now()
        {
            guest.disarm(id);
        }
    }
}

impl Role {
    /// Ends what this process is to the directory. What is under way is still answered.
    fn end(self) {
        if fork::is_forked() {
            // What is ended here is the parent's: its threads, and the names in the directory.
            return std::mem::forget(self);
        }
        match self {
            Role::Host { engine, host } => {
                let farewell = host.stop();
                // The answers to what is under way go out with the farewell.
                engine.close(move || drop(farewell));
            }
            Role::Guest(guest) => guest.close(),
            Role::Between(_) | Role::Failed(_) | Role::Closed(_) => {}
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        std::mem::replace(self.role.get_mut(), Role::Closed(Mutex::default())).end();
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Link({})", self.directory.display())
    }
}

/// Whether the process that hosts a directory takes connections and does not answer one within this time.
pub fn is_silent(directory: &Path, patience: Duration) -> bool {
    match Guest::connect(directory, patience) {
        Ok(guest) => {
            guest.close();
            false
        }
        Err(error) => matches!(error, ConnectError::Silent),
    }
}

fn turn(path: &Path) -> Arc<Turn> {
    // One that is yet to be made has no canonical path.
    let directory = path.canonicalize().or_else(|_| std::path::absolute(path));
    let directory = directory.unwrap_or_else(|_| path.to_path_buf());
    let mut turns = TURNS.lock();
    turns.retain(|_, turn| turn.strong_count() > 0);
    if let Some(turn) = turns.get(&directory).and_then(Weak::upgrade) {
        return turn;
    }
    let turn = Arc::default();
    turns.insert(directory, Arc::downgrade(&turn));
    turn
}

fn lookup(open: &HashMap<PathBuf, Weak<Link>>, path: &Path) -> Option<Arc<Link>> {
    open.get(&path.canonicalize().ok()?)?.upgrade().filter(|link| !link.is_over.load(Ordering::Acquire))
}

fn commit_here(engine: &Engine, commit: Commit<View>, answer: CommitPromise) {
    let read_version = match &commit.base {
        Base::Now => Ok(engine.read().version),
        Base::Version(version) => Ok(*version),
        Base::View(View::Here(view)) => Ok(view.version),
        // Of a host that is gone.
        Base::View(View::There(_)) => Err(Code::TRANSACTION_TOO_OLD),
    };
    match read_version {
        Ok(read_version) => engine.commit(commit.request(read_version, answer)),
        Err(code) => answer.complete(Err(code.into())),
    }
}

fn commit_there(guest: &Arc<Guest>, commit: Commit<View>, answer: CommitPromise) {
    let base = match &commit.base {
        Base::Now => Some(Base::Now),
        Base::Version(version) => Some(Base::Version(*version)),
        Base::View(View::There(view)) => guest.owns(view),
        Base::View(View::Here(_)) => None,
    };
    match base {
        Some(base) => guest.commit(commit.with_base(base), answer),
        None => answer.complete(Err(Code::TRANSACTION_TOO_OLD.into())),
    }
}
