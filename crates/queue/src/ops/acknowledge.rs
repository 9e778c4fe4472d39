//! Ending items of a lease: done, retried, released, postponed, dead or expired.

use foundationdb::Transaction;
use foundationdb::options::MutationType;

use crate::keys::leases::{Header, Held};
use crate::keys::{Space, counters, meta};
use crate::model::error::QueueError;
use crate::model::holds::HoldCause;
use crate::model::lease_id::LeaseId;
use crate::model::meta::{Failure, Meta};
use crate::model::outcome::ItemOutcome;
use crate::model::recorder::{Holding, Recorder};
use crate::model::rules::OnExpiry;
use crate::model::time::millis;
use crate::ops::claim::{forget, forget_undone};
use crate::ops::keyed::changes::Changes;
use crate::ops::lease::row_now;
use crate::ops::scan::{Row, decode_meta};
use crate::ops::{cost, ended, expiry, lease, place};
use crate::run::version::now;

/// Acknowledges items of the lease `id`, by their index in `held`, and sets a new deadline for the
/// others. Items acknowledged before are passed over, so an acknowledgement may be repeated.
/// `holding`: what the history has of the lease. Returns the header as it then is. The caller has read the header with a conflict, and makes sure
/// that it fits into a transaction: [`part`], [`cost`].
pub(crate) async fn acknowledge(
    space: &Space,
    tr: &Transaction,
    (id, mut header): (LeaseId, Header),
    held: &[Held],
    outcomes: &[(usize, ItemOutcome)],
    holding: Option<&Holding>,
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
        let row = row_now(&header, *index, &held[*index]);
        if let Some(changes) = &mut changes {
            changes.left_lease(space, &row.id, id.session);
            match outcome {
                ItemOutcome::Done
                | ItemOutcome::DoneWith(_)
                | ItemOutcome::Expired { on_expiry: OnExpiry::Drop, .. } => {}
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
                ItemOutcome::Dead(_) | ItemOutcome::Expired { on_expiry: OnExpiry::Dead, .. } => {
                    changes.put_away(space, &row.id, HoldCause::Dead);
                }
            }
        }
        match outcome {
            ItemOutcome::Done | ItemOutcome::DoneWith(_) => {
                forget(space, tr, &row)?;
                match outcome {
                    ItemOutcome::DoneWith(result) => endings.add_done_with(tr, &row, result),
                    _ => endings.add_done(&row),
                }
                counts.done += 1;
            }
            ItemOutcome::Release | ItemOutcome::Throttle { .. } => {
                place::ready(space, tr, &row.id, &row.value, &row.meta);
                crate::ops::expiry_rows::note(space, tr, &row.id, &row.meta);
                counts.ready += 1;
            }
            ItemOutcome::Postpone { due } => {
                place::later(space, tr, &row.id, millis(*due), &row.value, &decode_meta(space, &row)?);
                crate::ops::expiry_rows::note(space, tr, &row.id, &row.meta);
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
                endings.add_dead(&row.id, &meta);
                counts.dead += 1;
            }
            ItemOutcome::Expired { on_expiry: OnExpiry::Drop, .. } => {
                forget_undone(space, tr, &row)?;
                endings.add_expired(&row);
            }
            ItemOutcome::Expired { at, on_expiry: OnExpiry::Dead } => {
                let meta = expiry::dead_letter(decode_meta(space, &row)?, millis(*at));
                place::dead(space, tr, &row.id, &row.value, &meta);
                endings.add_dead(&row.id, &meta);
                counts.dead += 1;
            }
        }
    }
    counts.add(space, tr);
    endings.write(tr, holding).await?;
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
        bytes <= cost::part_bytes()
    });
    fit.count().max(1).min(outcomes.len())
}

/// The bytes that the database counts for an outcome: a little too many, never too few.
pub(crate) fn cost(space: &Space, held: &Held, outcome: &ItemOutcome) -> usize {
    let is_recorded = space.recorder.as_ref().is_some_and(Recorder::may_record);
    if held.meta.is_empty() && !is_recorded {
        // Each item of each acknowledgement comes by here, and this is what most are.
        return if matches!(outcome, ItemOutcome::Done) { 0 } else { cost_without_end(space, held, outcome) };
    }
    cost_without_end(space, held, outcome) + cost_of_end(space, held, outcome)
}

fn cost_of_end(space: &Space, held: &Held, outcome: &ItemOutcome) -> usize {
    let (id, meta) = (&held.id, &held.meta);
    let reason = match outcome {
        ItemOutcome::DoneWith(result) => {
            return cost::ended(space, id, meta, 0) + cost::result(space, id, result.len());
        }
        ItemOutcome::Done => 0,
        ItemOutcome::Expired { .. } => expiry::EXPIRED.len(),
        ItemOutcome::Dead(failure) => failure.reason.len(),
        _ => return 0,
    };
    cost::ended(space, id, meta, reason)
}

fn cost_without_end(space: &Space, held: &Held, outcome: &ItemOutcome) -> usize {
    let Held { id, meta, value } = held;
    match outcome {
        ItemOutcome::Done
        | ItemOutcome::DoneWith(_)
        | ItemOutcome::Expired { on_expiry: OnExpiry::Drop, .. } => cost::forget(space, id, meta),
        ItemOutcome::Expired { on_expiry: OnExpiry::Dead, .. } => {
            cost::dead(space, id, value.len(), meta, expiry::EXPIRED.len())
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
        ItemOutcome::Dead(failure) => cost::dead(space, id, value.len(), meta, failure.reason.len()),
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
