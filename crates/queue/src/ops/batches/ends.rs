//! Counting members of batches that end in a transaction.

use std::collections::BTreeMap;

use foundationdb::Transaction;
use futures::future::try_join_all;
use mutant::{bound, mutant};

use super::{add, mark, wake_sweepers};
use crate::keys::batches::{BatchSpace, is_committed};
use crate::keys::{Space, meta};
use crate::model::error::QueueError;
use crate::model::history::Ending;
use crate::model::item_batch::BatchId;
use crate::run::pause::check_unfrozen_at;

/// How many batches are read at once.
fn together() -> usize {
    bound("batch-ends-together", 32)
}

/// Where the phase stands in the record of a migration. Without the feature `migration` there is no module that reads it.
const PHASE: usize = 17;
/// The phase of a queue that is being copied.
const LEAVING: u8 = 1;
/// The phase of a queue that lives in another database.
const LEFT: u8 = 3;

/// The members of batches that end, by batch and by the code of their ending. Without members it takes no memory of its own.
#[derive(Debug, Default)]
pub(crate) struct BatchEnds(BTreeMap<BatchId, BTreeMap<u8, u64>>);

/// The same when it is known which batches are there.
#[derive(Debug)]
pub(crate) struct Counted(Vec<Batch>);

/// A batch that is there, with its members that end.
#[derive(Debug)]
struct Batch {
    keys: BatchSpace,
    id: BatchId,
    is_committed: bool,
    /// Its home is being copied to another database.
    is_leaving: bool,
    ends: BTreeMap<u8, u64>,
}

impl BatchEnds {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a member that ends.
    pub(crate) fn add(&mut self, id: &BatchId, ending: Ending) {
        if !self.0.contains_key(id) {
            self.0.insert(id.clone(), BTreeMap::new());
        }
        if let Some(ends) = self.0.get_mut(id) {
            *ends.entry(ending.code()).or_default() += 1;
        }
    }

    /// Adds an item that ends, with its side record, to the batches that it is a member of. A record that cannot be read has none.
    pub(crate) fn add_record(&mut self, record: &[u8], ending: Ending) {
        for id in meta::batches(record).filter_map(BatchId::from_bytes) {
            self.add(&id, ending);
        }
    }

    /// Finds out which batches are there. They stay until the transaction commits, or it fails. Writes nothing.
    ///
    /// A batch that is gone has called back, at its deadline, or was cancelled. One whose home was moved to another database cannot be reached.
    ///
    /// # Errors
    /// [`QueueError::Frozen`], if the home of a batch is not the queue of the items, and its copy in another database has all that there is: it is about to
    /// live there.
    pub(crate) async fn read(self, space: &Space, tr: &Transaction) -> Result<Counted, QueueError> {
        let mut found = Vec::new();
        let mut all = self.0.into_iter();
        loop {
            let some: Vec<_> = all.by_ref().take(together()).map(|of| batch(space, tr, of)).collect();
            if some.is_empty() {
                return Ok(Counted(found));
            }
            found.extend(try_join_all(some).await?.into_iter().flatten());
        }
    }
}

/// A batch, if it is there.
async fn batch(
    space: &Space,
    tr: &Transaction,
    (id, ends): (BatchId, BTreeMap<u8, u64>),
) -> Result<Option<Batch>, QueueError> {
    let keys = space.batches_of(id.home());
    let record = tr.get(&keys.record_key(id.unique()), mutant("batch-end-without-conflict")).await?;
    let Some(record) = record else { return Ok(None) };
    let mut is_leaving = false;
    if id.home() != space.name.as_slice()
        && let Err(error) = check_unfrozen_at(tr, &keys.pause, id.home()).await
    {
        let phase = if error.frozen().is_some() { phase(&keys, tr).await? } else { None };
        match phase {
            Some(LEAVING) => is_leaving = true,
            Some(LEFT) => return Ok(None),
            _ => return Err(error),
        }
    }
    // A record of a later version may be committed.
    let is_committed = is_committed(&record).unwrap_or(true);
    Ok(Some(Batch { keys, id, is_committed, is_leaving, ends }))
}

/// How far the migration of a home has come. It does not come further before the transaction commits, or that fails.
async fn phase(keys: &BatchSpace, tr: &Transaction) -> Result<Option<u8>, QueueError> {
    let record = tr.get(&keys.migrate, false).await?;
    Ok(record.and_then(|record| record.get(PHASE).copied()))
}

impl Counted {
    /// Counts the members, and marks their batches. An open batch is marked when it is committed. Reads nothing.
    ///
    /// A migration notices a change of the home by its counters, which a mark changes too.
    pub(crate) fn write(self, tr: &Transaction) {
        for Batch { keys, id, is_committed, is_leaving, ends } in self.0 {
            for (code, n) in ends {
                add(&keys, tr, (id.unique(), code), n);
            }
            if is_committed {
                mark(&keys, tr, id.unique());
            } else if is_leaving {
                wake_sweepers(&keys, tr);
            }
        }
    }
}
