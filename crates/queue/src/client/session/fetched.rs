//! What a fetch returns.

use std::num::NonZeroUsize;
use std::time::Duration;

use crate::model::retry_error::Attempts;
use crate::run::watch::Watch;

/// The result of a fetch: what it has got, or else what to wait for.
///
/// `T` is an `Option<`[`Lease`](crate::Lease)`>` for [`Session::fetch`](crate::Session::fetch), a `Vec<Lease>` for
/// [`Session::fetch_for`](crate::Session::fetch_for), and a `Vec<`[`Item`](crate::Item)`>` for
/// [`Session::take`](crate::Session::take).
#[derive(Debug, Default)]
#[non_exhaustive]
#[must_use = "leased items stay on their lease until it expires, and items that have left the queue are lost"]
pub struct Fetched<T> {
    /// The items, in order: on leases, or out of the queue. None if none were ready.
    pub got: T,
    /// Resolves after the next push. Only if there were no items, and a watch was asked for.
    pub watch: Option<Watch>,
    /// Whether as many items of the whole queue run as its limit allows. Then the watch resolves when one of them ends, or the limit changes.
    /// Also if slots are free that other sessions had before, and the session has lost against these: then the watch resolves when an item of this session ends,
    /// and after `look_again_in` the slots may be its own.
    pub is_full: bool,
    /// After which time a rate or a throttle allows further items, or there may be a slot, though nothing has changed by then. Only if there were no items.
    pub look_again_in: Option<Duration>,
    /// Whether an earlier fetch of the session got them, whose outcome was unknown. If they are on a lease there is one, with the
    /// number of items and the length that the earlier fetch asked for. Its deadline may be near: extend it first, and release the
    /// items that are too many. The next fetch may return another such lease.
    pub recovered: bool,
    /// The database version of the commit. `None` if there are no items, or if an earlier fetch got them.
    pub version: Option<u64>,
    /// The transactions of the fetch.
    pub attempts: Attempts,
}

impl<T> Fetched<T> {
    /// The same with something else in the place of what the fetch has got.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Fetched<U> {
        let Fetched { got, watch, is_full, look_again_in, recovered, version, attempts } = self;
        Fetched { got: change(got), watch, is_full, look_again_in, recovered, version, attempts }
    }
}

/// What one of several workers asks for; see [`Session::fetch_for`](crate::Session::fetch_for).
#[derive(Debug, Clone, Copy)]
pub struct Share {
    /// The most items.
    pub k: NonZeroUsize,
    /// The length of the lease, in the database's versions: to a microsecond.
    pub lease: Duration,
}
