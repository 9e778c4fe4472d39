//! Batches as JSON, and what is known of one that was made to come after other items.

use std::collections::BTreeMap;

use kvqueue_queue::item_batch::{BatchCounts, BatchView, Join, NewBatch};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::base::json::{insert_bytes, insert_payload, time};

/// A batch as an object: how far it is, its counts, and its callback.
pub(super) fn batch_object(view: &BatchView) -> Value {
    let BatchView { id, created, committed, batch: NewBatch { callback, deadline }, counts } = view;
    let mut object = Map::new();
    object.insert("id".to_owned(), id.to_string().into());
    insert_bytes(&mut object, "queue", id.home());
    object.insert("state".to_owned(), state(view).into());
    for (name, at) in [("created", Some(*created)), ("committed", *committed), ("deadline", *deadline)] {
        object.extend(at.map(|at| (name.to_owned(), time(at).into())));
    }
    object.insert("counts".to_owned(), counts_object(counts).into());
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
fn state(view: &BatchView) -> &'static str {
    if view.committed.is_some() { "committed" } else { "open" }
}

/// The names of the counts of a batch, in their order.
pub(super) const COUNTS: [&str; 7] = ["members", "open", "done", "dead", "cancelled", "expired", "taken"];

/// The counts of a batch by name.
pub(super) fn counts_object(of: &BatchCounts) -> Map<String, Value> {
    let BatchCounts { members, done, dead, cancelled, expired, taken, .. } = *of;
    let counts = [members, of.open(), done, dead, cancelled, expired, taken];
    COUNTS.iter().zip(counts).map(|(name, n)| ((*name).to_owned(), json!(n))).collect()
}

/// How many items the callback of a batch waits for that was made to come after them.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Waits {
    /// Items that are waited for.
    waits_for: usize,
    /// Items that had ended, by how.
    ended: BTreeMap<String, usize>,
    /// Items that were not in their queues.
    gone: usize,
}

impl Waits {
    pub(super) fn of(joins: &[Join]) -> Self {
        let count = |is: fn(&Join) -> bool| joins.iter().filter(|join| is(join)).count();
        let mut ended = BTreeMap::new();
        for join in joins {
            if let Join::Ended(ending) = join {
                *ended.entry(ending.as_str().to_owned()).or_default() += 1;
            }
        }
        Self {
            waits_for: count(|join| matches!(join, Join::Joined(_))),
            ended,
            gone: count(|join| matches!(join, Join::Gone)),
        }
    }

    /// For people.
    pub(super) fn text(&self, id: &str) -> String {
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
}
