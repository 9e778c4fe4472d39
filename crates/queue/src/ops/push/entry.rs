//! An item to push, checked against the limits.

use crate::keys::meta::encode;
use crate::model::error::PushError;
use crate::model::item_batch::BatchId;
use crate::model::kind::Kind;
use crate::model::meta::Meta;
use crate::model::new_item::{IfTaken, NewItem};
use crate::model::sizes::MAX_VALUE;
use crate::model::stored::{State, StoredItem};

/// One item.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry<'a> {
    pub(crate) payload: &'a [u8],
    with: With<'a>,
    /// It comes from another queue, and stays a member of its batches.
    is_moved: bool,
}

/// The fields besides its payload.
#[derive(Debug, Clone, Copy)]
enum With<'a> {
    Nothing,
    New(&'a NewItem),
    Stored(&'a StoredItem),
}

impl StoredItem {
    /// Whether a queue of this kind can hold it, with a payload of at most this many bytes.
    ///
    /// # Errors
    /// Those of a push of such an item, and [`PushError::RecordTooLarge`].
    pub fn check(&self, kind: Kind, max_payload: usize) -> Result<(), PushError> {
        let meta = &self.meta;
        NewItem {
            payload: self.payload.clone(),
            attributes: meta.attributes.clone(),
            content_type: meta.content_type.clone(),
            trace_parent: meta.trace_parent.clone(),
            unique: meta.unique.clone(),
            priority: self.priority,
            key: self.key.clone(),
            ..NewItem::default()
        }
        .check(kind, max_payload)?;
        match encode(&self.record()).len() {
            len if len > MAX_VALUE => Err(PushError::RecordTooLarge { len, limit: MAX_VALUE }),
            _ => Ok(()),
        }
    }
}

impl<'a> From<&'a [u8]> for Entry<'a> {
    fn from(payload: &'a [u8]) -> Entry<'a> {
        Entry { payload, with: With::Nothing, is_moved: false }
    }
}

impl<'a> From<&'a NewItem> for Entry<'a> {
    fn from(item: &'a NewItem) -> Entry<'a> {
        Entry { payload: &item.payload, with: With::New(item), is_moved: false }
    }
}

impl<'a> From<&'a StoredItem> for Entry<'a> {
    fn from(item: &'a StoredItem) -> Entry<'a> {
        Entry { payload: &item.payload, with: With::Stored(item), is_moved: false }
    }
}

impl<'a> Entry<'a> {
    /// An item that leaves another queue in the same transaction.
    pub(crate) fn moved(item: &'a StoredItem) -> Entry<'a> {
        Entry { is_moved: true, ..Entry::from(item) }
    }

    /// The batch that it becomes a member of.
    pub(super) fn batch(&self) -> Option<&'a BatchId> {
        match self.with {
            With::New(item) => item.batch.as_ref(),
            With::Nothing | With::Stored(_) => None,
        }
    }

    /// The key that it is to be the only one of. A dead letter only remembers its key.
    pub(super) fn unique(&self) -> Option<&'a [u8]> {
        match self.with {
            With::Stored(item) if item.state == State::Dead => None,
            _ => self.unique_key(),
        }
    }

    /// The unique key that was given, whether or not it is to be the only one of it.
    pub(super) fn unique_key(&self) -> Option<&'a [u8]> {
        match self.with {
            With::Nothing => None,
            With::New(item) => item.unique.as_deref(),
            With::Stored(item) => item.meta.unique.as_deref(),
        }
    }

    pub(super) fn content_type(&self) -> Option<&'a str> {
        match self.with {
            With::Nothing => None,
            With::New(item) => item.content_type.as_deref(),
            With::Stored(item) => item.meta.content_type.as_deref(),
        }
    }

    pub(super) fn attributes(&self) -> impl Iterator<Item = (&'a String, &'a String)> + use<'a> {
        let attributes = match self.with {
            With::Nothing => None,
            With::New(item) => Some(&item.attributes),
            With::Stored(item) => Some(&item.meta.attributes),
        };
        attributes.into_iter().flatten()
    }

    pub(super) fn priority(&self) -> i64 {
        match self.with {
            With::Nothing => 0,
            With::New(item) => item.priority,
            With::Stored(item) => item.priority,
        }
    }

    /// Its key in a keyed queue.
    pub(super) fn key(&self) -> &'a [u8] {
        let key = match self.with {
            With::Nothing => None,
            With::New(item) => item.key.as_deref(),
            With::Stored(item) => item.key.as_deref(),
        };
        key.unwrap_or_default()
    }

    pub(super) fn state(&self) -> State {
        match self.with {
            With::Nothing => State::Ready,
            With::New(item) => item.due.map_or(State::Ready, State::Later),
            With::Stored(item) => item.state,
        }
    }

    /// Whether it replaces the item that has its unique key.
    pub(crate) fn replaces(&self) -> bool {
        matches!(self.with, With::New(item) if item.if_taken == IfTaken::Replace)
    }

    /// Its side record, if it is to have one.
    pub(super) fn meta(&self) -> Option<Meta> {
        match self.with {
            With::Nothing => None,
            With::New(item) => Some(item.meta()),
            With::Stored(item) => {
                let batches = if self.is_moved { item.meta.batches.clone() } else { Vec::new() };
                Some(Meta { batches, ..item.record() })
            }
        }
    }
}
