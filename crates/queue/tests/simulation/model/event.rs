//! What can happen to a queue.

use kvqueue_queue::{ItemId, LeaseId, Settlement};

/// When it happened, in database versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct At {
    /// What the transaction has read is of this version.
    pub(crate) read: u64,
    /// It committed at this one.
    pub(crate) commit: u64,
}

/// What a committed transaction did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// Items came.
    Pushed(Vec<(ItemId, NewItem)>),
    /// Items were taken on a lease.
    Leased { lease: LeaseId, items: Vec<ItemId>, terms: Terms },
    /// Items were taken for good.
    Taken { items: Vec<ItemId>, terms: Terms },
    /// A holder settled items of its lease, by their index, or only extended it.
    Settled { lease: LeaseId, settlements: Vec<(usize, Settlement)>, with_effects: bool },
    /// Nothing that concerns an item.
    Nothing,
}

/// What a producer asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NewItem {
    pub(crate) payload: Vec<u8>,
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
