//! Keys of a keyed queue that are held, and what they wait for.

use crate::model::id::ItemId;

/// A key that is not served.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldKey {
    /// The key.
    pub key: Vec<u8>,
    /// What it waits for. If it waits for several items, the first of them.
    pub by: HeldBy,
}

/// What a held key waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeldBy {
    /// This item is scheduled again. The hold ends when the item is ready, or is deleted.
    Scheduled(ItemId),
    /// This item is a dead letter. The hold ends when an operator retries or purges the dead letter, or unblocks the key.
    Dead(ItemId),
}

impl HeldBy {
    /// The item that it waits for.
    pub fn item(&self) -> &ItemId {
        let (HeldBy::Scheduled(item) | HeldBy::Dead(item)) = self;
        item
    }
}

/// What ends a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HoldCause {
    /// The item is scheduled: its time comes, or it is deleted.
    Scheduled,
    /// The item is a dead letter: an operator decides about it.
    Dead,
}

impl HoldCause {
    pub(crate) fn with(self, item: ItemId) -> HeldBy {
        match self {
            HoldCause::Scheduled => HeldBy::Scheduled(item),
            HoldCause::Dead => HeldBy::Dead(item),
        }
    }
}
