//! Arms watches, and compares the values of their keys.

use baton::thread;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mutant::mutant;

use super::Engine;
use super::shared::Shared;
use super::watches::{DeferredComparisons, WATCH_OVERHEAD, WatchId};
use crate::error::{Code, Result};
use crate::future::{Future, Output};
use crate::limits::MAX_WATCH_BYTES;

/// How long that thread waits for another watch before it ends.
const DEFERRED_THREAD_LINGER: Duration = Duration::from_secs(10);

impl Engine {
    /// Arms a watch: `future` succeeds as soon as the value of `key` is not `baseline`. Fails with
    /// `TOO_MANY_WATCHES` if the watches of the database take too much memory.
    pub fn arm(&self, key: &[u8], baseline: Option<Bytes>, future: &Arc<Future>) {
        let seen = baseline.clone();
        if mutant("watch-compared-before-it-is-armed") && !self.shared.is_committer() {
            self.shared.compare(key, seen.as_ref(), future);
        }
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
            if mutant("watch-compared-before-it-is-armed") {
                return;
            }
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
        let view = self.views.lock().read(baton::now());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::mutation::Mutation;
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
        let view = engine.shared.views.lock().read(baton::now());
        engine.shared.watches.recheck(b"k", &view);
        assert_eq!(engine.shared.watches.bytes(), 0);
        assert!(armed[1..].iter().all(|(future, _)| future.is_ready()));
    }
}
