//! The effect of an operation on one item.

/// The effect of an operation on one item: a deletion, or a request to make it ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ItemEffect {
    /// The item was deleted, or is ready now.
    Done,
    /// The item was ready already.
    Ready,
    /// The item is running, so it was left alone.
    Running,
    /// The item stays a dead letter, because another item has its unique key.
    Refused,
    /// The queue has no item of this id.
    Gone,
}
