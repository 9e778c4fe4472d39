//! Batches as commands and HTTP show them, and the cancellation of one with its record.

use std::{cell::Cell, collections::BTreeMap};

use foundationdb::Transaction;
use kvqueue_queue::{
    Queue, QueueError,
    item_batch::{BatchCounts, BatchId, BatchView, Join, NewBatch},
};
use serde_json::{Map, Value, json};

use crate::{
    audit::{AuditStore, Record},
    json::{insert_bytes, insert_payload, time},
};

/// The text for a batch that is not there.
pub(crate) fn gone(id: &BatchId) -> String {
    format!("there is no batch {id}: it has called back, was cancelled, or never was")
}

/// A batch as an object: how far it is, its counts, and its callback.
pub(crate) fn batch_object(view: &BatchView) -> Value {
    let BatchView { id, created, committed, batch: NewBatch { callback, deadline }, counts } = view;
    let mut object = Map::new();
    object.insert("id".to_owned(), id.to_string().into());
    insert_bytes(&mut object, "queue", id.home());
    object.insert("state".to_owned(), state(view).into());
    for (name, at) in [("created", Some(*created)), ("committed", *committed), ("deadline", *deadline)] {
        object.extend(at.map(|at| (name.to_owned(), time(at).into())));
    }
    object.insert("counts".to_owned(), counts_object(counts));
    let mut then = Map::new();
    insert_payload(&mut then, "payload", &callback.payload);
    if !callback.attributes.is_empty() {
        then.insert("attributes".to_owned(), json!(callback.attributes));
    }
    then.extend(callback.content_type.clone().map(|text| ("content_type".to_owned(), text.into())));
    if let Some(key) = &callback.key {
        insert_bytes(&mut then, "key", key);
    }
    if callback.priority != 0 {
        then.insert("priority".to_owned(), callback.priority.into());
    }
    object.insert("then".to_owned(), then.into());
    object.into()
}

/// Whether a batch gets more members.
pub(crate) fn state(view: &BatchView) -> &'static str {
    if view.committed.is_some() { "committed" } else { "open" }
}

/// The counts of a batch by name.
pub(crate) fn counts(counts: &BatchCounts) -> [(&'static str, u64); 7] {
    [
        ("members", counts.members),
        ("open", counts.open()),
        ("done", counts.done),
        ("dead", counts.dead),
        ("cancelled", counts.cancelled),
        ("expired", counts.expired),
        ("taken", counts.taken),
    ]
}

/// The same as an object.
pub(crate) fn counts_object(of: &BatchCounts) -> Value {
    counts(of).into_iter().map(|(name, n)| (name.to_owned(), json!(n))).collect()
}

/// How many items the callback of a batch waits for that was made to come after them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Waits {
    /// Items that are waited for.
    waits_for: usize,
    /// Items that had ended, by how.
    ended: BTreeMap<&'static str, usize>,
    /// Items that were not in their queues.
    gone: usize,
}

impl Waits {
    pub(crate) fn of(joins: &[Join]) -> Self {
        let count = |is: fn(&Join) -> bool| joins.iter().filter(|join| is(join)).count();
        let mut ended = BTreeMap::new();
        for join in joins {
            if let Join::Ended(ending) = join {
                *ended.entry(ending.as_str()).or_default() += 1;
            }
        }
        Self {
            waits_for: count(|join| matches!(join, Join::Joined(_))),
            ended,
            gone: count(|join| matches!(join, Join::Gone)),
        }
    }

    /// For people.
    pub(crate) fn text(&self, id: &BatchId) -> String {
        let Self { waits_for, ended, gone } = self;
        let mut text = match waits_for {
            0 => format!("batch {id} waits for nothing, so its item is pushed as soon as a daemon looks"),
            1 => format!("batch {id} waits for 1 item"),
            n => format!("batch {id} waits for {n} items"),
        };
        for (how, n) in ended {
            text += &format!("; {n} had ended: {how}");
        }
        if *gone > 0 {
            let are = if *gone == 1 { "is" } else { "are" };
            text += &format!("; {gone} {are} not in the queue: ended, moved, or never there");
        }
        text
    }

    /// For programs.
    pub(crate) fn counts(&self) -> Value {
        let Self { waits_for, ended, gone } = self;
        json!({ "waits_for": waits_for, "ended": ended, "gone": gone })
    }
}

/// The cancellation of a batch in a transaction that may run more than once. If the outcome of a commit is unknown, the transaction runs again, and does not
/// find what it has removed. So the effect of the earlier attempt is the answer.
pub(crate) struct BatchCancel<'a> {
    id: &'a BatchId,
    earlier: Cell<Option<BatchCounts>>,
}

impl<'a> BatchCancel<'a> {
    pub(crate) fn new(id: &'a BatchId) -> Self {
        Self { id, earlier: Cell::new(None) }
    }

    /// Cancels it with its record. Returns its counts; `None`, without a record, if it is not there.
    pub(crate) async fn write(
        &self,
        tr: &Transaction,
        queue: &Queue,
        audit: &AuditStore,
        record: &Record,
    ) -> Result<Option<BatchCounts>, QueueError> {
        if let Some(counts) = queue.cancel_batch(tr, self.id).await? {
            self.earlier.set(Some(counts));
        }
        if self.earlier.get().is_some() {
            audit.write(tr, record);
        }
        Ok(self.earlier.get())
    }
}
