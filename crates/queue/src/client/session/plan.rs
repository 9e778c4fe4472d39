//! What one transaction of a fetch does. [`Chosen`] is decided from what it has read. [`Plan`] is what it has written, and takes
//! effect when it commits. It may not: so the two are apart, and the result of the fetch is made of a plan that has committed.

use std::time::Duration;

use crate::client::lease::Lease;
use crate::client::session::fetched::Fetched;
use crate::keys::leases::{Header, Held};
use crate::model::item::Item;
use crate::model::lease_id::LeaseId;
use crate::model::place::Extent;
use crate::ops::scan::Row;

/// What a transaction of a fetch is to do.
pub(super) enum Chosen {
    /// Lease these rows, or remove them for good. They are out of the queue already. And what was seen of the queue's length.
    Rows(Vec<Row>, Extent),
    /// Take up the lease that another session has written for the request of this one.
    Served(LeaseId, Header, Vec<Held>),
    /// The queue has no item for it. The transaction has only read. After which time there may be one though nothing changes.
    Empty(Option<Duration>),
    /// As many items of the queue run as may, or the slots that are free are left to others for now. The transaction has only read. After which time to look again though
    /// nothing changes, and the row to watch.
    Full(Option<Duration>, Vec<u8>),
    /// It has only read, and the fetch has to wait until this key is there, or until others have fetched.
    Waits(Vec<u8>),
    /// The queue has no item for it now. The transaction moves keys in the index, and another one is to look again.
    Tidied,
    /// It is one of several that the fetch needs.
    Steps(RequestStep),
}

/// A transaction of a fetch that is not its last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestStep {
    /// It asks.
    Asks,
    /// It serves others.
    Serves,
    /// It takes the own request back.
    Leaves,
}

/// The effect of the transaction under way, once it commits.
#[derive(Debug)]
pub(super) enum Plan {
    /// It has found nothing, and the fetch returns this.
    Nothing(Fetched<Moved>),
    /// It moves keys in the index of a keyed queue, and has found no items.
    Tidy,
    /// It is one of several transactions that a request needs.
    Request(RequestStep),
    /// It removes the items that the session has noted.
    Remove(Source),
    Lease(Vec<Lease>, Source),
}

impl Default for Plan {
    fn default() -> Plan {
        Plan::Nothing(Fetched::default())
    }
}

/// Where the items of a fetch come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// The queue; and what was seen of its length.
    Queue { seen: Extent },
    /// Another session, which has served this session's request.
    Others,
}

/// The items that a fetch has moved: to leases, or out of the queue.
#[derive(Debug, Default)]
pub(super) struct Moved {
    pub(super) leases: Vec<Lease>,
    /// They have left the queue.
    pub(super) items: Vec<Item>,
}

impl Moved {
    pub(super) fn to(leases: Vec<Lease>) -> Moved {
        Moved { leases, items: Vec::new() }
    }

    pub(super) fn out(items: Vec<Item>) -> Moved {
        Moved { leases: Vec::new(), items }
    }

    /// The last of the items.
    pub(super) fn last(&self) -> Option<&Item> {
        self.leases.last().map_or(self.items.as_slice(), Lease::items).last()
    }
}
