//! Held keys of a keyed queue: a page of them, and letting one go on with a record in the audit trail.

use std::{cell::Cell, num::NonZeroUsize};

use foundationdb::Transaction;
use kvqueue_queue::{HeldBy, HeldKey, ItemId, LimitError, Queue, QueueError};
use serde_json::{Map, Value};

use crate::{
    audit::{AuditStore, Record},
    json::insert_bytes,
};

/// Some held keys, in the order of their bytes.
pub(crate) struct HeldPage {
    pub(crate) keys: Vec<HeldKey>,
    /// Whether there are more behind them.
    pub(crate) more: bool,
}

impl HeldPage {
    /// Reads up to `limit` keys behind the key of the item `after`, or the first ones. Conflicts with nothing.
    pub(crate) async fn read(
        queue: &Queue,
        tr: &Transaction,
        after: Option<&ItemId>,
        limit: NonZeroUsize,
    ) -> Result<Self, QueueError> {
        let mut after = after.and_then(ItemId::key);
        // One more than wanted tells whether there are more.
        let mut left = limit.saturating_add(1);
        let mut keys = Vec::new();
        loop {
            let found = queue.held_keys(tr, after.as_deref(), left).await.map_err(queue_error)?;
            let Some(last) = found.last() else { return Ok(Self { keys, more: false }) };
            after = Some(last.key.clone());
            keys.extend(found);
            // A key with several holds takes the place of others in what is read.
            let Some(rest) = NonZeroUsize::new((limit.get() + 1).saturating_sub(keys.len())) else { break };
            left = rest;
        }
        keys.truncate(limit.get());
        Ok(Self { keys, more: true })
    }

    /// The item behind whose key the next page begins; `None` if this is the last one.
    pub(crate) fn next(&self) -> Option<&ItemId> {
        self.keys.last().filter(|_| self.more).map(|held| held.by.item())
    }
}

/// A held key as JSON: the key, the item that it waits for, and whether that waits for its time or is dead.
pub(crate) fn object(held: &HeldKey) -> Value {
    let mut object = Map::new();
    insert_bytes(&mut object, "key", &held.key);
    object.insert("item".to_owned(), held.by.item().to_string().into());
    object.insert("item_state".to_owned(), item_state(&held.by).into());
    Value::Object(object)
}

fn item_state(by: &HeldBy) -> &'static str {
    match by {
        HeldBy::Dead(_) => "dead",
        _ => "waiting",
    }
}

/// Lets a held key go on, in a transaction that may run more than once. After an unknown outcome it finds no hold, if the commit has succeeded. So what the
/// earlier attempt has found is the answer.
pub(crate) struct Unblock {
    pub(crate) key: Vec<u8>,
    was_held: Cell<bool>,
}

impl Unblock {
    pub(crate) fn new(key: Vec<u8>) -> Self {
        Self { key, was_held: Cell::new(false) }
    }

    /// The record with the key.
    pub(crate) fn audited(&self, record: Record) -> Record {
        record.with_name("key", &self.key)
    }

    /// Makes the change with its record. Returns whether the key was held. A frozen queue, and one of another kind, is an error.
    pub(crate) async fn write(
        &self,
        tr: &Transaction,
        queue: &Queue,
        audit: &AuditStore,
        record: &Record,
    ) -> Result<bool, QueueError> {
        queue.check_unfrozen(tr).await?;
        queue.check_used(tr).await?;
        let is_held = queue.unblock(tr, &self.key).await.map_err(queue_error)?;
        let was_held = is_held || self.was_held.get();
        self.was_held.set(was_held);
        if was_held {
            audit.write(tr, record);
        }
        Ok(was_held)
    }
}

/// The error of a queue that was opened as a keyed one.
fn queue_error(error: LimitError) -> QueueError {
    match error {
        LimitError::Queue(error) => error,
        refused => unreachable!("a keyed queue refuses to read or end holds: {refused}"),
    }
}
