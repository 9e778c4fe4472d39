//! Dead letters: items that are not tried any more, kept until somebody retries or purges them, or a sweeper removes old ones.
//!
//! This file has the operations in a transaction of the caller's. `whole` has the operations that run their own transactions.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use crate::model::id::ItemId;
use crate::model::meta::Meta;

/// An item that is not tried any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// Which item it is.
    pub id: ItemId,
    /// When it became a dead letter; the start of 1970 if that is not known.
    pub died_at: SystemTime,
    /// Why, for people.
    pub reason: String,
    /// Its attempts, their failures, and its attributes.
    pub meta: Arc<Meta>,
    /// The payload. `None` in a list without payloads, and if it cannot be read.
    pub payload: Option<Bytes>,
    /// Why the payload cannot be read: a part of the letter is missing or damaged.
    pub unreadable: Option<String>,
}

impl DeadLetter {
    pub(crate) fn new(id: ItemId, meta: Meta, payload: Option<Bytes>) -> DeadLetter {
        let (died_at, reason) =
            meta.death.as_ref().map_or((UNIX_EPOCH, ""), |death| (death.at, &death.reason));
        DeadLetter { id, died_at, reason: reason.to_owned(), payload, unreadable: None, meta: Arc::new(meta) }
    }
}

/// The result of retrying or purging all dead letters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AllDead {
    /// How many were retried or purged.
    pub moved: usize,
    /// How many stay, because another item has their unique key.
    pub refused: usize,
    /// How many stay, because this version cannot read them. They can be purged.
    pub unreadable: usize,
    /// Whether `until` passed, so that letters may be left. Call it again for the rest.
    pub more: bool,
}
