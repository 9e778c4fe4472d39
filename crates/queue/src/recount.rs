//! Counters, and the rows that they count. Other programs may push without counting, or count what they do not push.

use std::collections::{BTreeMap, BTreeSet};

use foundationdb::{Database, Transaction};

use crate::error::QueueError;
use crate::id::ItemId;
use crate::keys::element::{split_bytes, split_text};
use crate::keys::{counters, items, keyed, later, partitions};
use crate::kind::Kind;
use crate::ops::{kinds, recount as ops};
use crate::queue::Queue;
use crate::retry::{RetryError, RetryPolicy, run};

/// FoundationDB's `transaction_too_old`: five seconds are over.
const TOO_OLD: i32 = 1007;

/// How many items there are in a state, both at the same version.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counted {
    /// The value of the counters.
    pub by_counters: i64,
    /// The number of rows.
    pub by_rows: i64,
}

impl Counted {
    /// By how much the counters have to change.
    pub(crate) fn missing(&self) -> i64 {
        self.by_rows.wrapping_sub(self.by_counters)
    }
}

/// The counters of a queue, compared with its rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recount {
    /// Items that are ready. None in a recipe's queue, where no counter tells.
    pub ready: Option<Counted>,
    /// Items that wait for their time.
    pub waiting: Counted,
    /// Dead letters.
    pub dead: Counted,
}

impl Recount {
    /// Whether every counter says what is there.
    pub fn is_right(&self) -> bool {
        [self.ready.unwrap_or_default(), self.waiting, self.dead].iter().all(|it| it.missing() == 0)
    }
}

impl Queue {
    /// Counts the queue's rows and compares them with its counters. Snapshot reads of one version, which conflict with nobody: a read for
    /// every 8,192 rows, without values. Some ten million rows can be counted in the five seconds of a transaction.
    pub async fn compare_counters(&self, tr: &Transaction) -> Result<Recount, QueueError> {
        ops::compare(self.space(), tr).await
    }

    /// Makes sure that no items of another kind lie under the queue's name. Snapshot reads of a few keys.
    ///
    /// # Errors
    /// [`QueueError::OtherKind`] names one that does.
    pub async fn check_kind(&self, tr: &Transaction) -> Result<(), QueueError> {
        kinds::check(self.space(), tr).await
    }

    /// The same in a transaction of its own. `None` if the rows cannot be counted in five seconds.
    pub async fn compare(&self, db: &Database, policy: &RetryPolicy) -> Result<Option<Recount>, RetryError> {
        self.counting(db, policy, async |tr| ops::compare(self.space(), tr).await).await
    }

    /// Counts, and adds to each counter what it lacks. `None`, and nothing is changed, if the rows cannot be counted in five seconds.
    ///
    /// Producers and consumers may go on meanwhile, and do not conflict with it: each of their transactions changes counters and rows by the
    /// same number, so what a counter lacked when it was counted is what it lacks at the commit.
    pub async fn recount(&self, db: &Database, policy: &RetryPolicy) -> Result<Option<Recount>, RetryError> {
        self.counting(db, policy, async |tr| ops::recount(self.space(), tr).await).await
    }

    async fn counting(
        &self,
        db: &Database,
        policy: &RetryPolicy,
        count: impl AsyncFn(&Transaction) -> Result<Recount, QueueError>,
    ) -> Result<Option<Recount>, RetryError> {
        let count = &count;
        let done = run(db, policy, |tr| async move {
            let found = match count(&tr).await {
                // It would be again.
                Err(QueueError::Database(error)) if error.code() == TOO_OLD => Ok(None),
                found => found.map(Some),
            };
            (tr, found)
        });
        Ok(done.await?.value)
    }
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
}

/// The rows and counters of a queue.
#[derive(Debug, Default)]
struct Rows {
    ready: i64,
    /// Ready items of a keyed queue.
    keyed: i64,
    later: i64,
    dead: i64,
    npush: u64,
    npop: u64,
    nlater: u64,
    ndue: u64,
    ndead: u64,
}

impl RowCounter {
    /// For the queues behind a prefix.
    pub fn new(prefix: &[u8]) -> Self {
        Self {
            prefix: prefix.to_vec(),
            queues: BTreeMap::new(),
            recipes: BTreeMap::new(),
            texts: BTreeSet::new(),
        }
    }

    /// A row, in any order.
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
        let Some((name, rest)) = split_bytes(key) else { return };
        let Some((record, rest)) = split_bytes(rest) else { return };
        let rows = self.queues.entry(name).or_default();
        let number = || counters::decode(Some(value));
        match (record.as_slice(), rest.is_empty()) {
            (items::VAL | partitions::PART, false) => rows.ready += 1,
            (keyed::KVAL, false) => rows.keyed += 1,
            (later::LATER, false) => rows.later += 1,
            (crate::keys::DEAD, false) => rows.dead += 1,
            (counters::NPUSH, true) => rows.npush = number(),
            (counters::NPOP, true) => rows.npop = number(),
            (counters::NLATER, true) => rows.nlater = number(),
            (counters::NDUE, true) => rows.ndue = number(),
            (counters::NDEAD, true) => rows.ndead = number(),
            _ => {}
        }
    }

    /// Each queue by its name.
    pub fn queues(&self) -> impl Iterator<Item = (&[u8], Recount)> {
        self.queues.iter().map(|(name, rows)| {
            let counted = |by_counters, by_rows| Counted { by_counters, by_rows };
            // Items of both kinds are counted by the same counters.
            let by_rows = rows.ready + rows.keyed;
            let ready = counted(counters::difference(rows.npush, rows.npop), by_rows);
            // A recipe's items lie elsewhere, and nobody has to count them.
            let is_recipe = self.recipes.contains_key(name) && by_rows == 0;
            let recount = Recount {
                ready: (!is_recipe).then_some(ready),
                waiting: counted(counters::difference(rows.nlater, rows.ndue), rows.later),
                dead: counted(rows.ndead.cast_signed(), rows.dead),
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
