//! The engine of one database directory: FoundationDB's architecture in miniature, in one process.
//!
//! Its interface to the client is [`Engine::read`], [`ReadView`], [`Engine::commit`] and
//! [`Engine::arm`].

mod admission;
mod arming;
pub mod atomic;
mod clock;
mod committer;
mod directory;
pub mod faults;
mod file_guard;
#[cfg(feature = "testing")]
pub mod holdings;
mod lock_holder;
pub mod mutation;
mod read_views;
mod resolver;
mod shared;
#[cfg(test)]
mod simulated;
pub(crate) mod storage;
mod watches;

use baton::thread::{self, JoinHandle};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use baton::{Condvar, Mutex};

use clock::Clock;
use committer::{Committer, NOT_STARTED};
#[cfg(feature = "testing")]
use faults::Faults;
#[cfg(feature = "testing")]
use holdings::Holdings;
use mutant::mutant;
use read_views::ReadViews;
use resolver::Resolver;
use shared::Shared;
use watches::Watches;

use crate::error::{Code, Result};
use crate::future::Future;

pub use committer::{CommitFailure, CommitPromise, CommitRequest, CommitResult, Committed};
pub(crate) use directory::Directory;
pub use directory::OpenError;
pub(crate) use file_guard::{FileId, Loss, LostFile, file_id};
pub use lock_holder::LockHolder;
pub(crate) use lock_holder::{LockState, probe_lock};
pub use read_views::ReadView;
pub use shared::EngineEnd;
pub use storage::Durability;
pub(crate) use storage::{StorageError, examine};

/// One open database directory. Dropping it calls [`Engine::close`].
pub struct Engine {
    shared: Arc<Shared>,
    directory: Arc<Directory>,
    latch: Arc<storage::FailureLatch>,
    committer: Mutex<Option<JoinHandle<()>>>,
}

/// A storage in use, its clock, and the first version with its ceiling.
type Begun = (storage::Storage, Clock, i64, Option<i64>);

impl Engine {
    /// Opens the directory for this process alone.
    pub fn open(path: &Path) -> Result<Engine, OpenError> {
        let (engine, committer) = Engine::prepare(path)?;
        engine.start(committer).map_err(|source| OpenError::Io { path: path.to_path_buf(), source })
    }

    /// Starts the committer's thread.
    fn start(self, committer: Committer) -> std::io::Result<Engine> {
        let thread =
            thread::Builder::new().name("fdb-committer".to_owned()).spawn(move || committer.run())?;
        // Before the first commit, so before the committer can call code that asks for it.
        let _ = self.shared.committer.set(thread.thread().id());
        *self.committer.lock() = Some(thread);
        Ok(self)
    }

    /// Opens the directory, and returns the engine with its committer, which has not started.
    fn prepare(path: &Path) -> Result<(Engine, Committer), OpenError> {
        #[cfg(feature = "testing")]
        let faults = Faults::from_environment()?;
        let directory = Directory::acquire(path)?;
        let opened = match Engine::begin(&directory, directory.open_storage()) {
            Err(OpenError::Storage { source, .. }) if source.is_full() => {
                crate::reports::report(&format!(
                    "{source}; until then the database can be read, and all commits are refused"
                ));
                Engine::begin(&directory, directory.open_read_only())?
            }
            opened => opened?,
        };
        let (engine, committer) = Engine::assemble(directory, opened);
        #[cfg(feature = "testing")]
        if let Some((faults, text)) = faults {
            crate::reports::report(&format!(
                "faults on purpose in {}: {}={text}",
                path.display(),
                faults::VARIABLE
            ));
            engine.set_faults(Some(faults));
        }
        Ok((engine, committer))
    }

    /// The engine of a storage that is in use, with its committer, which has not started.
    fn assemble(directory: Directory, begun: Begun) -> (Engine, Committer) {
        let (storage, mut clock, version, ceiling) = begun;
        let superversion = storage.superversion();
        clock.publish(version, ceiling);
        let shared = Arc::new(Shared {
            views: Mutex::new(ReadViews::new(clock, superversion)),
            queue: Mutex::default(),
            work: Condvar::new(),
            watches: Watches::default(),
            committer: OnceLock::new(),
            faults: Arc::default(),
            gate: Default::default(),
            poisoned: AtomicBool::new(false),
            is_reopening: AtomicBool::new(false),
            ended: Mutex::default(),
            has_ended: Condvar::new(),
        });
        let weak = Arc::downgrade(&shared);
        storage.latch().on_failure(move || Shared::wake_committer(&weak));
        let (directory, latch) = (Arc::new(directory), Arc::clone(storage.latch()));
        let resolver = Resolver::new(version);
        let committer = Committer::new(Arc::clone(&shared), storage, Arc::clone(&directory), resolver);
        (Engine { shared, directory, latch, committer: Mutex::default() }, committer)
    }

    /// Starts to use a storage. The first version is durable before any client sees it.
    fn begin(
        directory: &Directory,
        opened: Result<(storage::Storage, i64), OpenError>,
    ) -> Result<Begun, OpenError> {
        let (storage, ceiling) = opened?;
        let mut clock = Clock::new(ceiling, baton::system_now(), baton::now());
        let (version, ceiling) = clock.begin_batch(baton::now());
        let unusable = |source| OpenError::Storage { path: directory.data_file(), source };
        let first = storage::WriteBatch { version, ceiling, mutations: Vec::new() };
        storage.apply(first, Durability::Flushed).map_err(unusable)?;
        Ok((storage, clock, version, ceiling))
    }

    /// A read view at a new read version.
    pub fn read(&self) -> ReadView {
        let mut views = self.shared.views.lock();
        let view = views.read(baton::now());
        let wants_ceiling = views.clock().wants_ceiling();
        drop(views);
        if wants_ceiling {
            self.shared.queue.lock().raise_ceiling = true;
            self.shared.work.notify_one();
        }
        view.with_faults(&self.shared.faults)
    }

    /// A read view at a new read version that stays readable until it is dropped. Meanwhile redb
    /// does not reuse pages that later commits free. Fails with `OPERATION_FAILED` if there are
    /// `limits::MAX_PINNED_VIEWS` such views.
    pub fn pin(&self) -> Result<ReadView> {
        self.shared.views.lock().pin(baton::now())
    }

    /// A read view at a version chosen by the client.
    pub fn read_at(&self, version: i64) -> Result<ReadView> {
        let view = self.shared.views.lock().at(version, baton::now())?;
        Ok(view.with_faults(&self.shared.faults))
    }

    /// Queues a commit. Its promise is completed on the committer's thread, or at once if the
    /// engine accepts no commits.
    pub fn commit(&self, request: CommitRequest) {
        if let Some(request) = self.shared.gate.stop(request) {
            self.admit(request);
        }
    }

    fn admit(&self, request: CommitRequest) {
        let mut queue = self.shared.queue.lock();
        if queue.closed || self.shared.is_poisoned() {
            drop(queue);
            return request.promise.complete(Err(NOT_STARTED.into()));
        }
        if let Err(request) = queue.add(request) {
            drop(queue);
            return request.promise.complete(Err(Code::COMMIT_PROXY_MEMORY.into()));
        }
        drop(queue);
        if !mutant("commits-wake-nobody") {
            self.shared.work.notify_one();
        }
    }

    /// Waits for the engine's end, for at most `patience`.
    pub fn await_end(&self, patience: Duration) -> Option<EngineEnd> {
        let mut ended = self.shared.ended.lock();
        if ended.is_none() {
            self.shared.has_ended.wait_for(&mut ended, patience);
        }
        ended.clone()
    }

    /// Checks that the names of the directory and its files still lead to the open files. Otherwise
    /// the engine fails and acknowledges nothing more.
    pub fn check_files(&self) {
        if let Err(lost) = self.directory.check() {
            self.shared.is_reopening.store(!lost.is_final, Ordering::Release);
            // This wakes the committer, which poisons the engine.
            let _ = self.latch.file_lost(&lost.to_string());
        }
    }

    /// True if the name of a file does not lead to it any more. The engine then ends.
    pub fn has_lost_files(&self) -> bool {
        self.directory.lost().is_some()
    }

    /// True if the database is gone, so that this process cannot open it again.
    pub fn is_lost(&self) -> bool {
        // A write may have met the loss before a check did.
        let _ = self.directory.check_links();
        self.directory.lost().is_some_and(|lost| lost.is_final)
    }

    /// Holds a client's retry delay at the gate; `false` if the gate is open.
    pub fn stop_backoff(&self, future: &Arc<Future>) -> bool {
        self.shared.gate.stop_backoff(future)
    }
}

#[cfg(feature = "testing")]
impl Engine {
    /// Installs a plan of faults, or removes it with `None`.
    pub fn set_faults(&self, faults: Option<Faults>) {
        self.shared.faults.set(faults);
    }

    /// Has the committer do all work that is left for idle times, and tells what the engine holds
    /// then. `None` if the engine has ended.
    pub fn holdings_at_rest(&self) -> Option<Holdings> {
        let (sender, receiver) = baton::mpsc::sync_channel(1);
        {
            let mut queue = self.shared.queue.lock();
            if queue.closed {
                return None;
            }
            queue.examiners.push(sender);
        }
        self.shared.work.notify_one();
        receiver.recv().ok()
    }

    fn gate(&self) -> &faults::GateQueue {
        &self.shared.gate
    }
    /// Stops versions from advancing with time, or lets them advance again.
    fn hold_versions(&self, held: bool) {
        self.shared.views.lock().clock().hold(baton::now(), held);
    }

    /// Advances the version by this number.
    fn advance(&self, versions: i64) {
        self.shared.views.lock().clock().advance(versions);
    }
}

impl Engine {
    /// Accepts no more commits, closes the directory when the queued commits are answered, and then
    /// calls `last` on the committer's thread. Waits for that, unless it is called on that thread.
    /// Other holders of the engine can no longer use it.
    pub fn close(&self, last: impl FnOnce() + Send + 'static) {
        {
            let mut queue = self.shared.queue.lock();
            queue.closing = true;
            if !queue.closed {
                queue.on_closed.push(Box::new(last));
            }
        }
        self.shared.work.notify_one();
        self.shared.end(EngineEnd::Closed);
        let committer = self.committer.lock().take();
        if let Some(committer) = committer
            && committer.thread().id() != thread::current().id()
        {
            // The committer catches panics, so its thread does not panic.
            let _ = committer.join();
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.close(|| ());
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Engine")
    }
}

#[cfg(test)]
mod tests {
    use checked_pages::FailureSink;

    use super::*;
    use crate::files::{DATA_FILE, LOG_FILE};
    use bytes::Bytes;
    use std::sync::mpsc;

    pub(super) fn blind_write(promise: CommitPromise) -> CommitRequest {
        let mutation = mutation::Mutation::Set { key: b"k".to_vec(), value: b"v".to_vec() };
        CommitRequest {
            read_version: i64::MAX,
            reads: vec![],
            report_conflicts: false,
            writes: vec![],
            mutations: vec![mutation],
            durability: Durability::Flushed,
            fault: None,
            promise,
        }
    }

    fn answered(engine: &Engine) -> CommitResult {
        let (sender, receiver) = mpsc::channel();
        engine.commit(blind_write(CommitPromise::new(move |result| sender.send(result).unwrap())));
        receiver.recv_timeout(Duration::from_secs(60)).unwrap()
    }

    #[test]
    fn asynchronous_commits_survive_a_kill_and_precede_flushed_commits() {
        let dir = tempfile::tempdir().unwrap();
        let (engine, mut committer) = Engine::prepare(dir.path()).unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let request = |name: &'static str, durability| {
            let order = Arc::clone(&order);
            let answer = CommitPromise::new(move |result| order.lock().push((name, result.is_ok())));
            let set = mutation::Mutation::Set { key: name.as_bytes().to_vec(), value: b"v".to_vec() };
            engine.commit(CommitRequest { mutations: vec![set], durability, ..blind_write(answer) });
        };
        request("first", Durability::Flushed);
        request("asynchronous", Durability::Asynchronous);
        request("second", Durability::Flushed);
        let mut batches = Vec::new();
        for _ in 0..2 {
            let requests = committer.next_requests().unwrap();
            committer.commit(requests);
            batches.push(order.lock().drain(..).collect::<Vec<_>>());
        }
        assert_eq!(batches, [vec![("asynchronous", true)], vec![("first", true), ("second", true)]]);
        request("asynchronous", Durability::Asynchronous);
        request("last", Durability::Asynchronous);
        let requests = committer.next_requests().unwrap();
        committer.commit(requests);
        let copy = tempfile::tempdir().unwrap();
        for file in [DATA_FILE, LOG_FILE] {
            std::fs::copy(dir.path().join(file), copy.path().join(file)).unwrap();
        }
        let left = Engine::open(copy.path()).unwrap();
        assert_eq!(left.read().get(b"last").unwrap().as_deref(), Some(&b"v"[..]));
    }

    #[test]
    fn commits_wait_in_bounded_memory_and_further_ones_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (engine, mut committer) = Engine::prepare(dir.path()).unwrap();
        let (sender, receiver) = mpsc::channel();
        let send = |durability| {
            let sender = sender.clone();
            let answer = CommitPromise::new(move |result: CommitResult| {
                // The last commit is completed after the test has ended.
                let _ = sender.send(result.map(drop));
            });
            engine.commit(CommitRequest { durability, ..blind_write(answer) });
        };
        for durability in [Durability::Asynchronous, Durability::Flushed, Durability::Asynchronous] {
            send(durability);
        }
        let of_one = engine.shared.queue.lock().bytes / 3;
        assert_eq!(of_one, 2, "a key and a value of one byte");
        for left in [1, 0] {
            let requests = committer.next_requests().unwrap();
            committer.commit(requests);
            assert_eq!(engine.shared.queue.lock().bytes, left * of_one);
        }
        assert!(receiver.try_iter().take(3).all(|result| result.is_ok()));
        engine.shared.queue.lock().bytes = crate::limits::MAX_QUEUED_COMMIT_BYTES - 1;
        send(Durability::Flushed);
        assert!(receiver.try_recv().is_err(), "one commit always may wait");
        send(Durability::Flushed);
        assert_eq!(receiver.try_recv().unwrap(), Err(Code::COMMIT_PROXY_MEMORY.into()));
    }

    #[test]
    fn commits_that_are_all_refused_do_not_keep_an_earlier_one_from_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        let (engine, mut committer) = Engine::prepare(dir.path()).unwrap();
        let written = CommitPromise::new(|result| assert!(result.is_ok()));
        engine.commit(CommitRequest { durability: Durability::Asynchronous, ..blind_write(written) });
        let requests = committer.next_requests().unwrap();
        committer.commit(requests);
        let since = committer.unflushed.expect("it was not flushed");
        committer.unflushed = since.checked_sub(Duration::from_millis(10));
        let too_old = CommitPromise::new(|result| assert!(result.is_err()));
        engine.commit(CommitRequest { read_version: 0, ..blind_write(too_old) });
        let requests = committer.next_requests().unwrap();
        committer.commit(requests);
        assert_eq!(committer.unflushed, None);
    }

    #[test]
    fn an_idle_engine_remembers_no_writes() {
        let dir = tempfile::tempdir().unwrap();
        let (engine, mut committer) = Engine::prepare(dir.path()).unwrap();
        let writes = vec![(b"k".to_vec(), b"k\0".to_vec())];
        let answer = CommitPromise::new(|result| assert!(result.is_ok()));
        engine.commit(CommitRequest { writes, ..blind_write(answer) });
        let requests = committer.next_requests().unwrap();
        committer.commit(requests);
        assert!(committer.resolver.bytes() > 0);
        engine.advance(crate::limits::VERSION_WINDOW);
        (0..3).for_each(|_| committer.advance_idle_stage());
        assert_eq!(committer.resolver.bytes(), 0);
    }

    #[test]
    fn after_a_failed_write_nothing_is_committed_any_more() {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(dir.path()).unwrap();
        answered(&engine).unwrap();
        let watch = || {
            let future = Future::pending();
            engine.arm(b"k", Some(Bytes::from_static(b"v")), &future);
            future
        };
        let before = watch();
        assert!(!before.is_ready());
        let _ = engine.latch.file_lost("a test says so");
        assert_eq!(
            engine.await_end(Duration::from_secs(60)),
            Some(EngineEnd::Failed("a test says so".to_owned()))
        );
        let much_later = baton::now() + Duration::from_secs(3600);
        let version = engine.read().version;
        assert_eq!(engine.shared.views.lock().read(much_later).version, version, "they stand still");
        assert_eq!(answered(&engine), Err(NOT_STARTED.into()));
        assert_eq!(
            engine.read().get(b"k"),
            Err(Code::TRANSACTION_TOO_OLD),
            "it may be otherwise on the disk"
        );
        for watch in [before, watch()] {
            assert!(!watch.is_ready(), "the next engine may fire it");
        }
    }

    #[test]
    fn damage_found_by_a_read_ends_commits_even_if_all_commits_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (engine, mut committer) = Engine::prepare(dir.path()).unwrap();
        let (sender, receiver) = mpsc::channel();
        let too_old = CommitPromise::new(move |result| sender.send(result).unwrap());
        engine.commit(CommitRequest { read_version: 0, ..blind_write(too_old) });
        let _ = committer.storage.latch().damaged("a test says so");
        let requests = committer.next_requests().unwrap();
        committer.commit(requests);
        assert!(receiver.recv().unwrap().is_err());
        assert!(engine.shared.is_poisoned());
    }

    #[test]
    fn an_ended_or_cancelled_watch_leaves_other_watches_of_its_key() {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(dir.path()).unwrap();
        answered(&engine).unwrap();
        let watch = |baseline: &'static [u8]| {
            let future = Future::pending();
            engine.arm(b"k", Some(Bytes::from_static(baseline)), &future);
            future
        };
        let (kept, cancelled) = (watch(b"v"), watch(b"v"));
        assert!(watch(b"another value").result().is_ok());
        cancelled.fail(Code::OPERATION_CANCELLED);
        // The watch armed next cannot read the key.
        engine.shared.views.lock().close();
        assert_eq!(watch(b"v").result().err(), Some(Code::TRANSACTION_TOO_OLD));
        assert!(!kept.is_ready());
        assert_eq!(engine.shared.watches.count(b"k"), 1, "the one that is left");
    }

    #[test]
    fn a_dropped_commit_promise_reports_an_unknown_outcome() {
        let (sender, receiver) = mpsc::channel();
        drop(blind_write(CommitPromise::new(move |result| sender.send(result).unwrap())));
        assert_eq!(receiver.recv().unwrap(), Err(Code::COMMIT_UNKNOWN_RESULT.into()));
    }

    #[test]
    fn a_directory_can_be_opened_again_and_its_versions_go_on() {
        let dir = tempfile::tempdir().unwrap();
        let first = Engine::open(dir.path()).unwrap();
        assert!(matches!(Engine::open(dir.path()), Err(OpenError::Held { .. })));
        let before = answered(&first).unwrap();
        let view = first.read();
        drop(first);
        assert_eq!(view.get(b"k"), Err(Code::TRANSACTION_TOO_OLD), "the file may be another's by now");
        let again = Engine::open(dir.path()).unwrap();
        let after = answered(&again).unwrap();
        assert!(after.version > before.version);
        assert_eq!(again.read().get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
    }
}
