//! The rules of a keyed queue: reading and changing them.
//!
//! A change of the rules may free slots that nobody has taken, and end holds, so holds and parked keys have to be looked at again. A record of its own, `rules-pending`,
//! has the row at which that goes on. Fetches of one session do it, page by page; if that session stops, those of another session go on. `rules` does not change meanwhile, so a transaction that
//! goes by the rules does not conflict with that.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use foundationdb::Transaction;
use foundationdb::future::FdbKeyValue;
use foundationdb::options::MutationType;
use futures::future::try_join_all;
use mutant::{bound, mutant};

use super::lanes::Lanes;
use super::{count_active, count_freed, holds};
use crate::keys::keyed::{Cause, KeyedSpace};
use crate::keys::rules_pending::RulesPending;
use crate::keys::{counters, limits};
use crate::model::error::QueueError;
use crate::model::limits::{LimitError, Limits, MAX_RULES, Pattern, RuleBook};
use crate::model::session_id::SessionId;
use crate::ops::keyed::parked::Parked;
use crate::run::conflict;
use crate::run::range_read::RangeRead;

/// How many holds, or parked keys, one transaction looks at.
fn page_rows() -> usize {
    bound("rules-page", 500)
}
/// After how many versions without a look another session goes on.
pub(crate) fn pause() -> usize {
    bound("rules-pause", 200_000)
}
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
    let rule = |row: &FdbKeyValue| {
        let read = keyed.decode_rule(row.key()).zip(limits::decode(row.value()));
        let (pattern, limits) = read.ok_or_else(|| QueueError::unreadable(row.key()))?;
        Ok((Pattern::stored(pattern), limits))
    };
    RangeRead::of(keyed.rule_range()).collect(tr, rule).await?.into_iter().collect()
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
    let first = |range| RangeRead::of(range).snapshot(false).first_row_key(tr);
    let first = match first(keyed.all_holds()).await? {
        Some(hold) => Some(hold),
        None => first(keyed.parked_for_limits()).await?,
    };
    // Wakes idle consumers: their next fetches look at these keys.
    count_active(keyed, tr, usize::from(first.is_some()));
    // The limit of the whole queue may be higher.
    count_freed(keyed, tr);
    put_version(keyed, tr);
    put_pending(keyed, tr, first.as_deref(), (SessionId([0; 16]), 0));
    Ok(())
}

/// Gives `rules` a new stamp.
fn put_version(keyed: &KeyedSpace, tr: &Transaction) {
    let value = [&[0xff; STAMP][..], &0_u32.to_le_bytes()].concat();
    tr.atomic_op(&keyed.rules, &value, MutationType::SetVersionstampedValue);
}

/// Notes the row at which holds and parked keys are to be looked at, and who has looked last.
fn put_pending(
    keyed: &KeyedSpace,
    tr: &Transaction,
    next: Option<&[u8]>,
    (session, version): (SessionId, u64),
) {
    match next {
        Some(next) => {
            let next = next.strip_prefix(keyed.queue.as_slice()).unwrap_or_default().to_vec();
            tr.set(&keyed.rules_pending, &RulesPending { session, version, next }.encode());
        }
        None => tr.clear(&keyed.rules_pending),
    }
}

/// Holds and parked keys that are to be looked at again.
#[derive(Debug)]
pub(crate) struct Pending {
    record: RulesPending,
    /// Whether an earlier version has written it behind the stamp in `rules`.
    is_in_rules: bool,
}

impl Pending {
    /// Whether this session is to look at the next page: it has looked at the last one, or the session that did has stopped.
    pub(crate) fn is_for(&self, session: SessionId, now: u64) -> bool {
        let RulesPending { session: last, version, .. } = self.record;
        last == session || version == 0 || now.checked_sub(version).is_none_or(|age| age >= pause() as u64)
    }
}

/// What is to be looked at again after the last change of the rules. Read without a conflict, and only until there is nothing.
pub(crate) async fn pending(
    keyed: &KeyedSpace,
    tr: &Transaction,
    book: &RuleBook,
) -> Result<Option<Pending>, QueueError> {
    if book.is_settled() {
        return Ok(None);
    }
    let record = tr.get(&keyed.rules_pending, true).await?;
    if let Some(record) = record.and_then(|value| RulesPending::decode(&value)) {
        return Ok(Some(Pending { record, is_in_rules: false }));
    }
    let Some(next) = book.version.get(STAMP..).filter(|next| !next.is_empty()) else {
        // There will be something after another change only.
        book.settle();
        return Ok(None);
    };
    let next = next.strip_prefix(keyed.queue.as_slice()).unwrap_or_default().to_vec();
    let record = RulesPending { session: SessionId([0; 16]), version: 0, next };
    Ok(Some(Pending { record, is_in_rules: true }))
}

/// Looks at the next page of holds or parked keys again, by the rules of now.
pub(crate) async fn look_again(
    keyed: &KeyedSpace,
    tr: &Transaction,
    book: &RuleBook,
    pending: &Pending,
    (session, now): (SessionId, u64),
) -> Result<(), QueueError> {
    conflict::as_reader(tr, &keyed.rules_pending)?;
    let (first_parked, _) = keyed.parked_for_limits();
    let next = [keyed.queue.as_slice(), &pending.record.next].concat().max(keyed.all_holds().0);
    let next = if next < first_parked && !mutant("holds-outlive-rules") {
        let holds_for = |key: &[u8], cause| book.limits(key).holds_for(cause);
        let next = holds::end_page(keyed, tr, &next, page_rows(), holds_for).await?;
        Some(next.unwrap_or(first_parked))
    } else {
        unpark_page(keyed, tr, book, &next.max(first_parked)).await?
    };
    if pending.is_in_rules {
        put_version(keyed, tr);
    }
    put_pending(keyed, tr, next.as_deref(), (session, now));
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
    let (_, end) = keyed.parked_for_limits();
    let page = RangeRead::of((begin, &end[..])).limit(page_rows()).page(tr).await?;
    let next = page.next();
    let rows: Vec<_> = page.iter().filter_map(|row| Parked::decode(keyed, row.key())).collect();
    let scopes: BTreeSet<&[u8]> = rows.iter().map(|(scope, _)| scope.as_slice()).collect();
    let running = scopes.into_iter().map(async |scope| {
        let running = running(keyed, tr, scope).await?;
        Ok::<_, QueueError>((scope, running))
    });
    let running: BTreeMap<_, _> = try_join_all(running).await?.into_iter().collect();
    let has_slots = |scope: &[u8]| match book.limits(scope).most_running() {
        // An earlier version has parked the key. Consumers wait now.
        _ if scope.is_empty() => true,
        Some(most) => running.get(scope).is_none_or(|running| *running < u64::from(most)),
        None => true,
    };
    // Keys that wait for a rate are looked at by the fetches that serve them: the timer may be that of an earlier rule.
    let unparked = rows.iter().filter(|(scope, parked)| parked.cause == Cause::Rate || has_slots(scope));
    let mut n = 0;
    for (_, parked) in unparked {
        conflict::as_reader(tr, &parked.row)?;
        parked.unpark(keyed, tr);
        n += 1;
    }
    count_active(keyed, tr, n);
    Ok(next)
}

/// How many items of a scope run. Read without a conflict.
pub(crate) async fn running(keyed: &KeyedSpace, tr: &Transaction, scope: &[u8]) -> Result<u64, QueueError> {
    if scope.is_empty() {
        return Ok(Lanes::read(keyed, tr).await?.running());
    }
    Ok(counters::decode(tr.get(&keyed.running_key(scope), true).await?.as_deref()))
}
