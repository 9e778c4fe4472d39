//! An item, as a fetch returns it.

use std::sync::Arc;

use bytes::Bytes;

use crate::model::id::ItemId;
use crate::model::meta::Meta;

/// An item in a queue, or just taken from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Which item it is; unique in its queue, and its place in the order.
    pub id: ItemId,
    /// The payload, whole.
    pub payload: Bytes,
    /// Which attempt this is, from 1; for an item that waits, which one the next will be.
    pub attempt: u32,
    /// The side record, if the item has one.
    pub meta: Option<Arc<Meta>>,
}

impl Item {
    /// The producer's attribute of this name.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.meta.as_ref()?.attributes.get(name).map(String::as_str)
    }
}
