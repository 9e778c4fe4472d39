//! The rules of a keyed queue: reading and changing them.
//!
//! A change of the rules may free slots that nobody has taken, and end holds, so holds and parked keys have to be looked at again. The
//! value of `rules` holds the row at which that goes on; until it is through, every fetch does a page of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use foundationdb::options::{MutationType, StreamingMode};
use foundationdb::{RangeOption, Transaction};
use futures::TryStreamExt;
use futures::future::try_join_all;
use mutant::mutant;

use super::changes::Parked;
use super::{count_active, holds};
use crate::error::QueueError;
use crate::keys::keyed::{Cause, KeyedSpace};
use crate::keys::{after, counters, limits};
use crate::limits::{LimitError, Limits, Pattern, RuleBook};
use crate::ops::conflict;

/// The most rules of a queue.
pub(crate) const MAX_RULES: usize = 1_000;
/// How many holds, or parked keys, one transaction looks at.
const PAGE: usize = 500;
/// The length of the stamp in the value of `rules`.
const STAMP: usize = 10;

/// The rules as they are. Conflicts with a change of them.
pub(crate) async fn book(keyed: &KeyedSpace, tr: &Transaction) -> Result<Arc<RuleBook>, QueueError> {
    let version = tr.get(&keyed.rules, false).await?;
    let version = version.as_deref().unwrap_or_default();
    let known = keyed.known.get();
    if known.version == version {
        return Ok(known);
    }
    let book = Arc::new(RuleBook::new(version.to_vec(), read(keyed, tr).await?));
    keyed.known.set(Arc::clone(&book));
    Ok(book)
}

/// All rules. Read without a conflict: [`book`] has one with every change.
pub(crate) async fn read(keyed: &KeyedSpace, tr: &Transaction) -> Result<Vec<(Pattern, Limits)>, QueueError> {
    let option = RangeOption { mode: StreamingMode::WantAll, ..RangeOption::from(keyed.rule_range()) };
    let mut pages = tr.get_ranges(option, true);
    let mut rules = Vec::new();
    while let Some(page) = pages.try_next().await? {
        for row in &page {
            let read = keyed.decode_rule(row.key()).zip(limits::decode(row.value()));
            let (pattern, limits) = read.ok_or_else(|| QueueError::unreadable(row.key()))?;
            rules.push((Pattern::stored(pattern), limits));
        }
    }
    Ok(rules)
}

/// Sets the rule of a pattern, or removes it if it limits nothing.
pub(crate) async fn set(
    keyed: &KeyedSpace,
    tr: &Transaction,
    pattern: &Pattern,
    limits: &Limits,
) -> Result<(), LimitError> {
    let rules = read(keyed, tr).await?;
    if rules.len() >= MAX_RULES && !limits.is_empty() && !rules.iter().any(|(known, _)| known == pattern) {
        return Err(LimitError::TooManyRules);
    }
    let key = keyed.rule_key(pattern.as_bytes());
    // Two changes conflict, so that the number of rules is bounded.
    conflict::as_reader(tr, &keyed.rules)?;
    if limits.is_empty() {
        tr.clear(&key);
    } else {
        tr.set(&key, &limits::encode(limits));
    }
    // With a conflict: a key that is held or parked meanwhile is so by the old rules.
    let first = match holds::first_row(tr, keyed.all_holds(), false).await? {
        Some(hold) => Some(hold),
        None => holds::first_row(tr, keyed.all_parked(), false).await?,
    };
    // Wakes idle consumers: their next fetches look at these keys.
    count_active(keyed, tr, usize::from(first.is_some()));
    put_version(keyed, tr, &first.unwrap_or_default());
    Ok(())
}

/// Sets the value of `rules`: a new stamp, and the row at which holds and parked keys are to be looked at.
fn put_version(keyed: &KeyedSpace, tr: &Transaction, next: &[u8]) {
    let value = [&[0xff; STAMP][..], next, &0_u32.to_le_bytes()].concat();
    tr.atomic_op(&keyed.rules, &value, MutationType::SetVersionstampedValue);
}

/// Where holds or parked keys are to be looked at again; `None`: that is done.
pub(crate) fn pending(book: &RuleBook) -> Option<&[u8]> {
    book.version.get(STAMP..).filter(|next| !next.is_empty())
}

/// Looks at the next page of holds or parked keys again, by the rules of now.
pub(crate) async fn look_again(
    keyed: &KeyedSpace,
    tr: &Transaction,
    book: &RuleBook,
) -> Result<(), QueueError> {
    let Some(next) = pending(book) else { return Ok(()) };
    let (first_parked, _) = keyed.all_parked();
    let next = if next < first_parked.as_slice() && !mutant("holds-outlive-rules") {
        let holds_for = |key: &[u8], cause| book.limits(key).holds_for(cause);
        let next = holds::end_page(keyed, tr, next, PAGE, holds_for).await?;
        Some(next.unwrap_or(first_parked))
    } else {
        unpark_page(keyed, tr, book, next.max(&first_parked)).await?
    };
    put_version(keyed, tr, &next.unwrap_or_default());
    Ok(())
}

/// Makes keys of a page of parked keys active whose scopes have free slots. Returns the row at which the next page begins; `None` after the
/// last.
async fn unpark_page(
    keyed: &KeyedSpace,
    tr: &Transaction,
    book: &RuleBook,
    begin: &[u8],
) -> Result<Option<Vec<u8>>, QueueError> {
    let (_, end) = keyed.all_parked();
    let option = RangeOption {
        limit: Some(PAGE),
        mode: StreamingMode::WantAll,
        ..RangeOption::from((begin, end.as_slice()))
    };
    let rows = tr.get_range(&option, 1, true).await?;
    let next = rows.last().filter(|_| rows.more() || rows.len() == PAGE).map(|row| after(row.key()));
    let rows: Vec<_> = rows.iter().filter_map(|row| Parked::decode(keyed, row.key())).collect();
    let scopes: BTreeSet<&[u8]> = rows.iter().map(|(_, scope, _)| scope.as_slice()).collect();
    let running = scopes.into_iter().map(async |scope| {
        let running = running(keyed, tr, scope).await?;
        Ok::<_, QueueError>((scope, running))
    });
    let running: BTreeMap<_, _> = try_join_all(running).await?.into_iter().collect();
    let has_slots = |scope: &[u8]| match book.limits(scope).most_running() {
        Some(most) => running.get(scope).is_none_or(|running| *running < u64::from(most)),
        None => true,
    };
    // Keys that wait for a rate are looked at by the fetches that serve them: the timer may be that of an earlier rule.
    let unparked = rows.iter().filter(|(cause, scope, _)| *cause == Cause::Rate || has_slots(scope));
    let mut n = 0;
    for (_, _, parked) in unparked {
        conflict::as_reader(tr, &parked.row)?;
        parked.unpark(keyed, tr);
        n += 1;
    }
    count_active(keyed, tr, n);
    Ok(next)
}

/// How many items of a scope run. Read without a conflict.
pub(crate) async fn running(keyed: &KeyedSpace, tr: &Transaction, scope: &[u8]) -> Result<u64, QueueError> {
    Ok(counters::decode(tr.get(&keyed.running_key(scope), true).await?.as_deref()))
}
