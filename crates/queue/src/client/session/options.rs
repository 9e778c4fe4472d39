//! What a fetch is asked for.

use std::num::NonZeroUsize;
use std::time::Duration;

use crate::client::approach::Approach;
use crate::client::session::plan::Source;
use crate::model::item::Item;

/// The options of [`Session::fetch`](crate::Session::fetch) and [`Session::take_with`](crate::Session::take_with).
#[derive(Debug)]
#[non_exhaustive]
pub struct FetchOptions<'a> {
    /// The most items.
    pub k: NonZeroUsize,
    /// The length of the lease, in the database's versions: to a microsecond. `take_with` ignores
    /// it.
    pub lease: Duration,
    /// Where to look for the items.
    pub approach: &'a mut Approach,
    /// Whether to watch an empty queue. The default is not to.
    pub watch: bool,
    /// Whether to fetch the one item that would come last, and not the first ones. The default is not to.
    pub last: bool,
}

impl<'a> FetchOptions<'a> {
    /// Up to `k` items, for this time, without a watch.
    pub fn new(k: NonZeroUsize, lease: Duration, approach: &'a mut Approach) -> FetchOptions<'a> {
        FetchOptions { k, lease, approach, watch: false, last: false }
    }

    /// The same with a watch of an empty queue, or without one.
    #[must_use]
    pub fn with_watch(self, watch: bool) -> FetchOptions<'a> {
        FetchOptions { watch, ..self }
    }

    /// The same for the item that would come last, or for the first ones. For a worker that finds out whether it can handle any item: the
    /// first ones may all be such that it cannot. It has no effect on a keyed queue, where each fetch is for other keys; nor if the
    /// last item may have killed a worker.
    #[must_use]
    pub fn with_last(self, last: bool) -> FetchOptions<'a> {
        FetchOptions { last, ..self }
    }

    /// The fetch has committed. The last of its items.
    pub(super) fn won(&mut self, last: Option<&Item>, source: Source) {
        match (source, last) {
            (Source::Others, _) => self.approach.done(),
            (Source::Queue { seen }, Some(last)) => self.approach.committed(seen, &last.id),
            (Source::Queue { .. }, None) => {}
        }
    }

    /// The fetch has conflicted with another transaction.
    pub(super) fn lost(&mut self, source: Source) {
        // Items that others gave to this session are lost to a sweeper only, so the approach need
        // not change.
        if let Source::Queue { seen } = source {
            self.approach.conflicted(seen);
        }
    }
}

/// Where a fetch puts the items.
#[derive(Debug, Clone, Copy)]
pub(super) enum Goal<'s> {
    /// They leave the queue.
    Remove,
    /// They move to leases: of each share the most items, and the length in versions.
    Lease(&'s [(NonZeroUsize, u64)]),
}

impl Goal<'_> {
    /// The first share. Only that share gets suspects.
    pub(super) fn first(self) -> Option<NonZeroUsize> {
        match self {
            Goal::Remove => None,
            Goal::Lease(shares) => shares.first().map(|(k, _)| *k),
        }
    }

    /// The length of the first share's lease, in versions; 0 if the items leave the queue.
    pub(super) fn length(self) -> u64 {
        match self {
            Goal::Remove => 0,
            Goal::Lease(shares) => shares.first().map_or(0, |(_, length)| *length),
        }
    }

    pub(super) fn is_lease(self) -> bool {
        matches!(self, Goal::Lease(_))
    }
}
