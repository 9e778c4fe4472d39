//! What a queue is in the database: all its records, decoded from the bytes that `docs/KEYSPACE.md` describes.
//!
//! The model makes the same of what it knows, and both must be equal after every commit.

pub(crate) mod batches;
mod cancelled;
mod element;
pub(crate) mod ended;
mod expiry;
mod fields;
mod holds;
mod index;
mod lease;
mod rates;
mod reader;
mod rules;
pub(crate) mod schedules;
mod side;

use std::collections::{BTreeMap, BTreeSet};

use kvqueue_queue::item_batch::BatchId;
use kvqueue_queue::{ItemId, LeaseId, Meta, Progress, Stamp};

pub(crate) use cancelled::Cancelled;
pub(crate) use element::{Ids, integers};
pub(crate) use holds::check_fetched;
pub(crate) use index::{Index, key_of, scopes};
pub(crate) use rates::check_started;
pub(crate) use reader::{Row, Rows, read};
pub(crate) use side::essence;

use crate::world::Millis;

/// Everything that is stored for a queue and means something.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) ready: BTreeMap<ItemId, Stored>,
    pub(crate) leases: BTreeMap<LeaseId, Held>,
    pub(crate) later: BTreeMap<(Millis, ItemId), Stored>,
    pub(crate) dead: BTreeMap<ItemId, Stored>,
    /// Which item has a unique key.
    pub(crate) unique: BTreeMap<Vec<u8>, ItemId>,
    /// How many items an operation pushed.
    pub(crate) operations: BTreeMap<Vec<u8>, u32>,
    /// The requests to be served.
    pub(crate) line: BTreeMap<Stamp, Want>,
    /// How often an item's effect was written, by handlers whose delivery is exactly-once.
    pub(crate) effects: BTreeMap<ItemId, u64>,
    pub(crate) counters: Counters,
    /// Whether the queue is frozen.
    pub(crate) frozen: bool,
    /// How the queue is divided, if it is.
    pub(crate) division: Option<Division>,
    /// Which items were cancelled on a lease, as long as that is known.
    pub(crate) cancelled: BTreeMap<LeaseId, Cancelled>,
    /// What is over for an item at a time: rows by time and item. The value is empty, or the unique key that is free then.
    pub(crate) expiry: BTreeMap<(Millis, ItemId), Vec<u8>>,
    /// The batches that call back here.
    pub(crate) batches: BTreeMap<BatchId, batches::Batch>,
    /// How long ended items are kept, and the items.
    pub(crate) kept: Option<ended::Kept>,
    pub(crate) ended: BTreeMap<ended::Key, ended::Ended>,
    /// The schedules, by their names.
    pub(crate) schedules: BTreeMap<String, schedules::Schedule>,
}

/// How a queue is divided into partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Division {
    /// How many partitions pushes use.
    pub(crate) count: u8,
    /// The most that there were.
    pub(crate) most: u8,
    /// How much younger than the oldest item a fetched item may be, in versions.
    pub(crate) max_disorder: u64,
}

/// An item as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stored {
    /// The whole payload.
    pub(crate) payload: Vec<u8>,
    /// The side record; an empty one where there is none.
    pub(crate) meta: Meta,
}

/// A lease as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Held {
    /// Whether whom it was written for has not been heard of since.
    pub(crate) served: bool,
    pub(crate) deadline: u64,
    pub(crate) length: u64,
    pub(crate) items: Vec<HeldItem>,
    /// How far items are, by their indexes, if the holder has said so.
    pub(crate) progress: Option<BTreeMap<usize, Progress>>,
}

/// An item of a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HeldItem {
    pub(crate) id: ItemId,
    pub(crate) settled: bool,
    /// `None` once it is settled: what is stored is then of no interest.
    pub(crate) stored: Option<Stored>,
}

/// What somebody asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Want {
    /// The lease that it is to be served with.
    pub(crate) lease: LeaseId,
    /// The most items.
    pub(crate) k: usize,
    /// The length of the lease in versions; 0: for good.
    pub(crate) length: u64,
    /// It means nothing after this version.
    pub(crate) deadline: u64,
}

/// What has been counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) npush: u64,
    pub(crate) npop: u64,
    pub(crate) ndone: u64,
    pub(crate) nlater: u64,
    pub(crate) ndue: u64,
    pub(crate) nback: u64,
    pub(crate) ndead: u64,
    pub(crate) ncancel: u64,
}

impl Image {
    /// What the two images do not have in common, for people.
    pub(crate) fn difference(&self, other: &Image) -> String {
        let mut lines = Vec::new();
        let mut part = |name: &str, ours: String, theirs: String| {
            if ours != theirs {
                lines.push(format!("{name}\n    the model:    {ours}\n    the database: {theirs}"));
            }
        };
        part("ready", format!("{:?}", self.ready), format!("{:?}", other.ready));
        part("leases", format!("{:?}", self.leases), format!("{:?}", other.leases));
        part("later", format!("{:?}", self.later), format!("{:?}", other.later));
        part("dead", format!("{:?}", self.dead), format!("{:?}", other.dead));
        part("unique", format!("{:?}", self.unique), format!("{:?}", other.unique));
        part("operations", format!("{:?}", self.operations), format!("{:?}", other.operations));
        part("line", format!("{:?}", self.line), format!("{:?}", other.line));
        part("effects", format!("{:?}", self.effects), format!("{:?}", other.effects));
        part("cancelled", format!("{:?}", self.cancelled), format!("{:?}", other.cancelled));
        part("expiry", format!("{:?}", self.expiry), format!("{:?}", other.expiry));
        part("batches", format!("{:?}", self.batches), format!("{:?}", other.batches));
        part("kept", format!("{:?}", self.kept), format!("{:?}", other.kept));
        part("ended", format!("{:?}", self.ended), format!("{:?}", other.ended));
        part("frozen", format!("{:?}", self.frozen), format!("{:?}", other.frozen));
        part("division", format!("{:?}", self.division), format!("{:?}", other.division));
        for name in self.schedules.keys().chain(other.schedules.keys()).collect::<BTreeSet<_>>() {
            let shown = |image: &Image| format!("{:?}", image.schedules.get(name));
            part(&format!("schedule {name}"), shown(self), shown(other));
        }
        part("counters", format!("{:?}", self.counters), format!("{:?}", other.counters));
        lines.join("\n  ")
    }
}
