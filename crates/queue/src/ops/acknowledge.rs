//! Ending items of a lease: done, retried, released, postponed, dead or expired.

use foundationdb::Transaction;

use crate::keys::Space;
use crate::keys::leases::{Header, Held};
use crate::model::error::QueueError;
use crate::model::history::Ending;
use crate::model::lease_id::LeaseId;
use crate::model::meta::{Failure, Meta};
use crate::model::outcome::ItemOutcome;
use crate::model::recorder::{Holding, Recorder};
use crate::model::rules::OnExpiry;
use crate::model::time::millis;
use crate::ops::lease::row_now;
use crate::ops::scan::{Row, decode_meta};
use crate::ops::transition::{After, Before, Record, Subject, Transitions};
use crate::ops::{cost, expiry, lease};
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
    let mut transitions = Transitions::begin(space, tr).await?;
    let before = Before::Leased(id.session);
    for (index, outcome) in outcomes {
        if header.acknowledged.contains(*index) {
            continue;
        }
        header.acknowledged.insert(*index);
        let held = &held[*index];
        let is_plain =
            matches!(outcome, ItemOutcome::Done) && held.meta.is_empty() && header.joined.is_empty();
        if is_plain && transitions.add_plain_done(&held.id) {
            continue;
        }
        let row = row_now(&header, *index, held);
        let (after, changed) = match outcome {
            ItemOutcome::Done => (After::Done(None), None),
            ItemOutcome::DoneWith(result) => (After::Done(Some(result)), None),
            ItemOutcome::Release => (After::Ready, None),
            ItemOutcome::Throttle { scope, wait } => {
                transitions.throttle(&row.id, *scope, *wait);
                (After::Ready, None)
            }
            ItemOutcome::Postpone { due } => (After::Scheduled(millis(*due)), None),
            ItemOutcome::Retry { due, failure } => {
                let after = due.map_or(After::Ready, |due| After::Scheduled(millis(due)));
                (after, Some(Box::new(failed(space, &row, failure)?)))
            }
            ItemOutcome::Dead(failure) => {
                let meta = Meta { death: Some(failure.cut()), ..failed(space, &row, failure)? };
                (After::Dead, Some(Box::new(meta)))
            }
            ItemOutcome::Expired { on_expiry: OnExpiry::Drop, .. } => {
                (After::Ended(Ending::Expired, None), None)
            }
            ItemOutcome::Expired { at, on_expiry: OnExpiry::Dead } => {
                let letter = expiry::dead_letter(decode_meta(space, &row)?, millis(*at));
                (After::Dead, Some(Box::new(letter)))
            }
        };
        let record = changed.map_or(Record::Same(&row.meta), Record::Changed);
        transitions.add(tr, before, after, Subject { id: &row.id, value: &row.value, record })?;
    }
    transitions.write(tr, holding).await?;
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

/// The side record of an item whose attempt has failed.
fn failed(space: &Space, row: &Row, failure: &Failure) -> Result<Meta, QueueError> {
    let mut meta = decode_meta(space, row)?;
    meta.attempts = meta.attempts.saturating_add(1);
    meta.failed(failure);
    Ok(meta)
}
