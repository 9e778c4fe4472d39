//! The effect of a change on one item.

use std::time::SystemTime;

use crate::model::id::ItemId;
use crate::model::view::ItemState;

/// The effect of a change on an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ItemChange {
    /// It was changed. This was its state before.
    Done(ItemState),
    /// It was left as it is, since it is in a state that allows no such change.
    Refused(ItemState),
    /// It stays a dead letter, because this item has its unique key.
    UniqueTaken(ItemId),
    /// It keeps its time, since it expires before the new one, or at it: no attempt could ever begin. This is when.
    ExpiresFirst(SystemTime),
    /// The queue has no item of this id. It may have ended.
    Gone,
}
