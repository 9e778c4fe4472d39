//! Ending items of a lease: done, retried, released, postponed or dead.

use foundationdb::Transaction;
use foundationdb::options::MutationType;

use crate::error::QueueError;
use crate::keys::keyed::HoldCause;
use crate::keys::leases::{Header, Held, LeaseId};
use crate::keys::{Space, counters, meta};
use crate::lease::ItemOutcome;
use crate::meta::Millis;
use crate::meta::{Failure, Meta};
use crate::ops::claim::forget;
use crate::ops::keyed::changes::Changes;
use crate::ops::lease::row;
use crate::ops::scan::{Row, decode_meta};
use crate::ops::version::now;
use crate::ops::{cost, ended, lease, place};
use crate::time::millis;

/// Acknowledges items of the lease `id`, by their index in `held`, and sets a new deadline for the
/// others. Items acknowledged before are passed over, so an acknowledgement may be repeated.
/// `started`: when the lease was fetched, if that is known. Returns the header as it then is. The caller has read the header with a conflict, and makes sure
/// that it fits into a transaction: [`part`], [`cost`].
pub(crate) async fn acknowledge(
    space: &Space,
    tr: &Transaction,
    (id, mut header): (LeaseId, Header),
    held: &[Held],
    outcomes: &[(usize, ItemOutcome)],
    started: Option<Millis>,
) -> Result<Header, QueueError> {
    let mut endings = ended::begin(space, tr).await?;
    let mut counts = OutcomeCounts::default();
    // Acknowledgements of queues without keys are not to pay for this.
    let mut changes = space.keyed.is_some().then(Changes::default);
    for (index, outcome) in outcomes {
        if header.acknowledged.contains(*index) {
            continue;
        }
        header.acknowledged.insert(*index);
        let row = row(&held[*index]);
        if let Some(changes) = &mut changes {
            changes.left_lease(space, &row.id);
            match outcome {
                ItemOutcome::Done | ItemOutcome::DoneWith(_) => {}
                ItemOutcome::Release | ItemOutcome::Retry { due: None, .. } => {
                    changes.made_ready(space, &row.id);
                }
                ItemOutcome::Throttle { scope, wait } => {
                    changes.made_ready(space, &row.id);
                    changes.throttled(space, &row.id, *scope, *wait);
                }
                ItemOutcome::Postpone { .. } | ItemOutcome::Retry { due: Some(_), .. } => {
                    changes.put_away(space, &row.id, HoldCause::Scheduled);
                }
                ItemOutcome::Dead(_) => changes.put_away(space, &row.id, HoldCause::Dead),
            }
        }
        match outcome {
            ItemOutcome::Done | ItemOutcome::DoneWith(_) => {
                forget(space, tr, &row)?;
                if let Some(endings) = &mut endings {
                    match outcome {
                        ItemOutcome::DoneWith(result) => endings.add_done_with(tr, &row, result),
                        _ => endings.add_done(&row),
                    }
                }
                counts.done += 1;
            }
            ItemOutcome::Release | ItemOutcome::Throttle { .. } => {
                place::ready(space, tr, &row.id, &row.value, &row.meta);
                counts.ready += 1;
            }
            ItemOutcome::Postpone { due } => {
                place::later(space, tr, &row.id, millis(*due), &row.value, &decode_meta(space, &row)?);
                counts.later += 1;
            }
            ItemOutcome::Retry { due: None, failure } => {
                let meta = failed(space, &row, failure)?;
                place::ready(space, tr, &row.id, &row.value, &meta::encode(&meta));
                counts.ready += 1;
            }
            ItemOutcome::Retry { due: Some(due), failure } => {
                place::later(space, tr, &row.id, millis(*due), &row.value, &failed(space, &row, failure)?);
                counts.later += 1;
            }
            ItemOutcome::Dead(failure) => {
                let meta = Meta { death: Some(failure.cut()), ..failed(space, &row, failure)? };
                place::dead(space, tr, &row.id, &row.value, &meta);
                if let Some(endings) = &mut endings {
                    endings.add_dead(&row.id, &meta);
                }
                counts.dead += 1;
            }
        }
    }
    counts.add(space, tr);
    if let Some(endings) = endings {
        endings.write(tr, started);
    }
    if let Some(changes) = changes {
        changes.write(space, tr).await?;
    }
    header.served = false;
    header.deadline = now(tr).await?.saturating_add(header.length);
    lease::update(space, tr, id, &header);
    Ok(header)
}

/// How many of the first outcomes go into one transaction: one does, whatever it takes.
pub(crate) fn part(space: &Space, held: &[Held], outcomes: &[(usize, ItemOutcome)]) -> usize {
    let mut bytes = 0;
    let fit = outcomes.iter().take_while(|(index, outcome)| {
        bytes += held.get(*index).map_or(0, |held| cost(space, held, outcome));
        bytes <= cost::PART
    });
    fit.count().max(1).min(outcomes.len())
}

/// The bytes that the database counts for an outcome: a little too many, never too few.
pub(crate) fn cost(space: &Space, held: &Held, outcome: &ItemOutcome) -> usize {
    let Held { id, meta, value } = held;
    match outcome {
        ItemOutcome::Done | ItemOutcome::DoneWith(_) => {
            let ended = cost::forget(space, id, meta) + cost::ended(space, id, meta.len(), 0);
            match outcome {
                ItemOutcome::DoneWith(result) => ended + cost::result(space, id, result.len()),
                _ => ended,
            }
        }
        ItemOutcome::Release | ItemOutcome::Throttle { .. } => {
            cost::ready(space, id, value.len(), meta.len())
        }
        // An item without a side record gets one.
        ItemOutcome::Postpone { .. } => cost::aside(space, id, value.len(), meta.len() + cost::failure(0)),
        ItemOutcome::Retry { due: None, failure } => {
            cost::ready(space, id, value.len(), meta.len() + cost::failure(failure.reason.len()))
        }
        ItemOutcome::Retry { due: Some(_), failure } => {
            cost::aside(space, id, value.len(), meta.len() + cost::failure(failure.reason.len()))
        }
        ItemOutcome::Dead(failure) => {
            let reason = failure.reason.len();
            cost::dead(space, id, value.len(), meta, reason) + cost::ended(space, id, meta.len(), reason)
        }
    }
}

/// How many items were acknowledged, and how.
#[derive(Debug, Default)]
struct OutcomeCounts {
    done: usize,
    ready: usize,
    later: usize,
    dead: usize,
}

impl OutcomeCounts {
    /// Each counter once: every operand counts in the size of a transaction.
    fn add(&self, space: &Space, tr: &Transaction) {
        if self.done > 0 {
            tr.atomic_op(&space.ndone, &counters::increment(self.done), MutationType::Add);
        }
        place::count_back(space, tr, self.ready, self.later);
        place::count_dead(space, tr, self.dead);
    }
}

/// The side record of an item whose attempt has failed.
fn failed(space: &Space, row: &Row, failure: &Failure) -> Result<Meta, QueueError> {
    let mut meta = decode_meta(space, row)?;
    meta.attempts = meta.attempts.saturating_add(1);
    meta.failed(failure);
    Ok(meta)
}
