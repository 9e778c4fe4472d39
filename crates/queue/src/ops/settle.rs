//! Ending items of a lease: done, again later, given back, or dead.

use foundationdb::Transaction;
use foundationdb::options::MutationType;

use crate::error::QueueError;
use crate::keys::leases::{Header, Held, LeaseId};
use crate::keys::{Space, counters, meta};
use crate::lease::Settlement;
use crate::meta::{Failure, Meta};
use crate::ops::claim::forget;
use crate::ops::scan::{Row, decode_meta};
use crate::ops::{lease, place};

/// Settles items of the lease `id`, by their index in `held`, and sets a new deadline for those that stay. Items settled before
/// are passed over, so a settlement may be repeated. Returns the header as it then is; `None`, having written nothing, if the
/// lease is lost.
pub(crate) async fn settle(
    space: &Space,
    tr: &Transaction,
    id: LeaseId,
    held: &[Held],
    settlements: &[(usize, Settlement)],
) -> Result<Option<Header>, QueueError> {
    let Some(mut header) = lease::header(space, tr, id).await? else { return Ok(None) };
    let (mut done, mut ready) = (0, 0);
    for (index, settlement) in settlements {
        if header.settled.contains(*index) {
            continue;
        }
        header.settled.insert(*index);
        let row = row(&held[*index]);
        match settlement {
            Settlement::Done => {
                forget(space, tr, &row)?;
                done += 1;
            }
            Settlement::Release => {
                place::ready(space, tr, &row.id, &row.value, &row.meta);
                ready += 1;
            }
            Settlement::Retry { due: None, failure } => {
                let meta = failed(space, &row, failure)?;
                place::ready(space, tr, &row.id, &row.value, &meta::encode(&meta));
                ready += 1;
            }
            Settlement::Retry { due: Some(due), failure } => {
                place::later(space, tr, &row.id, *due, &row.value, &failed(space, &row, failure)?);
            }
            Settlement::Dead(failure) => {
                let meta = Meta { death: Some(failure.clone()), ..failed(space, &row, failure)? };
                place::dead(space, tr, &row.id, &row.value, &meta);
            }
        }
    }
    if done > 0 {
        tr.atomic_op(&space.ndone, &counters::increment(done), MutationType::Add);
    }
    place::count_ready(space, tr, ready);
    header.served = false;
    header.deadline = now(tr).await?.saturating_add(header.length);
    lease::update(space, tr, id, &header);
    Ok(Some(header))
}

/// The database version that the transaction reads at.
pub(crate) async fn now(tr: &Transaction) -> Result<u64, QueueError> {
    Ok(u64::try_from(tr.get_read_version().await?).unwrap_or(0))
}

/// An item in a lease as the row that it was.
pub(crate) fn row(held: &Held) -> Row {
    Row { id: held.id.clone(), value: held.value.clone(), meta: held.meta.clone() }
}

/// The side record of an item whose attempt has failed.
fn failed(space: &Space, row: &Row, failure: &Failure) -> Result<Meta, QueueError> {
    let mut meta = decode_meta(space, row)?;
    meta.attempts = meta.attempts.saturating_add(1);
    meta.failed(failure.clone());
    Ok(meta)
}
