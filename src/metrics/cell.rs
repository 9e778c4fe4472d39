//! Numbers that threads change without waiting for each other.

use std::sync::{
    OnceLock,
    atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed},
};

/// A counter that several threads change for every item has this number of parts, one for each thread as far as they reach. Otherwise they would wait for
/// each other's caches.
const SHARDS: usize = 8;

/// Parts that lie in different lines of a cache. One that no thread has changed takes no memory: most queues are idle, and some have
/// a thousand of them.
#[derive(Debug, Default)]
pub(super) struct Sharded<T>([OnceLock<Box<Shard<T>>>; SHARDS]);

#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard<T>(T);

impl<T: Default> Sharded<T> {
    /// This thread's.
    pub(super) fn own(&self) -> &T {
        thread_local! {
            static OWN: usize = {
                static THREADS: AtomicUsize = AtomicUsize::new(0);
                THREADS.fetch_add(1, Relaxed) % SHARDS
            };
        }
        // A thread that ends has no number any more.
        &self.0[OWN.try_with(|own| *own).unwrap_or(0)].get_or_init(Box::default).0
    }

    /// All that were changed.
    pub(super) fn all(&self) -> impl Iterator<Item = &T> {
        self.0.iter().filter_map(|shard| Some(&shard.get()?.0))
    }
}

/// A number that only rises.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// One more.
    pub(crate) fn inc(&self) {
        self.add(1);
    }

    /// Adds to the count.
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Relaxed);
    }

    /// As many as came so far.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A number that rises and falls.
#[derive(Debug, Default)]
pub(crate) struct Gauge(Sharded<AtomicI64>);

impl Gauge {
    /// Adds to the gauge until the returned guard is dropped.
    pub(crate) fn hold(&self, more: usize) -> Held<'_> {
        let more = i64::try_from(more).unwrap_or(i64::MAX);
        self.0.own().fetch_add(more, Relaxed);
        Held { gauge: self, more }
    }

    /// As it stands.
    pub(crate) fn get(&self) -> i64 {
        self.0.all().map(|part| part.load(Relaxed)).sum()
    }
}

/// What a gauge is raised by.
#[derive(Debug)]
pub(crate) struct Held<'a> {
    gauge: &'a Gauge,
    more: i64,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // Perhaps on another thread than it was raised on: only the sum of all parts counts.
        self.gauge.0.own().fetch_sub(self.more, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_thread_raises_another_may_lower() {
        let gauge = Gauge::default();
        let held = gauge.hold(5);
        let others = gauge.hold(2);
        assert_eq!(gauge.get(), 7);
        std::thread::scope(|scope| scope.spawn(|| drop(held)).join().unwrap());
        assert_eq!(gauge.get(), 2);
        drop(others);
        assert_eq!(gauge.get(), 0);
    }
}
