//! Where a fetch looks.

use crate::model::id::ItemId;

/// Where a take looks.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Place {
    /// Behind this item; `None`: from the front.
    pub(crate) behind: Option<ItemId>,
    /// How many items are passed over.
    pub(crate) skip: usize,
}

/// How long the queue is, by the measure of an approach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// There is enough for others, too.
    Long,
    /// There is not.
    Short,
    /// Nobody has looked.
    Unknown,
}

impl Place {
    pub(crate) fn is_front(&self) -> bool {
        *self == Place::default()
    }
}
