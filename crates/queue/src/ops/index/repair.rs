//! Making the index of a keyed queue right, while producers and consumers work.

use std::collections::BTreeSet;

use foundationdb::Transaction;
use foundationdb::options::{ConflictRangeType, MutationType};
use mutant::{bound, mutant};

use super::read::{each_row, place_ranges, read};
use super::rows::Faults;
use super::unlisted::{self, UnlistedPage};
use crate::keys::Space;
use crate::keys::keyed::KeyedSpace;
use crate::model::error::QueueError;
use crate::model::limits::{LimitError, Limits, Pattern};
use crate::ops::cost;
use crate::ops::keyed::{listing, rules};
use crate::run::conflict;

/// About how many bytes one transaction writes.
fn page_bytes() -> usize {
    bound("index-repair-bytes", 5_000_000)
}

/// Repairs what fits into a transaction: keys first, and counters with the last of them. Returns all faults that it has found, and whether some are left; `None` as [`read`].
pub(crate) async fn repair(
    space: &Space,
    keyed: &KeyedSpace,
    tr: &Transaction,
) -> Result<Option<(Faults, bool)>, QueueError> {
    let Some(rows) = read(space, keyed, tr).await? else { return Ok(None) };
    let found = rows.faults();
    if found.is_empty() {
        return Ok(Some((found, false)));
    }
    let mut left = page_bytes();
    let (mut keys, mut scopes) = (BTreeSet::new(), Vec::new());
    let mut fits = |row: usize, rows: usize| {
        let bytes = rows * (cost::set(row, 8) + cost::conflict(row));
        let fits = bytes <= left || left == page_bytes();
        left = left.saturating_sub(bytes);
        fits
    };
    // Both rows that a key gets, and both that it has, mostly.
    let row = |name: &[u8]| space.queue.len() + 2 * name.len() + 40;
    for key in &found.keys {
        if !fits(row(key), 4) {
            break;
        }
        keys.insert(key.clone());
    }
    if keys.len() == found.keys.len() {
        scopes.extend(found.scopes.iter().take_while(|(scope, _)| fits(row(scope), 2)));
    }
    let is_left = keys.len() < found.keys.len() || scopes.len() < found.scopes.len();
    list_again(keyed, tr, keys).await?;
    for (scope, lacks) in &scopes {
        let key = keyed.running_key(scope);
        if **lacks > 0 {
            // A fetch that has read a counter that is too low must not commit afterwards.
            let (begin, end) = keyed.gate_range(scope);
            tr.add_conflict_range(&begin, &end, ConflictRangeType::Write)?;
        }
        tr.atomic_op(&key, &lacks.to_le_bytes(), MutationType::Add);
        tr.atomic_op(&key, &0_u64.to_le_bytes(), MutationType::CompareAndClear);
    }
    if scopes.iter().any(|(_, lacks)| **lacks < 0) && !mutant("freed-by-recount-unseen") {
        look_at_parked(keyed, tr).await?;
    }
    Ok(Some((found, is_left)))
}

/// Takes keys out of the index, and lists them again. Their places do not change before the commit, or that fails.
async fn list_again(keyed: &KeyedSpace, tr: &Transaction, keys: BTreeSet<Vec<u8>>) -> Result<(), QueueError> {
    if keys.is_empty() {
        return Ok(());
    }
    let mut rows = Vec::new();
    for range in place_ranges(keyed) {
        let mut show = |row: &[u8], _: &[u8]| {
            let active = || keyed.decode_active(row).map(|(_, key)| key);
            let parked = || keyed.decode_parked(row).map(|parked| parked.key);
            let key = active().or_else(parked).or_else(|| keyed.decode_on_hold(row));
            if key.is_some_and(|key| keys.contains(&key)) {
                rows.push(row.to_vec());
            }
            true
        };
        each_row(tr, range, &mut show).await?;
    }
    rows.extend(keys.iter().map(|key| keyed.listed_key(key)));
    for row in &rows {
        // Before the clear: a transaction does not conflict on what it has itself overwritten.
        conflict::as_reader(tr, row)?;
        tr.clear(row);
    }
    listing::unlisted(keyed, tr, keys).await?.list(keyed, tr);
    Ok(())
}

/// Lets fetches look at all parked keys again, as after a change of the rules: a scope whose counter was too high may have free slots, and no item may end that would pass
/// them on.
async fn look_at_parked(keyed: &KeyedSpace, tr: &Transaction) -> Result<(), QueueError> {
    let known = rules::read(keyed, tr).await?;
    let of_queue = known.into_iter().find(|(pattern, _)| *pattern == Pattern::QUEUE);
    let limits = of_queue.map_or_else(Limits::default, |(_, limits)| limits);
    match rules::set(keyed, tr, &Pattern::QUEUE, &limits).await {
        Err(LimitError::Queue(error)) => Err(error),
        // The rule stays as it is, so nothing else is refused.
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Lists the keys of a page that have items, and are not listed.
pub(crate) async fn list_page(
    space: &Space,
    keyed: &KeyedSpace,
    tr: &Transaction,
    behind: Option<&[u8]>,
) -> Result<UnlistedPage, QueueError> {
    let page = unlisted::page(space, keyed, tr, behind).await?;
    let keys = page.keys.iter().cloned().collect();
    listing::unlisted(keyed, tr, keys).await?.list(keyed, tr);
    Ok(page)
}
