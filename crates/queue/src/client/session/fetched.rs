//! What a fetch returns.

use std::num::NonZeroUsize;
use std::time::Duration;

use crate::client::lease::Lease;
use crate::model::item::Item;
use crate::model::retry_error::Attempts;
use crate::run::watch::Watch;

/// The result of [`Session::fetch`](crate::Session::fetch).
#[derive(Debug)]
#[non_exhaustive]
#[must_use = "the items stay on their lease until it expires"]
pub struct Fetched {
    /// The items; `None` if there were none.
    pub lease: Option<Lease>,
    /// Resolves after the next push. Only if there were no items and the options ask for a watch.
    pub watch: Option<Watch>,
    /// Whether as many items of the whole queue run as its limit allows. Then the watch resolves when one of them ends, or the limit changes.
    /// Also if slots are free that other sessions had before, and the session has lost against these: then the watch resolves when an item of this session ends,
    /// and after `look_again_in` the slots may be its own.
    pub is_full: bool,
    /// After which time a rate or a throttle allows further items, or there may be a slot, though nothing has changed by then. Only if there were no items.
    pub look_again_in: Option<Duration>,
    /// Whether an earlier fetch of the session made the lease. Its deadline may be near: extend the
    /// lease first. It has the number of items and the length that the earlier fetch asked for;
    /// release the items that are too many.
    pub recovered: bool,
    /// The database version of the commit. `None` if there are no items, or if an earlier fetch
    /// made the lease.
    pub version: Option<u64>,
    /// The transactions of the fetch.
    pub attempts: Attempts,
}

/// What one of several workers asks for; see [`Session::fetch_for`](crate::Session::fetch_for).
#[derive(Debug, Clone, Copy)]
pub struct Share {
    /// The most items.
    pub k: NonZeroUsize,
    /// The length of the lease, in the database's versions: to a microsecond.
    pub lease: Duration,
}

/// The result of [`Session::fetch_for`](crate::Session::fetch_for).
#[derive(Debug)]
#[non_exhaustive]
#[must_use = "the items stay on their leases until these expire"]
pub struct FetchedFor {
    /// A lease for each of the first shares. There are fewer than shares if there are too few
    /// items, or if they do not fit into one transaction.
    pub leases: Vec<Lease>,
    /// Resolves after the next push. Only if there were no items, and a watch was asked for.
    pub watch: Option<Watch>,
    /// Whether as many items of the whole queue run as its limit allows. Then the watch resolves when one of them ends, or the limit changes.
    /// Also if slots are free that other sessions had before, and the session has lost against these: then the watch resolves when an item of this session ends,
    /// and after `look_again_in` the slots may be its own.
    pub is_full: bool,
    /// After which time a rate or a throttle allows further items, or there may be a slot, though nothing has changed by then. Only if there were no items.
    pub look_again_in: Option<Duration>,
    /// Whether an earlier fetch of the session made the lease, for a share of that fetch. There is
    /// one lease then, and the next fetch may return another such one.
    pub recovered: bool,
    /// The database version of the commit. `None` if there are no items, or if an earlier fetch
    /// made the lease.
    pub version: Option<u64>,
    /// The transactions of the fetch.
    pub attempts: Attempts,
}

/// The result of [`Session::take`](crate::Session::take).
#[derive(Debug)]
#[must_use = "the items have left the queue: dropping them loses them"]
pub struct Taken {
    /// The items, in order. They have left the queue. There may be more than `k`, if an earlier
    /// take that failed had asked for more.
    pub items: Vec<Item>,
    /// Resolves after the next push. Only if there were no items and the options ask for a watch.
    pub watch: Option<Watch>,
    /// The database version at which the items left the queue. `None` if there are none, or if an
    /// earlier take removed them.
    pub version: Option<u64>,
    /// The transactions of the take.
    pub attempts: Attempts,
}
