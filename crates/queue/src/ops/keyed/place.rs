//! What a key waits for, and how many come before it. Reads that conflict with nothing.

use std::time::Duration;

use foundationdb::Transaction;
use mutant::bound;

use super::pace::Paces;
use super::{holds, rules, suspects};
use crate::keys::keyed::{Cause, KeyedSpace, scopes};
use crate::model::error::QueueError;
use crate::model::limits::RuleBook;
use crate::model::time::duration;
use crate::model::waiting::{AtLeast, WaitsOn};
use crate::run::range_read::RangeRead;

/// How many timers are read.
fn most_timers() -> usize {
    bound("place-timers", 1_000)
}
/// How many keys are looked through at most to find one.
fn most_counted() -> usize {
    bound("place-keys", 10_000)
}

/// What a key with ready items waits for, and how many keys come before it. `None`: it waits for something else than its place, or is not parked yet.
pub(crate) async fn of(
    keyed: &KeyedSpace,
    tr: &Transaction,
    key: &[u8],
) -> Result<(WaitsOn, Option<AtLeast>), QueueError> {
    let book = rules::book(keyed, tr).await?;
    if book.limits(key).is_ordered()
        && let Some(held_by) = holds::by(keyed, tr, key).await?
    {
        return Ok((WaitsOn::Hold(held_by), None));
    }
    if let Some(cause) = suspects::cause_of(keyed, tr, key).await? {
        let parked = before(tr, keyed.parked_range(cause, &[]), |row| {
            keyed.decode_parked(row).is_some_and(|row| row.key == key)
        });
        return Ok((WaitsOn::Suspects, parked.await?));
    }
    let mut paces = Paces::read(keyed, tr, most_timers()).await?;
    paces.learn(keyed, tr, &book, scopes(key)).await?;
    for scope in scopes(key) {
        let Some((cause, on)) = lacks(keyed, tr, &book, &paces, scope).await? else { continue };
        if scope.is_empty() {
            // Consumers wait for the queue, and keys do not.
            return Ok((on, active(keyed, tr, key).await?));
        }
        let parked = before(tr, keyed.parked_range(cause, scope), |row| {
            keyed.decode_parked(row).is_some_and(|row| row.key == key)
        });
        // It may be active yet: the next fetch parks it.
        return Ok((on, parked.await?));
    }
    Ok((WaitsOn::Turn, active(keyed, tr, key).await?))
}

/// How many active keys come before a key.
async fn active(keyed: &KeyedSpace, tr: &Transaction, key: &[u8]) -> Result<Option<AtLeast>, QueueError> {
    let is_wanted = |row: &[u8]| keyed.decode_active(row).is_some_and(|(_, active)| active == key);
    before(tr, keyed.active_range(), is_wanted).await
}

/// What a scope has nothing left of.
async fn lacks(
    keyed: &KeyedSpace,
    tr: &Transaction,
    book: &RuleBook,
    paces: &Paces,
    scope: &[u8],
) -> Result<Option<(Cause, WaitsOn)>, QueueError> {
    if let Some(most) = book.limits(scope).most_running() {
        let running = rules::running(keyed, tr, scope).await?;
        if running >= u64::from(most) {
            return Ok(Some((Cause::Slot, WaitsOn::Slot { scope: scope.to_vec(), running, most })));
        }
    }
    if paces.starts(scope) != Some(0) {
        return Ok(None);
    }
    let wait = paces.opens_at(scope).map_or(Duration::ZERO, |at| duration(at.saturating_sub(paces.now())));
    let throttled = paces.is_throttled(scope);
    Ok(Some((Cause::Rate, WaitsOn::Start { scope: scope.to_vec(), wait, throttled })))
}

/// How many rows of a range stand before the one that is wanted. `None`: it is not there.
async fn before(
    tr: &Transaction,
    range: (Vec<u8>, Vec<u8>),
    is_wanted: impl Fn(&[u8]) -> bool,
) -> Result<Option<AtLeast>, QueueError> {
    let (mut pages, mut counted) = (RangeRead::of(range).limit(most_counted()).pages(tr), 0);
    while let Some(page) = pages.next_page().await? {
        for row in page.iter() {
            if is_wanted(row.key()) {
                return Ok(Some(AtLeast { counted, is_all: true }));
            }
            counted += 1;
        }
    }
    Ok((counted >= most_counted()).then_some(AtLeast { counted, is_all: false }))
}
