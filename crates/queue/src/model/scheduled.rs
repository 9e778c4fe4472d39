//! Scheduled items.

use std::time::SystemTime;

use crate::model::id::ItemId;
use crate::model::item::Item;

/// An item that is scheduled, or waits for a retry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduledItem {
    /// When it becomes ready.
    pub due: SystemTime,
    /// Which item it is.
    pub id: ItemId,
    /// The item; or why it cannot be read: something of it is missing or damaged.
    pub item: Result<Item, String>,
}

/// The result of [`Queue::requeue_scheduled`](crate::Queue::requeue_scheduled).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requeued {
    /// How many items are ready now.
    pub moved: usize,
    /// How many items cannot be read, and stay as they are.
    pub unreadable: usize,
    /// Whether `until` passed before the last item was read. Call it again for the rest.
    pub more: bool,
}
