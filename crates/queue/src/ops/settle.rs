//! Ending items of a lease: done, again later, given back, or dead.

use foundationdb::Transaction;
use foundationdb::options::MutationType;

use crate::error::QueueError;
use crate::keys::leases::{Header, Held, LeaseId};
use crate::keys::{Space, counters, meta};
use crate::lease::Settlement;
use crate::meta::{Failure, Meta};
use crate::ops::claim::forget;
use crate::ops::lease::row;
use crate::ops::scan::{Row, decode_meta};
use crate::ops::version::now;
use crate::ops::{cost, lease, place};
use crate::time::millis;

/// Settles items of the lease `id`, by their index in `held`, and sets a new deadline for those that stay. Items settled before
/// are passed over, so a settlement may be repeated. Returns the header as it then is; `None`, having written nothing, if the
/// lease is lost. That it fits into a transaction is the caller's to see to: [`part`], [`cost`].
pub(crate) async fn settle(
    space: &Space,
    tr: &Transaction,
    id: LeaseId,
    held: &[Held],
    settlements: &[(usize, Settlement)],
) -> Result<Option<Header>, QueueError> {
    let Some(mut header) = lease::header(space, tr, id).await? else { return Ok(None) };
    let mut counts = Counts::default();
    for (index, settlement) in settlements {
        if header.settled.contains(*index) {
            continue;
        }
        header.settled.insert(*index);
        let row = row(&held[*index]);
        match settlement {
            Settlement::Done => {
                forget(space, tr, &row)?;
                counts.done += 1;
            }
            Settlement::Release => {
                place::ready(space, tr, &row.id, &row.value, &row.meta);
                counts.ready += 1;
            }
            Settlement::Retry { due: None, failure } => {
                let meta = failed(space, &row, failure)?;
                place::ready(space, tr, &row.id, &row.value, &meta::encode(&meta));
                counts.ready += 1;
            }
            Settlement::Retry { due: Some(due), failure } => {
                place::later(space, tr, &row.id, millis(*due), &row.value, &failed(space, &row, failure)?);
                counts.later += 1;
            }
            Settlement::Dead(failure) => {
                let meta = Meta { death: Some(failure.cut()), ..failed(space, &row, failure)? };
                place::dead(space, tr, &row.id, &row.value, &meta);
                counts.dead += 1;
            }
        }
    }
    counts.add(space, tr);
    header.served = false;
    header.deadline = now(tr).await?.saturating_add(header.length);
    lease::update(space, tr, id, &header);
    Ok(Some(header))
}

/// How many of the first settlements go into one transaction: one does, whatever it takes.
pub(crate) fn part(space: &Space, held: &[Held], settlements: &[(usize, Settlement)]) -> usize {
    let mut bytes = 0;
    let fit = settlements.iter().take_while(|(index, settlement)| {
        bytes += held.get(*index).map_or(0, |held| cost(space, held, settlement));
        bytes <= cost::PART
    });
    fit.count().max(1).min(settlements.len())
}

/// What the database counts for a settlement, in bytes: a little too high, never too low.
pub(crate) fn cost(space: &Space, held: &Held, settlement: &Settlement) -> usize {
    let Held { id, meta, value } = held;
    match settlement {
        Settlement::Done => cost::forget(space, id, meta),
        Settlement::Release => cost::ready(space, id, value.len(), meta.len()),
        Settlement::Retry { due: None, failure } => {
            cost::ready(space, id, value.len(), meta.len() + cost::failure(failure.reason.len()))
        }
        Settlement::Retry { due: Some(_), failure } => {
            cost::aside(space, id, value.len(), meta.len() + cost::failure(failure.reason.len()))
        }
        Settlement::Dead(failure) => cost::dead(space, id, value.len(), meta, failure.reason.len()),
    }
}

/// How many items were settled, and how.
#[derive(Debug, Default)]
struct Counts {
    done: usize,
    ready: usize,
    later: usize,
    dead: usize,
}

impl Counts {
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
