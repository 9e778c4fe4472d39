//! The rules of a keyed queue: reading and changing them.
//!
//! A change of the rules may free slots that nobody has taken, so parked keys have to be looked at again. The value of `rules` holds the
//! row at which that goes on; until it is through, every fetch does a page of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use foundationdb::options::{MutationType, StreamingMode};
use foundationdb::{RangeOption, Transaction};
use futures::TryStreamExt;
use futures::future::try_join_all;

use super::changes::Parked;
use super::count_active;
use crate::error::QueueError;
use crate::keys::keyed::KeyedSpace;
use crate::keys::{after, counters, limits};
use crate::limits::{LimitError, Limits, Pattern, RuleBook};
use crate::ops::conflict;

/// The most rules of a queue.
pub(crate) const MAX_RULES: usize = 1_000;
/// How many parked keys one transaction looks at.
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
    // With a conflict: a key that is parked meanwhile was parked by the old rules.
    let option = RangeOption { limit: Some(1), ..RangeOption::from(keyed.all_parked()) };
    let parked = tr.get_range(&option, 1, false).await.map_err(QueueError::from)?;
    let first = parked.first().map(|row| row.key().to_vec());
    // Wakes idle consumers: their next fetches look at the parked keys.
    count_active(keyed, tr, parked.len());
    put_version(keyed, tr, &first.unwrap_or_default());
    Ok(())
}

/// Sets the value of `rules`: a new stamp, and the row at which parked keys are to be looked at.
fn put_version(keyed: &KeyedSpace, tr: &Transaction, next: &[u8]) {
    let value = [&[0xff; STAMP][..], next, &0_u32.to_le_bytes()].concat();
    tr.atomic_op(&keyed.rules, &value, MutationType::SetVersionstampedValue);
}

/// Where parked keys are to be looked at again; `None`: that is done.
pub(crate) fn pending(book: &RuleBook) -> Option<&[u8]> {
    book.version.get(STAMP..).filter(|next| !next.is_empty())
}

/// Makes keys of the next page of parked keys active whose scopes have free slots by the rules of now.
pub(crate) async fn unpark_page(
    keyed: &KeyedSpace,
    tr: &Transaction,
    book: &RuleBook,
) -> Result<(), QueueError> {
    let Some(next) = pending(book) else { return Ok(()) };
    let (_, end) = keyed.all_parked();
    let option = RangeOption {
        limit: Some(PAGE),
        mode: StreamingMode::WantAll,
        ..RangeOption::from((next, end.as_slice()))
    };
    let rows = tr.get_range(&option, 1, true).await?;
    let next = rows.last().filter(|_| rows.more() || rows.len() == PAGE).map(|row| after(row.key()));
    let rows: Vec<_> = rows.iter().filter_map(|row| Parked::decode(keyed, row.key())).collect();
    let scopes: BTreeSet<&[u8]> = rows.iter().map(|(scope, _)| scope.as_slice()).collect();
    let running = scopes.into_iter().map(async |scope| {
        let running = running(keyed, tr, scope).await?;
        Ok::<_, QueueError>((scope, running))
    });
    let running: BTreeMap<_, _> = try_join_all(running).await?.into_iter().collect();
    let has_slots = |scope: &[u8]| match book.limits(scope).most_running() {
        Some(most) => running.get(scope).is_none_or(|running| *running < u64::from(most)),
        None => true,
    };
    let unparked = rows.iter().filter(|(scope, _)| has_slots(scope));
    let mut n = 0;
    for (_, parked) in unparked {
        conflict::as_reader(tr, &parked.row)?;
        parked.unpark(keyed, tr);
        n += 1;
    }
    count_active(keyed, tr, n);
    put_version(keyed, tr, &next.unwrap_or_default());
    Ok(())
}

/// How many items of a scope run. Read without a conflict.
pub(crate) async fn running(keyed: &KeyedSpace, tr: &Transaction, scope: &[u8]) -> Result<u64, QueueError> {
    Ok(counters::decode(tr.get(&keyed.running_key(scope), true).await?.as_deref()))
}
