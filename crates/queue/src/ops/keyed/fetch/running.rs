//! How many items of scopes run.

use std::collections::BTreeMap;

use foundationdb::Transaction;
use foundationdb::future::FdbKeyValue;

use crate::keys::counters;
use crate::keys::keyed::{KeyedSpace, LANES};
use crate::model::error::QueueError;
use crate::model::limits::RuleBook;
use crate::ops::keyed::lanes::Lanes;
use crate::run::range_read::RangeRead;

/// The counts of all scopes are read together if not more items run than this many times the items of the fetch.
const FEW: u64 = 4;

/// What a fetch knows of the running items. Read without a conflict.
#[derive(Debug)]
pub(super) enum Running {
    /// Nothing: no rule that was known when the fetch began limits them.
    Unknown,
    /// How many of the queue run.
    OfQueue(Lanes),
    /// How many of each scope run. Of others none do.
    OfAll(BTreeMap<Vec<u8>, u64>),
}

impl Running {
    /// Reads how many items of the queue run, if a rule limits running items. `book`: the rules as far as they are known.
    pub(super) async fn read(
        keyed: &KeyedSpace,
        tr: &Transaction,
        book: &RuleBook,
    ) -> Result<Running, QueueError> {
        match book.most_running() {
            Some(_) => Ok(Running::OfQueue(Lanes::read(keyed, tr).await?)),
            None => Ok(Running::Unknown),
        }
    }

    /// Reads the counts of all scopes, if there are few. `k`: the items of the fetch.
    pub(super) async fn learn(
        &mut self,
        keyed: &KeyedSpace,
        tr: &Transaction,
        k: u64,
    ) -> Result<(), QueueError> {
        let Running::OfQueue(lanes) = self else { return Ok(()) };
        let running = lanes.running();
        if running > k.saturating_mul(FEW) {
            return Ok(());
        }
        // The rows of the queue, two of each item at most, and one more, which would tell that there are others.
        let most = usize::try_from(2 * running + LANES + 1).unwrap_or(usize::MAX);
        let rows = RangeRead::of(keyed.running_range()).limit(most).page(tr).await?;
        if !rows.has_more() {
            let of_row = |row: &FdbKeyValue| {
                let (scope, _) = keyed.decode_running(row.key()).filter(|(scope, _)| !scope.is_empty())?;
                Some((scope, counters::decode(Some(row.value()))))
            };
            *self = Running::OfAll(rows.iter().filter_map(of_row).collect());
        }
        Ok(())
    }

    /// How many items of a tenant or key run, or a few more; `None`: that is to be read. `most`: the scope's limit. `k`: the items of the fetch.
    pub(super) fn of(&self, scope: &[u8], most: u64, k: u64) -> Option<u64> {
        match self {
            Running::Unknown => None,
            // No more items of a scope run than of the queue. If these leave enough slots, and at least half of them, the exact number does not matter.
            Running::OfQueue(lanes) => {
                let running = lanes.running();
                (most > running.saturating_add(k) && running <= most / 2).then_some(running)
            }
            Running::OfAll(running) => Some(running.get(scope).copied().unwrap_or_default()),
        }
    }
}
