//! What can happen to a queue.

use kvqueue_queue::{ItemId, LeaseId, Millis, NewItem, Settlement, Stamp};

use crate::image::Want;

/// When it happened, in database versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct At {
    /// What the transaction has read is of this version.
    pub(crate) read: u64,
    /// It committed at this one.
    pub(crate) commit: u64,
}

/// What a committed transaction did; one may have done several of these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// Items came, perhaps none; under the name of an operation, if they have one.
    Pushed { items: Vec<(ItemId, NewItem)>, operation: Option<Vec<u8>> },
    /// Items were taken on a lease, perhaps to serve a request.
    Leased { lease: LeaseId, items: Vec<ItemId>, terms: Terms, served: Option<Stamp> },
    /// Items were taken for good, perhaps to serve a request.
    Taken { items: Vec<ItemId>, terms: Terms, served: Option<Stamp> },
    /// Somebody asked to be served.
    Asked(Stamp, Want),
    /// A request left the line without being served.
    Left(Stamp),
    /// What somebody was served with, who takes for good, has reached it.
    PickedUp(LeaseId),
    /// A holder settled items of its lease, by their index, or only extended it.
    Settled { lease: LeaseId, settlements: Vec<(usize, Settlement)>, with_effects: bool },
    /// A lease was taken away.
    Expired { lease: LeaseId, by: Sweeping },
    /// Items whose time had come were made ready.
    Promoted { items: Vec<(Millis, ItemId)>, by: Sweeping },
    /// Operations were forgotten.
    Forgotten { operations: Vec<Vec<u8>>, by: Sweeping },
    /// Dead letters became items again.
    Revived(Vec<ItemId>),
    /// Dead letters were deleted.
    Purged(Vec<ItemId>),
}

/// What a taker asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Terms {
    /// The most items.
    pub(crate) k: usize,
    /// The lease's length in versions.
    pub(crate) length: u64,
    /// Whether the first items are wanted, and no others.
    pub(crate) front: bool,
}

/// By what rules, and at what time, a sweeper works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sweeping {
    /// What its clock says.
    pub(crate) now: Millis,
    pub(crate) max_attempts: u32,
    /// How long operations are kept, in versions.
    pub(crate) kept: u64,
}
