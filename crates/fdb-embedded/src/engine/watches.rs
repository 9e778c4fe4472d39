//! Armed watches: each waits for the value of its key to change.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound::{Excluded, Included};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use super::mutation::Mutation;
use super::read_views::ReadView;
use super::{Engine, Shared};
use crate::error::{Code, Result};
use crate::future::{Future, Output};
use crate::limits::MAX_WATCH_BYTES;

/// An armed watch.
#[derive(Debug)]
struct ArmedWatch {
    /// The value that the transaction saw. The watch fires when the key has another value.
    baseline: Option<Bytes>,
    future: Arc<Future>,
}

/// Approximate bytes of a watch in addition to its key and baseline.
const WATCH_OVERHEAD: usize = 256;

impl ArmedWatch {
    /// Bytes that the watch of `key` counts for.
    fn len(&self, key: &[u8]) -> usize {
        WATCH_OVERHEAD + key.len() + self.baseline.as_ref().map_or(0, Bytes::len)
    }
}

/// Identifies an armed watch of a key.
pub type WatchId = u64;

#[derive(Debug, Default)]
struct WatchTable {
    by_key: BTreeMap<Vec<u8>, HashMap<WatchId, ArmedWatch>>,
    /// Bytes of all watches.
    bytes: usize,
    sequence: WatchId,
}

/// Watches that were armed on the committer's thread, and whose baseline another thread still has
/// to compare.
#[derive(Debug, Default)]
struct DeferredComparisons {
    waiting: VecDeque<(Vec<u8>, WatchId)>,
    /// Bytes of the keys.
    bytes: usize,
    /// A thread that compares them is running.
    has_thread: bool,
}

/// All armed watches of a database directory, by key.
#[derive(Debug, Default)]
pub struct Watches {
    table: Mutex<WatchTable>,
    deferred: Mutex<DeferredComparisons>,
    /// Signals a new entry in `deferred`, or the engine's end.
    deferred_wake: Condvar,
}

impl Watches {
    /// Adds the armed watches.
    #[cfg(feature = "testing")]
    pub fn add_holdings(&self, holdings: &mut super::holdings::Holdings) {
        let table = self.table.lock();
        holdings.watches = (table.by_key.values().map(HashMap::len).sum(), table.bytes);
    }
}

/// How long that thread waits for another watch before it ends.
const DEFERRED_THREAD_LINGER: Duration = Duration::from_secs(10);

impl Engine {
    /// Arms a watch: `future` succeeds as soon as the value of `key` is not `baseline`. Fails with
    /// `TOO_MANY_WATCHES` if the watches of the database take too much memory.
    pub fn arm(&self, key: &[u8], baseline: Option<Bytes>, future: &Arc<Future>) {
        let seen = baseline.clone();
        let armed = self.shared.watches.arm(key, baseline, Arc::clone(future));
        let Ok(id) = armed else {
            future.fail(Code::TOO_MANY_WATCHES);
            return;
        };
        let (shared, watched) = (Arc::downgrade(&self.shared), key.to_vec());
        future.hook(Box::new(move || {
            if let Some(shared) = shared.upgrade() {
                shared.watches.forget(&watched, id);
            }
        }));
        // Compares after arming: the committer compares with everything published after this read.
        // The other watches of the key are not compared here, because their baselines may be newer.
        if !self.shared.is_committer() {
            self.shared.compare(key, seen.as_ref(), future);
        } else if self.shared.defer_comparison(key, id).is_err() {
            future.fail(Code::TOO_MANY_WATCHES);
        }
    }
}

impl Shared {
    /// True on the committer's thread. No read that may go to the disk is allowed there, because
    /// all commits would wait for it.
    fn is_committer(&self) -> bool {
        self.committer.get() == Some(&thread::current().id())
    }

    /// Fires a watch if its key has another value by now.
    fn compare(&self, key: &[u8], baseline: Option<&Bytes>, future: &Future) {
        let view = self.views.lock().read(Instant::now());
        match view.get(key) {
            Ok(value) if value.as_ref() == baseline => {}
            // The watch stays armed; the process that opens the directory next compares it.
            Err(_) if self.is_poisoned() || self.ended.lock().is_some() => {}
            other => drop(future.complete(other.map(|_| Output::Void))),
        }
    }

    /// Leaves the comparison to another thread, and starts that thread if needed.
    fn defer_comparison(self: &Arc<Self>, key: &[u8], id: WatchId) -> Result<()> {
        let mut deferred = self.watches.deferred.lock();
        let bytes = deferred.bytes + key.len() + WATCH_OVERHEAD;
        if bytes > MAX_WATCH_BYTES {
            return Err(Code::TOO_MANY_WATCHES);
        }
        if !deferred.has_thread {
            let shared = Arc::clone(self);
            let work = move || shared.compare_deferred();
            let thread = thread::Builder::new().name("fdb-watches".to_owned()).spawn(work);
            thread.map_err(|_| Code::TOO_MANY_WATCHES)?;
            deferred.has_thread = true;
        }
        deferred.bytes = bytes;
        deferred.waiting.push_back((key.to_vec(), id));
        drop(deferred);
        self.watches.deferred_wake.notify_one();
        Ok(())
    }

    /// Compares deferred watches until none comes for a while, or the engine has ended.
    fn compare_deferred(&self) {
        while let Some((key, id)) = self.next_deferred() {
            if let Some((baseline, future)) = self.watches.get(&key, id) {
                // The panic hook has reported a read that panics. The watch stays armed.
                let compare = || self.compare(&key, baseline.as_ref(), &future);
                let _ = catch_unwind(AssertUnwindSafe(compare));
            }
        }
    }

    fn next_deferred(&self) -> Option<(Vec<u8>, WatchId)> {
        let mut deferred = self.watches.deferred.lock();
        loop {
            if self.ended.lock().is_some() {
                break;
            }
            if let Some((key, id)) = deferred.waiting.pop_front() {
                deferred.bytes -= key.len() + WATCH_OVERHEAD;
                return Some((key, id));
            }
            let wait = self.watches.deferred_wake.wait_for(&mut deferred, DEFERRED_THREAD_LINGER);
            if wait.timed_out() && deferred.waiting.is_empty() {
                break;
            }
        }
        *deferred = DeferredComparisons::default();
        None
    }
}

impl Watches {
    /// Registers a watch. The caller must then compare the baseline with a value read later,
    /// because a change may have been published just before. Fails if all watches together take
    /// more than `MAX_WATCH_BYTES`.
    fn arm(&self, key: &[u8], baseline: Option<Bytes>, future: Arc<Future>) -> Result<WatchId> {
        let armed = ArmedWatch { baseline, future };
        let mut table = self.table.lock();
        let bytes = table.bytes + armed.len(key);
        if bytes > MAX_WATCH_BYTES {
            return Err(Code::TOO_MANY_WATCHES);
        }
        table.bytes = bytes;
        table.sequence += 1;
        let id = table.sequence;
        table.by_key.entry(key.to_vec()).or_default().insert(id, armed);
        Ok(id)
    }

    /// Ends the comparison of deferred watches, after the engine has ended.
    pub fn end(&self) {
        // Locked, so that the thread cannot miss the signal between its check and its wait.
        let _late = self.deferred.lock();
        self.deferred_wake.notify_all();
    }

    fn get(&self, key: &[u8], id: WatchId) -> Option<(Option<Bytes>, Arc<Future>)> {
        let table = self.table.lock();
        let armed = table.by_key.get(key)?.get(&id)?;
        Some((armed.baseline.clone(), Arc::clone(&armed.future)))
    }

    /// Fires the watches of `key` whose baseline differs from the value at `view`, which must be
    /// newest. Fails them all if the key cannot be read.
    pub fn recheck(&self, key: &[u8], view: &ReadView) {
        // Before locking, because a read may go to the disk.
        let value = view.get(key);
        let ended: Vec<ArmedWatch> = {
            let mut table = self.table.lock();
            let Some(armed) = table.by_key.get_mut(key) else { return };
            let differs = |_: &WatchId, one: &mut ArmedWatch| value.as_ref() != Ok(&one.baseline);
            let ended: Vec<ArmedWatch> = armed.extract_if(differs).map(|(_, one)| one).collect();
            if armed.is_empty() {
                table.by_key.remove(key);
            }
            table.bytes -= ended.iter().map(|one| one.len(key)).sum::<usize>();
            ended
        };
        let error = value.err();
        // After unlocking, because completing a future runs the hook that forgets it.
        for one in ended {
            one.future.complete(error.map_or(Ok(Output::Void), Err));
        }
    }

    /// The watched keys that these mutations may have changed.
    pub fn affected_by<'m>(&self, mutations: impl IntoIterator<Item = &'m Mutation>) -> Vec<Vec<u8>> {
        let by_key = &self.table.lock().by_key;
        if by_key.is_empty() {
            return Vec::new();
        }
        let mut affected = Vec::new();
        for mutation in mutations {
            match mutation {
                Mutation::Set { key, .. } | Mutation::Atomic { key, .. } => {
                    affected.extend(by_key.contains_key(key).then(|| key.clone()));
                }
                Mutation::ClearRange { begin, end } if begin < end => {
                    let range = (Included(begin.as_slice()), Excluded(end.as_slice()));
                    affected.extend(by_key.range::<[u8], _>(range).map(|(key, _)| key.clone()));
                }
                _ => {}
            }
        }
        affected.sort_unstable();
        affected.dedup();
        affected
    }

    /// The watched keys among `keys`.
    pub fn affected_by_keys(&self, keys: &[Bytes]) -> Vec<Vec<u8>> {
        let by_key = &self.table.lock().by_key;
        if by_key.is_empty() {
            return Vec::new();
        }
        let watched = keys.iter().filter(|key| by_key.contains_key(&key[..]));
        let mut affected: Vec<Vec<u8>> = watched.map(|key| key.to_vec()).collect();
        affected.sort_unstable();
        affected.dedup();
        affected
    }

    /// Forgets a watch whose future was cancelled or destroyed.
    fn forget(&self, key: &[u8], id: WatchId) {
        let mut table = self.table.lock();
        let table = &mut *table;
        let Some(armed) = table.by_key.get_mut(key) else { return };
        table.bytes -= armed.remove(&id).map_or(0, |one| one.len(key));
        if armed.is_empty() {
            table.by_key.remove(key);
        }
    }

    /// The number of armed watches of `key`.
    #[cfg(test)]
    pub fn count(&self, key: &[u8]) -> usize {
        self.table.lock().by_key.get(key).map_or(0, HashMap::len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::tests::blind_write;
    use crate::engine::{CommitPromise, CommitRequest};
    use std::sync::mpsc;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// The future's end.
    fn end_of(future: &Arc<Future>) -> Result<()> {
        let (sender, receiver) = mpsc::channel();
        future.hook(Box::new(move || sender.send(()).unwrap()));
        receiver.recv_timeout(PATIENCE).expect("the future ends");
        future.result().map(drop)
    }

    #[test]
    fn arming_a_watch_on_the_committers_thread_does_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let engine = Arc::new(Engine::open(dir.path()).unwrap());
        let (same, other) = (Future::pending(), Future::pending());
        let (sender, receiver) = mpsc::channel();
        let in_answer = {
            let (engine, same, other) = (Arc::clone(&engine), Arc::clone(&same), Arc::clone(&other));
            move |result: crate::engine::CommitResult| {
                result.unwrap();
                // A read would wait for this lock, and so for ever.
                let views = engine.shared.views.lock();
                engine.arm(b"k", Some(Bytes::from_static(b"v")), &same);
                engine.arm(b"k", Some(Bytes::from_static(b"another")), &other);
                drop(views);
                sender.send(()).unwrap();
            }
        };
        engine.commit(blind_write(CommitPromise::new(in_answer)));
        if receiver.recv_timeout(PATIENCE).is_err() {
            std::mem::forget(engine);
            panic!("the committer waits for its own read");
        }
        assert_eq!(end_of(&other), Ok(()), "it is compared all the same");
        assert!(!same.is_ready());
        let change = Mutation::Set { key: b"k".to_vec(), value: b"w".to_vec() };
        let answer = CommitPromise::new(|result| assert!(result.is_ok()));
        engine.commit(CommitRequest { mutations: vec![change], ..blind_write(answer) });
        assert_eq!(end_of(&same), Ok(()));
    }

    #[test]
    fn watches_take_bounded_memory_and_further_ones_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (engine, _committer) = Engine::prepare(dir.path()).unwrap();
        let baseline = Bytes::from(vec![7; 100_000]);
        let of_one = 100_000 + 1 + WATCH_OVERHEAD;
        let arm = |key: &[u8]| {
            let future = Future::pending();
            // There is no such value: without the comparison, which would fire it.
            engine.shared.watches.arm(key, Some(baseline.clone()), Arc::clone(&future)).map(|id| (future, id))
        };
        let armed: Vec<_> = (0..MAX_WATCH_BYTES / of_one).map(|_| arm(b"k").unwrap()).collect();
        let refused = Future::pending();
        engine.arm(b"k", Some(baseline.clone()), &refused);
        assert_eq!(end_of(&refused), Err(Code::TOO_MANY_WATCHES));
        engine.shared.watches.forget(b"k", armed[0].1);
        let (_, id) = arm(b"k").unwrap();
        assert!(arm(b"k").is_err());
        engine.shared.watches.forget(b"k", id);
        let view = engine.shared.views.lock().read(Instant::now());
        engine.shared.watches.recheck(b"k", &view);
        assert_eq!(engine.shared.watches.table.lock().bytes, 0);
        assert!(armed[1..].iter().all(|(future, _)| future.is_ready()));
    }
}
