//! Counting the items that a push adds to batches.

use std::collections::{BTreeMap, BTreeSet};

use foundationdb::Transaction;
use futures::future::try_join_all;
use mutant::mutant;

use super::add;
use crate::keys::Space;
use crate::keys::batches::{BatchSpace, MEMBERS, is_committed};
use crate::model::error::QueueError;
use crate::model::item_batch::BatchId;
use crate::run::pause::check_unfrozen_at;

/// The batches of a push, and how many members it adds to each.
#[derive(Debug, Default)]
pub(crate) struct Members<'a>(BTreeMap<&'a BatchId, (BatchSpace, u64)>);

impl<'a> Members<'a> {
    /// Makes sure that the batches of items are open. They stay open until the transaction commits, or it fails.
    pub(crate) async fn check(
        space: &Space,
        tr: &Transaction,
        ids: impl Iterator<Item = &'a BatchId>,
    ) -> Result<Members<'a>, QueueError> {
        let ids: BTreeSet<&BatchId> = ids.collect();
        let members = try_join_all(ids.into_iter().map(|id| open(space, tr, id))).await?;
        Ok(Members(members.into_iter().collect()))
    }

    /// Adds an item that is stored.
    pub(crate) fn add(&mut self, id: &BatchId) {
        if let Some((_, n)) = self.0.get_mut(id) {
            *n += 1;
        }
    }

    /// Counts them. Reads nothing.
    pub(crate) fn write(self, tr: &Transaction) {
        for (id, (keys, n)) in self.0.into_iter().filter(|(_, (_, n))| *n > 0) {
            add(&keys, tr, (id.unique(), MEMBERS), n);
        }
    }
}

/// A batch, if it is open.
async fn open<'a>(
    space: &Space,
    tr: &Transaction,
    id: &'a BatchId,
) -> Result<(&'a BatchId, (BatchSpace, u64)), QueueError> {
    let keys = space.batches_of(id.home());
    let key = keys.record_key(id.unique());
    let record = tr.get(&key, mutant("batch-push-without-conflict")).await?;
    let record = record.ok_or_else(|| QueueError::NoBatch { id: id.clone() })?;
    match is_committed(&record) {
        None => return Err(QueueError::unreadable(&key)),
        Some(true) => return Err(QueueError::BatchCommitted { id: id.clone() }),
        Some(false) => {}
    }
    check_unfrozen_at(tr, &keys.pause, id.home()).await?;
    Ok((id, (keys, 0)))
}
