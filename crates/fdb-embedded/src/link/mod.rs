//! The link between this process and a database directory: the process is its host or a guest.
//!
//! The first process to open a directory locks it, opens the engine and listens on a socket in the
//! directory: it is the *host*. Other processes find the lock taken and connect: they are *guests*.
//! When the host ends in any way, the system releases its lock and closes its connections. Each
//! guest then tries to get the lock. One succeeds and becomes the host, and the others connect to
//! it. This is a *takeover*.
//!
//! To a guest, a takeover is like a recovery of a FoundationDB cluster. Reads of older versions
//! fail with `transaction_too_old`, commits in flight fail with `commit_unknown_result`, and
//! watches are armed again at the new host. A commit that failed this way is no longer in flight:
//! the old host has released the lock, or it still runs and has ended this one connection, after it
//! answered the commits that came over it. A guest that gives up its connection stops sending and
//! waits for that end.
//!
//! A host that is stopped (SIGSTOP) keeps the lock. Its guests, and processes that open the
//! directory, wait until it continues, limited by their transactions' timeouts.
//!
//! A host whose storage fails steps down as if it had ended, and then takes part in the takeover.

mod address;
mod attempt;
mod commit;
#[cfg(feature = "testing")]
mod delay;
mod guest;
mod host;
mod host_monitor;
mod message;
mod remote;
mod session;
mod storage_failures;
mod stream;
mod takeover;
#[cfg(feature = "testing")]
pub mod testing;
mod view;
mod wire;

#[cfg(test)]
mod tests;

use baton::thread;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, OnceLock, Weak};
use std::time::Duration;

use baton::{Mutex, RwLock};
use bytes::Bytes;
use mutant::mutant;

use attempt::{AttemptError, NewRole, RetryPolicy};
use guest::{ConnectError, Guest};
use host::Host;
use message::ViewVersion;
use storage_failures::StorageFailures;

#[cfg(feature = "testing")]
use crate::engine::holdings::Holdings;
use crate::engine::{CommitPromise, Engine, FileId, OpenError};
use crate::error::{Code, Result};
use crate::fork::{self, ForkedError};
use crate::future::Future;

pub use address::socket;
pub use commit::{CommitBase, CommitMessage};
pub use remote::Continuation;
pub use view::View;

/// The role of this process for the directory.
enum Role {
    Host {
        engine: Arc<Engine>,
        host: Host,
    },
    Guest(Arc<Guest>),
    /// The host is gone and the next is not known yet. Holds callbacks to call when it is.
    TakingOver(Mutex<Vec<Continuation>>),
    /// The directory cannot be opened: not at the moment, or never again by this link.
    Failed(Code),
    /// The network has been stopped, so nothing is answered any more.
    Closed(Mutex<Vec<Continuation>>),
}

/// A copy of the role, without its lock.
enum CurrentRole {
    Host(Arc<Engine>),
    Guest(Arc<Guest>),
    TakingOver,
    Failed(Code),
}

/// An armed watch, kept to be armed again after a takeover.
struct Watch {
    key: Vec<u8>,
    baseline: Option<Bytes>,
    future: Arc<Future>,
}

/// The link of this process to one directory.
pub struct Link {
    directory: PathBuf,
    role: RwLock<Role>,
    watches: Mutex<HashMap<u64, Watch>>,
    sequence: AtomicU64,
    /// The data file of this link. Another file in its place is another database.
    database: OnceLock<FileId>,
    storage_failures: Mutex<StorageFailures>,
    /// The link has failed permanently. The next opening of the directory makes a new one.
    has_failed_permanently: AtomicBool,
}

/// The links of this process, by canonical directory.
static OPEN: LazyLock<Mutex<HashMap<PathBuf, Weak<Link>>>> = LazyLock::new(Mutex::default);
/// Held while a directory is opened. One lock for each, because opening may take long and must not
/// block others.
static OPEN_LOCKS: LazyLock<Mutex<HashMap<PathBuf, Weak<OpenLock>>>> = LazyLock::new(Mutex::default);

type OpenLock = Mutex<()>;

/// How long opening waits for the answer of a host.
const OPENING_WELCOME: Duration = Duration::from_secs(1);
/// How long opening waits while hosts start or stop.
const OPENING_PATIENCE: Duration = Duration::from_secs(10);

impl Link {
    /// Opens a link to a directory, or returns the existing one.
    pub fn open(path: &Path) -> Result<Arc<Link>, OpenError> {
        if fork::is_forked() {
            return Err(OpenError::Forked(ForkedError));
        }
        let (lock, deadline) = (open_lock(path), baton::now() + OPENING_PATIENCE);
        loop {
            let mine = lock.lock();
            let found = lookup(&OPEN.lock(), path);
            let try_once =
                || attempt::attempt(path, OPENING_WELCOME).and_then(|at| Link::with_role(path, at));
            let opened = found.map_or_else(try_once, Ok);
            let opened = match opened {
                // Transactions wait within their timeouts, as with a cluster that cannot be
                // reached.
                Err(AttemptError { retry: RetryPolicy::WhenHostResumes, .. }) => {
                    Link::to_unresponsive_host(path)
                }
                opened => opened,
            };
            drop(mine);
            let Err(error) = opened else { return opened.map_err(|error| error.error) };
            let is_held = matches!(error.error, OpenError::Held { .. });
            if !is_held || baton::now() >= deadline {
                return Err(error.error);
            }
            thread::sleep(attempt::FIRST_RETRY_DELAY);
        }
    }

    /// A link that leads nowhere.
    pub fn failed(code: Code) -> Arc<Link> {
        let link = Link::new(PathBuf::new());
        *link.role.write() = Role::Failed(code);
        link
    }

    /// A new link with this role.
    fn with_role(path: &Path, role: NewRole) -> Result<Arc<Link>, AttemptError> {
        let link = Link::new(path.canonicalize().unwrap_or_else(|_| path.to_path_buf()));
        link.assume_role(role)?;
        let mut open = OPEN.lock();
        if let Some(other) = lookup(&open, path) {
            // The directory may have been opened by another name before it existed.
            return Ok(other);
        }
        open.retain(|_, link| link.strong_count() > 0);
        open.insert(link.directory.clone(), Arc::downgrade(&link));
        Ok(link)
    }

    /// A link to a directory whose host does not answer. It keeps trying in the background.
    fn to_unresponsive_host(path: &Path) -> Result<Arc<Link>, AttemptError> {
        let link = Link::new(path.canonicalize().unwrap_or_else(|_| path.to_path_buf()));
        crate::reports::report(&format!(
            "the process that hosts the database at {} does not answer (is it stopped?); transactions wait for it",
            path.display()
        ));
        let weak = Arc::downgrade(&link);
        let run_takeover = move || Link::run_takeover(&weak, None);
        thread::Builder::new().name("fdb-guest-in".to_owned()).spawn(run_takeover).map_err(|source| {
            let error = OpenError::Io { path: path.to_path_buf(), source };
            AttemptError { error, retry: RetryPolicy::Never }
        })?;
        OPEN.lock().insert(link.directory.clone(), Arc::downgrade(&link));
        Ok(link)
    }

    fn new(directory: PathBuf) -> Arc<Link> {
        let role = RwLock::new(Role::TakingOver(Mutex::default()));
        let (watches, database, storage_failures, has_failed_permanently) = Default::default();
        Arc::new(Link {
            directory,
            role,
            watches,
            sequence: AtomicU64::new(1),
            database,
            storage_failures,
            has_failed_permanently,
        })
    }

    /// The engine of the directory, if this process hosts it.
    #[cfg(feature = "testing")]
    pub fn hosted(path: &Path) -> Option<Arc<Engine>> {
        if fork::is_forked() {
            return None;
        }
        let link = lookup(&OPEN.lock(), path)?;
        match link.current_role() {
            CurrentRole::Host(engine) => Some(engine),
            _ => None,
        }
    }

    /// What this process holds as the host of the directory. The engine does its idle work first.
    #[cfg(feature = "testing")]
    pub fn holdings_at_rest(path: &Path) -> Option<Holdings> {
        let holdings = Link::hosted(path)?.holdings_at_rest()?;
        let link = lookup(&OPEN.lock(), path)?;
        let guests = match &*link.role.read() {
            Role::Host { host, .. } => host.guests(),
            _ => 0,
        };
        Some(Holdings { guests, kept_watches: link.watches.lock().len(), ..holdings })
    }

    /// The number of links that this process has.
    #[cfg(feature = "testing")]
    pub fn count() -> usize {
        OPEN.lock().values().filter(|link| link.strong_count() > 0).count()
    }

    /// The canonical path of the directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The current role. The role's lock is not held while callers act, because their calls may
    /// come back to this link.
    fn current_role(&self) -> CurrentRole {
        if fork::is_forked() {
            return CurrentRole::Failed(fork::refuse());
        }
        match &*self.role.read() {
            Role::Host { engine, .. } => CurrentRole::Host(Arc::clone(engine)),
            Role::Guest(guest) => CurrentRole::Guest(Arc::clone(guest)),
            Role::TakingOver(_) | Role::Closed(_) => CurrentRole::TakingOver,
            Role::Failed(code) => CurrentRole::Failed(*code),
        }
    }

    /// Closes all directories, after the network has stopped.
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

    /// A new view at `version`, or at the newest one. Fails with [`Code::MISSING`] during a
    /// takeover.
    pub fn view(&self, version: Option<i64>) -> Result<View> {
        match self.current_role() {
            CurrentRole::Host(engine) => Ok(View::Local(match version {
                Some(version) => engine.read_at(version)?,
                None => engine.read(),
            })),
            CurrentRole::Guest(guest) => {
                Ok(View::Remote(guest.open_view(version.map_or(ViewVersion::Newest, ViewVersion::Version))))
            }
            CurrentRole::TakingOver => Err(Code::MISSING),
            CurrentRole::Failed(code) => Err(code),
        }
    }

    /// A view at the newest version that stays readable until it is dropped. Fails as
    /// [`Link::view`] does, and with [`Code::OPERATION_FAILED`] if there are too many.
    pub fn pin(&self) -> Result<View> {
        match self.current_role() {
            CurrentRole::Host(engine) => Ok(View::Local(engine.pin()?)),
            CurrentRole::Guest(guest) => Ok(View::Remote(guest.open_view(ViewVersion::Pinned))),
            CurrentRole::TakingOver => Err(Code::MISSING),
            CurrentRole::Failed(code) => Err(code),
        }
    }

    /// A new read version, if this process is the host.
    pub fn host_read_version(&self) -> Option<i64> {
        match self.current_role() {
            CurrentRole::Host(engine) => Some(engine.read().version),
            CurrentRole::Guest(_) | CurrentRole::TakingOver | CurrentRole::Failed(_) => None,
        }
    }

    /// True if a test's gate holds the client's retry delay.
    pub fn holds_backoff(&self, future: &Arc<Future>) -> bool {
        matches!(self.current_role(), CurrentRole::Host(engine) if engine.stop_backoff(future))
    }

    /// Calls `then` at once, or after the takeover.
    pub fn when_role_known(&self, then: Continuation) {
        if !fork::is_forked()
            && let Role::TakingOver(waiting) | Role::Closed(waiting) = &*self.role.read()
        {
            waiting.lock().push(then);
            return;
        }
        then();
    }

    /// Commits at the host. The promise is completed later, on any thread.
    pub fn commit(self: &Arc<Self>, commit: CommitMessage<View>, answer: CommitPromise) {
        match self.current_role() {
            CurrentRole::Host(engine) => commit_as_host(&engine, commit, answer),
            CurrentRole::Guest(guest) => self.commit_as_guest(&guest, commit, answer),
            CurrentRole::Failed(code) => answer.complete(Err(code.into())),
            CurrentRole::TakingOver => {
                let link = Arc::clone(self);
                self.when_role_known(Box::new(move || link.commit(commit, answer)));
            }
        }
    }

    fn commit_as_guest(
        self: &Arc<Self>,
        guest: &Arc<Guest>,
        commit: CommitMessage<View>,
        answer: CommitPromise,
    ) {
        let base = match &commit.base {
            CommitBase::Newest => Some(CommitBase::Newest),
            CommitBase::Version(version) => Some(CommitBase::Version(*version)),
            CommitBase::View(view) if view.is_replaceable() => Some(CommitBase::Newest),
            CommitBase::View(View::Remote(view)) => guest.owns(view),
            CommitBase::View(View::Local(_)) => None,
        };
        let Some(base) = base else { return answer.complete(Err(Code::TRANSACTION_TOO_OLD.into())) };
        let (link, own_base) = (Arc::clone(self), commit.base.clone());
        guest.commit(commit.with_base(base), answer, move |commit, answer| {
            if let CommitBase::View(View::Remote(view)) = &own_base {
                view.lost();
            }
            link.commit(commit.with_base(own_base), answer);
        });
    }

    /// Arms a watch: `future` succeeds as soon as the value of `key` is not `baseline`.
    pub fn arm(self: &Arc<Self>, key: &[u8], baseline: Option<Bytes>, future: &Arc<Future>) {
        if fork::is_forked() {
            future.fail(fork::refuse());
            return;
        }
        let id = self.sequence.fetch_add(1, Ordering::Relaxed);
        let watch = Watch { key: key.to_vec(), baseline: baseline.clone(), future: Arc::clone(future) };
        self.watches.lock().insert(id, watch);
        // A takeover from here on finds the watch in `watches`. Arming it twice does no harm.
        match self.current_role() {
            CurrentRole::Host(engine) => engine.arm(key, baseline, future),
            CurrentRole::Guest(guest) => guest.arm(id, key, baseline),
            CurrentRole::Failed(code) => {
                future.fail(code);
            }
            CurrentRole::TakingOver => {}
        }
        let link = Arc::downgrade(self);
        future.hook(Box::new(move || link.upgrade().into_iter().for_each(|link| link.forget(id))));
    }

    /// Forgets a watch that has ended.
    fn forget(&self, id: u64) {
        if !fork::is_forked()
            && !mutant("ended-watches-are-kept")
            && self.watches.lock().remove(&id).is_some()
            && let CurrentRole::Guest(guest) = self.current_role()
        {
            guest.disarm(id);
        }
    }
}

impl Role {
    /// Ends the role. Requests in flight are still answered.
    fn end(self) {
        if fork::is_forked() {
            // The host's threads and socket belong to the parent process.
            return std::mem::forget(self);
        }
        match self {
            Role::Host { engine, host } => {
                let connections = host.stop();
                // The connections stay open until requests in flight are answered.
                engine.close(move || drop(connections));
            }
            Role::Guest(guest) => guest.close(),
            Role::TakingOver(_) | Role::Failed(_) | Role::Closed(_) => {}
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

/// What a process that has a directory open does with a new connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It answers, or refuses this process.
    Answers,
    /// It accepts the connection but does not answer.
    Silent,
    /// No process listens.
    Absent,
}

/// Connects to the host of a directory, and waits up to `patience` until it listens and answers.
pub fn probe(directory: &Path, patience: Duration) -> Answer {
    let deadline = baton::now() + patience;
    loop {
        match Guest::connect(directory, deadline.saturating_duration_since(baton::now())) {
            Ok(guest) => {
                guest.close();
                return Answer::Answers;
            }
            Err(ConnectError::Absent) if baton::now() < deadline => {
                thread::sleep(attempt::FIRST_RETRY_DELAY);
            }
            Err(ConnectError::Absent) => return Answer::Absent,
            Err(ConnectError::Silent) => return Answer::Silent,
            Err(_) => return Answer::Answers,
        }
    }
}

fn open_lock(path: &Path) -> Arc<OpenLock> {
    // A directory that does not exist yet has no canonical path.
    let directory = path.canonicalize().or_else(|_| std::path::absolute(path));
    let directory = directory.unwrap_or_else(|_| path.to_path_buf());
    let mut locks = OPEN_LOCKS.lock();
    locks.retain(|_, lock| lock.strong_count() > 0);
    if let Some(lock) = locks.get(&directory).and_then(Weak::upgrade) {
        return lock;
    }
    let lock = Arc::default();
    locks.insert(directory, Arc::downgrade(&lock));
    lock
}

fn lookup(open: &HashMap<PathBuf, Weak<Link>>, path: &Path) -> Option<Arc<Link>> {
    open.get(&path.canonicalize().ok()?)?
        .upgrade()
        .filter(|link| !link.has_failed_permanently.load(Ordering::Acquire))
}

fn commit_as_host(engine: &Engine, commit: CommitMessage<View>, answer: CommitPromise) {
    let read_version = match &commit.base {
        CommitBase::Newest => Ok(engine.read().version),
        CommitBase::Version(version) => Ok(*version),
        CommitBase::View(View::Local(view)) => Ok(view.version),
        // A view of an earlier host.
        CommitBase::View(view) if view.is_replaceable() => Ok(engine.read().version),
        CommitBase::View(View::Remote(_)) => Err(Code::TRANSACTION_TOO_OLD),
    };
    match read_version {
        Ok(read_version) => engine.commit(commit.request(read_version, answer)),
        Err(code) => answer.complete(Err(code.into())),
    }
}
