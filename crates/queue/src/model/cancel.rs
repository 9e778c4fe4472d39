//! Which items are cancelled together, and how many were.

use crate::model::id::ItemId;
use crate::model::meta::Meta;
use crate::model::view::ItemState;

/// Which items are cancelled: an item has to match all that is given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CancelFilter {
    /// Items of this state. A dead letter cannot be cancelled.
    pub state: Option<ItemState>,
    /// Items of this key, in a keyed queue.
    pub key: Option<Vec<u8>>,
    /// Items that have this attribute, by its name, with this value.
    pub attribute: Option<(String, String)>,
}

impl CancelFilter {
    /// Whether an item matches, whatever its state.
    pub(crate) fn matches(&self, id: &ItemId, meta: &Meta) -> bool {
        let by_key = self.key.as_ref().is_none_or(|key| id.key().as_ref() == Some(key));
        let by_attribute =
            self.attribute.as_ref().is_none_or(|(name, value)| meta.attributes.get(name) == Some(value));
        by_key && by_attribute
    }
}

/// How many items of a page were cancelled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CancelCounts {
    /// Items that were cancelled.
    pub cancelled: usize,
    /// Items that stay, because their side records cannot be read.
    pub unreadable: usize,
}
