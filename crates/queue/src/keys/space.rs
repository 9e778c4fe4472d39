//! The key space of one queue: its records' keys, packed once.

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use crate::keys::agenda::{Agenda, Event};
use crate::keys::batches::BatchSpace;
use crate::keys::keyed::{KVAL, KeyedSpace};
use crate::keys::range::range;
use crate::keys::schedules::ScheduleSpace;
use crate::keys::{
    Counter, append_bytes, cancelled, chunks, claims, clocks, duty, ended, ended_by, items, later, leases,
    meta, operations, partitions, pause, progress, times, tokens, wants,
};
use crate::model::element::{STAMP, append_text};
use crate::model::error::NameError;
use crate::model::id::ItemId;
use crate::model::id_layout::before_stamp;
use crate::model::kind::Kind;
use crate::model::recorder::Recorder;
use crate::model::sizes::{MAX_NAME, MAX_PREFIX};

/// Second element of the key of a dead letter.
pub(crate) const DEAD: &[u8] = b"dead";

/// The second element of the key of a migration's record.
const MIGRATE: &[u8] = b"migrate";

/// Second element of the key under which an item is the only one.
const UNIQUE: &[u8] = b"unique";

/// The packed keys of one queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Space {
    /// The queue's name, as given.
    pub(crate) name: Vec<u8>,
    pub(crate) kind: Kind,
    /// Prefix and (q): what every key of the queue begins with, but a recipe's items.
    pub(crate) queue: Vec<u8>,
    /// The prefix of every ready item's key: (q, "val"), (q, "kval"), or text (q). What follows it is the item's id.
    pub(crate) ready: Vec<u8>,
    /// The prefix of the keys of ready items in partitions from 1 on: (q, "part").
    pub(crate) parted: Vec<u8>,
    /// The partition whose ready items this space has.
    pub(crate) partition: u8,
    /// The same of a recipe's queue of this name, if this is not one. A name that is no text has none.
    pub(crate) recipe: Option<Vec<u8>>,
    /// The same of the FIFO and the keyed queue of this name, but for this one.
    pub(crate) stamped: Vec<Vec<u8>>,
    /// The records that only a keyed queue has.
    pub(crate) keyed: Option<Box<KeyedSpace>>,
    /// The keys of the counters, in the order of [`Counter::ALL`].
    pub(crate) counters: [Vec<u8>; Counter::ALL.len()],
    /// The key prefix of each kind of record.
    pub(crate) meta: Vec<u8>,
    pub(crate) chunks: Vec<u8>,
    pub(crate) leases: Vec<u8>,
    pub(crate) held: Vec<u8>,
    pub(crate) later: Agenda,
    pub(crate) dead: Vec<u8>,
    pub(crate) bodies: Vec<u8>,
    pub(crate) dues: Vec<u8>,
    pub(crate) expiry: Agenda,
    pub(crate) cancelled: Vec<u8>,
    /// The key prefix of the progress of leases.
    pub(crate) progress: Vec<u8>,
    pub(crate) unique: Vec<u8>,
    pub(crate) operations: Vec<u8>,
    pub(crate) oplog: Vec<u8>,
    pub(crate) tokens: Vec<u8>,
    pub(crate) wants: Vec<u8>,
    /// (q, "sweep").
    pub(crate) claim: Vec<u8>,
    /// (q, "duty").
    pub(crate) duty: Vec<u8>,
    /// (q, "clocks").
    pub(crate) clocks: Vec<u8>,
    /// (q, "times").
    pub(crate) times: Vec<u8>,
    /// (q, "partitions").
    pub(crate) partitions: Vec<u8>,
    /// (q, "pause").
    pub(crate) pause: Vec<u8>,
    /// (q, "migrate").
    pub(crate) migrate: Vec<u8>,
    /// The key prefixes of ended items, by time, by id and by attribute.
    pub(crate) ended: Vec<u8>,
    pub(crate) ended_ids: Vec<u8>,
    pub(crate) ended_by: Vec<u8>,
    /// The key prefix of results.
    pub(crate) results: Vec<u8>,
    /// (q, "history").
    pub(crate) history: Vec<u8>,
    /// Records the ends of items; no key.
    pub(crate) recorder: Option<Recorder>,
}

impl Space {
    /// Packs the keys of the queue `name` behind the raw bytes `prefix`.
    pub(crate) fn new(prefix: &[u8], name: &[u8], kind: Kind) -> Result<Space, NameError> {
        check_prefix(prefix)?;
        match name.len() {
            0 => return Err(NameError::Empty),
            len if len > MAX_NAME => return Err(NameError::TooLong { len }),
            _ => {}
        }
        let mut queue = prefix.to_vec();
        append_bytes(&mut queue, name);
        let record = |kind: &[u8]| {
            let mut key = queue.clone();
            append_bytes(&mut key, kind);
            key
        };
        let (fifo, parted, keyed) = (record(items::VAL), record(partitions::PART), record(KVAL));
        let recipe = std::str::from_utf8(name).map(|text| {
            let mut subspace = prefix.to_vec();
            append_text(&mut subspace, text);
            subspace
        });
        let (ready, stamped, recipe) = match kind {
            Kind::Fifo => (fifo, vec![keyed], recipe.ok()),
            Kind::Keyed => (keyed, vec![fifo, parted.clone()], recipe.ok()),
            Kind::Recipe(_) | Kind::Priority(..) => {
                (recipe.map_err(|_| NameError::NotText)?, vec![fifo, parted.clone(), keyed], None)
            }
        };
        Ok(Space {
            name: name.to_vec(),
            kind,
            ready,
            parted,
            partition: 0,
            recipe,
            stamped,
            counters: Counter::ALL.map(|counter| counter.key(&queue)),
            meta: record(meta::META),
            chunks: record(chunks::CHUNK),
            leases: record(leases::LEASE),
            held: record(leases::HELD),
            later: Agenda::new(&queue, Event::Ready),
            dead: record(DEAD),
            bodies: record(later::BODY),
            dues: record(later::DUE),
            expiry: Agenda::new(&queue, Event::Expiry),
            cancelled: record(cancelled::CANCELLED),
            progress: record(progress::PROGRESS),
            unique: record(UNIQUE),
            operations: record(operations::OP),
            oplog: record(operations::OPLOG),
            tokens: record(tokens::TOKEN),
            wants: record(wants::WANT),
            claim: record(claims::SWEEP),
            duty: record(duty::DUTY),
            clocks: record(clocks::CLOCKS),
            times: record(times::TIMES),
            partitions: record(partitions::PARTITIONS),
            pause: record(pause::PAUSE),
            migrate: record(MIGRATE),
            ended: record(ended::ENDED),
            ended_ids: record(ended::ENDED_ID),
            ended_by: record(ended_by::ENDED_BY),
            results: record(ended::RESULT),
            history: record(ended::HISTORY),
            recorder: None,
            keyed: (kind == Kind::Keyed).then(|| Box::new(KeyedSpace::new(&queue))),
            queue,
        })
    }

    /// All keys of the queue but a recipe's items, as the tuple layer's range of (q).
    pub(crate) fn queue_range(&self) -> (Vec<u8>, Vec<u8>) {
        range(&self.queue)
    }

    /// The same queue with the ready items of another partition. Their keys begin alike in all partitions but 0.
    pub(crate) fn in_partition(&self, partition: u8) -> Space {
        let ready = if partition == 0 { self.ready.clone() } else { self.parted.clone() };
        Space { partition, ready, ..self.clone() }
    }

    /// All ready items; of a queue with partitions those of partition 0, or of the one that this is the space of.
    pub(crate) fn item_range(&self) -> (Vec<u8>, Vec<u8>) {
        range(&[self.ready.as_slice(), &before_stamp(self.partition)].concat())
    }

    /// All ready items in partitions from 1 on.
    pub(crate) fn parted_range(&self) -> (Vec<u8>, Vec<u8>) {
        range(&self.parted)
    }

    /// The side records of the items in [`Space::item_range`].
    pub(crate) fn meta_range(&self) -> (Vec<u8>, Vec<u8>) {
        match (self.kind, self.partition) {
            (Kind::Fifo, 0) => ([&self.meta[..], &[STAMP]].concat(), [&self.meta[..], &[STAMP + 1]].concat()),
            (Kind::Fifo, i) => range(&[self.meta.as_slice(), &before_stamp(i)].concat()),
            (Kind::Recipe(_) | Kind::Priority(..) | Kind::Keyed, _) => range(&self.meta),
        }
    }

    /// The key of a counter.
    pub(crate) fn counter(&self, counter: Counter) -> &[u8] {
        &self.counters[counter as usize]
    }

    /// The keys of the [counters that a migration compares](Counter::COMPARED).
    pub(crate) fn compared_counters(&self) -> [&[u8]; Counter::COMPARED.len()] {
        Counter::COMPARED.map(|counter| self.counter(counter))
    }

    /// All token slots.
    pub(crate) fn token_range(&self) -> (Vec<u8>, Vec<u8>) {
        range(&self.tokens)
    }

    /// The key of a ready item.
    pub(crate) fn ready_key(&self, id: &ItemId) -> Vec<u8> {
        let is_parted = self.kind == Kind::Fifo && id.partition() > 0;
        let before = if is_parted { &self.parted } else { &self.ready };
        [before, id.as_bytes()].concat()
    }

    /// The key of a ready item's side record.
    pub(crate) fn meta_key(&self, id: &ItemId) -> Vec<u8> {
        [&self.meta, id.as_bytes()].concat()
    }

    /// The key of a dead letter's record.
    pub(crate) fn dead_key(&self, id: &ItemId) -> Vec<u8> {
        [&self.dead, id.as_bytes()].concat()
    }

    /// The key of the value of a dead letter, or of an item put aside.
    pub(crate) fn body_key(&self, id: &ItemId) -> Vec<u8> {
        [&self.bodies, id.as_bytes()].concat()
    }

    /// The key of the time of an item put aside.
    pub(crate) fn due_key(&self, id: &ItemId) -> Vec<u8> {
        [&self.dues, id.as_bytes()].concat()
    }

    /// The key under which an item is the only one.
    pub(crate) fn unique_key(&self, key: &[u8]) -> Vec<u8> {
        with_bytes(&self.unique, key)
    }

    /// The rows of an event.
    pub(crate) fn agenda(&self, event: Event) -> Cow<'_, Agenda> {
        match event {
            Event::Ready => Cow::Borrowed(&self.later),
            Event::Expiry => Cow::Borrowed(&self.expiry),
            // Few transactions have to do with the others.
            event => Cow::Owned(Agenda::new(&self.queue, event)),
        }
    }

    /// The keys of the queue's schedules.
    pub(crate) fn schedules(&self) -> ScheduleSpace {
        ScheduleSpace::new(&self.queue)
    }

    /// The keys of the batches whose callbacks go to the queue.
    pub(crate) fn batches(&self) -> BatchSpace {
        BatchSpace::new(&self.queue)
    }

    /// The keys of the batches whose callbacks go to the queue of this name, behind the same prefix.
    pub(crate) fn batches_of(&self, home: &[u8]) -> BatchSpace {
        if home == self.name {
            return self.batches();
        }
        BatchSpace::new(&with_bytes(self.prefix(), home))
    }

    /// What stands before the keys of the queue, and of all queues that its items can be in batches of.
    pub(crate) fn prefix(&self) -> &[u8] {
        &self.queue[..self.queue.len() - with_bytes(&[], &self.name).len()]
    }

    /// The key of an operation.
    pub(crate) fn operation_key(&self, id: &[u8]) -> Vec<u8> {
        with_bytes(&self.operations, id)
    }
}

fn with_bytes(subspace: &[u8], element: &[u8]) -> Vec<u8> {
    let mut key = subspace.to_vec();
    append_bytes(&mut key, element);
    key
}

/// Whether queues can lie behind this prefix.
fn check_prefix(prefix: &[u8]) -> Result<(), NameError> {
    if prefix.len() > MAX_PREFIX {
        return Err(NameError::PrefixTooLong { len: prefix.len() });
    }
    if prefix.first() == Some(&0xff) {
        return Err(NameError::PrefixReserved);
    }
    Ok(())
}
