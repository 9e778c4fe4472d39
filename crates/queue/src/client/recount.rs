//! Counters, and the rows that they count. Other programs may push without counting, or count what they do not push.

use std::collections::{BTreeMap, BTreeSet};

use foundationdb::{Database, Transaction};

use crate::client::queue::Queue;
use crate::keys::agenda::Event;
use crate::keys::keyed::KeyedSpace;
use crate::keys::{Counter, counters, items, keyed, leases, partitions};
use crate::model::codes::TOO_OLD;
use crate::model::element::{split_bytes, split_text};
use crate::model::error::QueueError;
use crate::model::id::ItemId;
use crate::model::id_layout::split_id;
use crate::model::kind::Kind;
use crate::model::recount::{Counted, IndexFaults, Recount};
use crate::model::retry_error::RetryError;
use crate::ops::index::lease_rows::LeaseRows;
use crate::ops::index::rows::IndexRows;
use crate::ops::{kinds, recount as ops};
use crate::run::retry::{RetryPolicy, run};

impl Queue {
    /// Counts the queue's rows and compares them with its counters, and the places of keys with their items. Snapshot reads of one version, which conflict with nobody: a read for
    /// every 8,192 rows, without values. Some ten million rows can be counted in the five seconds of a transaction. Of a keyed queue, the index and all running items are read, too.
    pub async fn compare_counters(&self, tr: &Transaction) -> Result<Recount, QueueError> {
        let found = ops::compare(self.space(), tr).await?;
        Ok(Recount { index: ops::index_faults(self.space(), tr).await?, ..found })
    }

    /// Makes sure that no items of another kind lie under the queue's name. Snapshot reads of a few keys.
    ///
    /// # Errors
    /// [`QueueError::OtherKind`] names one that does.
    pub async fn check_kind(&self, tr: &Transaction) -> Result<(), QueueError> {
        kinds::check(self.space(), tr).await
    }

    /// The same in transactions of its own. `None` if the rows cannot be counted in five seconds.
    pub async fn compare(&self, db: &Database, policy: &RetryPolicy) -> Result<Option<Recount>, RetryError> {
        let compare = async |tr: &Transaction| ops::compare(self.space(), tr).await;
        let Some(found) = in_time(db, policy, compare).await? else { return Ok(None) };
        let index = async |tr: &Transaction| ops::index_faults(self.space(), tr).await;
        let index = match self.space().keyed {
            Some(_) => in_time(db, policy, index).await?.flatten(),
            None => None,
        };
        Ok(Some(Recount { index, ..found }))
    }

    /// Counts, and adds to each counter what it lacks. `None`, and nothing is changed, if the rows cannot be counted in five seconds. Keys of a keyed queue that have lost their
    /// places get new ones, and the counters of running items are corrected.
    ///
    /// Producers and consumers may go on meanwhile, and do not conflict with it: each of their transactions changes counters and rows by the
    /// same number, so what a counter lacked when it was counted is what it lacks at the commit. A key that is to get a place changes its place in no other transaction, or they conflict.
    pub async fn recount(&self, db: &Database, policy: &RetryPolicy) -> Result<Option<Recount>, RetryError> {
        let recount = async |tr: &Transaction| ops::recount(self.space(), tr).await;
        let Some(found) = in_time(db, policy, recount).await? else { return Ok(None) };
        let index = match &self.space().keyed {
            Some(keyed) => self.repair_index(db, policy, keyed).await?,
            None => None,
        };
        Ok(Some(Recount { index, ..found }))
    }

    /// Repairs the index, and returns what was wrong.
    async fn repair_index(
        &self,
        db: &Database,
        policy: &RetryPolicy,
        keyed: &KeyedSpace,
    ) -> Result<Option<IndexFaults>, RetryError> {
        let space = self.space();
        let mut all: Option<IndexFaults> = None;
        loop {
            let repair = async |tr: &Transaction| ops::repair_index(space, keyed, tr).await;
            let Some((found, is_left)) = in_time(db, policy, repair).await?.flatten() else { return Ok(all) };
            // Later passes find again what is left.
            all = all.or(Some(found.counts()));
            if !is_left {
                break;
            }
        }
        let (mut all, mut behind) = (all.unwrap_or_default(), None);
        loop {
            let behind_key: Option<&[u8]> = behind.as_deref();
            let list = async |tr: &Transaction| ops::list_page(space, keyed, tr, behind_key).await;
            let Some(page) = in_time(db, policy, list).await? else { return Ok(Some(all)) };
            all.lost_keys += page.keys.len() as u64;
            behind = page.through;
            if behind.is_none() {
                return Ok(Some(all));
            }
        }
    }
}

/// Runs a body; `None` if it does not end in the five seconds of a transaction.
async fn in_time<T>(
    db: &Database,
    policy: &RetryPolicy,
    body: impl AsyncFn(&Transaction) -> Result<T, QueueError>,
) -> Result<Option<T>, RetryError> {
    let body = &body;
    let done = run(db, policy, |tr| async move {
        let found = match body(&tr).await {
            // It would be again.
            Err(QueueError::Database(error)) if error.code() == TOO_OLD => Ok(None),
            found => found.map(Some),
        };
        (tr, found)
    });
    Ok(done.await?.value)
}

/// Some of the queues that a program has named by a text, where a queue's name is a byte string: no kvqueue finds them. Snapshot reads,
/// a few for each of the first hundred texts behind the prefix.
pub async fn text_queues(tr: &Transaction, prefix: &[u8]) -> Result<Vec<String>, QueueError> {
    ops::text_queues(tr, prefix).await
}

/// Counts rows that it is shown: for a database that is read as a whole, without opening it.
#[derive(Debug)]
pub struct RowCounter {
    prefix: Vec<u8>,
    queues: BTreeMap<Vec<u8>, Rows>,
    /// Texts that items of a recipe's queue may lie behind, and the kind of the first of these that is laid out as such an item.
    recipes: BTreeMap<Vec<u8>, Option<&'static str>>,
    texts: BTreeSet<Vec<u8>>,
    /// The records of a keyed queue without the queue's name.
    keyed: KeyedSpace,
}

/// The rows and counters of a queue.
#[derive(Debug, Default)]
struct Rows {
    index: IndexRows,
    leases: LeaseRows,
    ready: i64,
    /// Ready items of a keyed queue.
    keyed: i64,
    later: i64,
    dead: i64,
    counters: [u64; Counter::ALL.len()],
}

impl RowCounter {
    /// For the queues behind a prefix.
    pub fn new(prefix: &[u8]) -> Self {
        Self {
            prefix: prefix.to_vec(),
            queues: BTreeMap::new(),
            recipes: BTreeMap::new(),
            texts: BTreeSet::new(),
            keyed: KeyedSpace::new(&[]),
        }
    }

    /// A row, in the order of keys.
    pub fn show(&mut self, key: &[u8], value: &[u8]) {
        let Some(key) = key.strip_prefix(self.prefix.as_slice()) else { return };
        if let Some((name, rest)) = split_text(key) {
            if ops::is_npush(rest) {
                self.texts.insert(name);
                return;
            }
            let kind = self.recipes.entry(name).or_default();
            *kind = kind.or_else(|| Kind::of_id(&ItemId::new(rest.to_vec().into())));
            return;
        }
        let Some((name, whole)) = split_bytes(key) else { return };
        let Some((record, rest)) = split_bytes(whole) else { return };
        let rows = self.queues.entry(name).or_default();
        rows.index.show(&self.keyed, whole, value);
        match (record.as_slice(), rest.is_empty()) {
            (items::VAL | partitions::PART, false) => rows.ready += 1,
            (keyed::KVAL, false) => {
                rows.keyed += 1;
                split_id(rest).into_iter().for_each(|(key, _)| rows.index.has_item(key));
            }
            (leases::HELD, false) => rows.leases.show_piece(rest, value),
            (leases::LEASE, false) => rows.leases.show_header(rest, value, &mut rows.index),
            (element, false) if element == Event::Ready.element() => rows.later += 1,
            (crate::keys::DEAD, false) => rows.dead += 1,
            (element, true) => {
                let counter = Counter::ALL.into_iter().find(|counter| counter.name().as_bytes() == element);
                counter.into_iter().for_each(|of| rows.counters[of as usize] = counters::decode(Some(value)));
            }
            _ => {}
        }
    }

    /// Each queue by its name.
    pub fn queues(&self) -> impl Iterator<Item = (&[u8], Recount)> {
        self.queues.iter().map(|(name, rows)| {
            let counter = |counter: Counter| rows.counters[counter as usize];
            let counted = |by_counters, by_rows| Counted { by_counters, by_rows };
            // Items of both kinds are counted by the same counters.
            let by_rows = rows.ready + rows.keyed;
            let ready = counted(counters::difference(counter(Counter::Push), counter(Counter::Pop)), by_rows);
            // A recipe's items lie elsewhere, and nobody has to count them.
            let is_recipe = self.recipes.contains_key(name) && by_rows == 0;
            let recount = Recount {
                ready: (!is_recipe).then_some(ready),
                waiting: counted(
                    counters::difference(counter(Counter::Later), counter(Counter::Due)),
                    rows.later,
                ),
                dead: counted(counter(Counter::Dead).cast_signed(), rows.dead),
                index: (rows.keyed > 0 || !rows.index.is_empty())
                    .then(|| rows.index.faults().counts())
                    .filter(|_| !rows.leases.is_unreadable),
            };
            (name.as_slice(), recount)
        })
    }

    /// The kinds, by their names, of which there are ready items under a queue's name.
    pub fn kinds(&self, name: &[u8]) -> impl Iterator<Item = &'static str> + use<> {
        let has = |items: fn(&Rows) -> i64| self.queues.get(name).is_some_and(|rows| items(rows) > 0);
        let fifo = has(|rows| rows.ready).then(|| Kind::Fifo.name());
        let keyed = has(|rows| rows.keyed).then(|| Kind::Keyed.name());
        fifo.into_iter().chain(keyed).chain(self.recipes.get(name).copied().flatten())
    }

    /// As [`text_queues`].
    pub fn text_queues(&self) -> Vec<String> {
        self.texts.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect()
    }
}
