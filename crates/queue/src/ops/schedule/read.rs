//! Reading schedules and their logs.

use foundationdb::Transaction;
use foundationdb::future::FdbKeyValue;
use futures::future::{try_join, try_join_all};
use mutant::{bound, mutant};

use crate::keys::schedules::state::State;
use crate::keys::schedules::{ScheduleSpace, definition, log, state};
use crate::keys::{after, range};
use crate::model::error::QueueError;
use crate::model::schedule::{MAX_SCHEDULES, OccurrenceRecord, Schedule};
use crate::run::range_read::RangeRead;

/// About how many bytes of definitions one page has.
fn page_bytes() -> usize {
    bound("schedules-page-bytes", 1 << 20)
}

/// A schedule as it is stored.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    /// `None`: this version cannot read it.
    pub(crate) schedule: Option<Schedule>,
    /// `None`: this version cannot read it, or it is gone.
    pub(crate) state: Option<State>,
}

/// Reads a schedule to change it: conflicts with everything else that changes it. `None` if there is none of this name.
pub(crate) async fn stored(
    keys: &ScheduleSpace,
    tr: &Transaction,
    name: &str,
) -> Result<Option<Stored>, QueueError> {
    get(keys, tr, name, mutant("schedule-state-without-conflict")).await
}

/// A schedule that is only shown. A snapshot read.
pub(crate) async fn shown(
    keys: &ScheduleSpace,
    tr: &Transaction,
    name: &str,
) -> Result<Option<Stored>, QueueError> {
    get(keys, tr, name, true).await
}

async fn get(
    keys: &ScheduleSpace,
    tr: &Transaction,
    name: &str,
    snapshot: bool,
) -> Result<Option<Stored>, QueueError> {
    let (definition, state) = (keys.definition_key(name), keys.state_key(name));
    // Every change of the definition writes the state too, so a conflict on the state is enough. If there is no schedule, the state is not
    // there either.
    let (definition, state) = try_join(tr.get(&definition, true), tr.get(&state, snapshot)).await?;
    Ok(definition.map(|definition| Stored {
        schedule: definition::decode(name, &definition),
        state: state.as_deref().and_then(state::decode),
    }))
}

/// Schedules in the order of their names, from behind `behind` on: up to `k`, fewer where their definitions are large, and one at least
/// if there is one. Snapshot reads.
pub(crate) async fn page(
    keys: &ScheduleSpace,
    tr: &Transaction,
    behind: Option<&str>,
    k: usize,
) -> Result<Vec<(String, Stored)>, QueueError> {
    let (first, end) = range(&keys.definitions);
    let begin = behind.map_or(first, |name| after(&keys.definition_key(name)));
    let rows = RangeRead::of((begin, end)).limit(k).page_bytes(page_bytes()).page(tr).await?;
    let decoded = rows.iter().map(|row| {
        let name = keys.definition_name(row.key()).ok_or_else(|| QueueError::unreadable(row.key()))?;
        Ok((definition::decode(&name, row.value()), name))
    });
    // A row cannot go from thread to thread, so none is kept while states are read.
    let decoded: Vec<_> = decoded.collect::<Result<_, QueueError>>()?;
    let read = decoded.into_iter().map(async |(schedule, name)| {
        let state = tr.get(&keys.state_key(&name), true).await?;
        Ok::<_, QueueError>((name, Stored { schedule, state: state.as_deref().and_then(state::decode) }))
    });
    try_join_all(read).await
}

/// Records of a schedule's log, the newest first, from before the record `before` on. A snapshot read.
pub(crate) async fn history(
    keys: &ScheduleSpace,
    tr: &Transaction,
    name: &str,
    before: Option<u64>,
    k: usize,
) -> Result<Vec<OccurrenceRecord>, QueueError> {
    let record = |row: &FdbKeyValue| {
        let number = keys.log_number(name, row.key());
        let record = number.and_then(|number| log::decode(number, row.value()));
        record.ok_or_else(|| QueueError::unreadable(row.key()))
    };
    let newest = RangeRead::of(keys.log_before(name, before)).reverse(true).limit(k);
    newest.collect(tr, record).await?.into_iter().collect()
}

/// Whether there are as many schedules as possible. A snapshot read, so a few more may be made at the same time.
pub(crate) async fn is_full(keys: &ScheduleSpace, tr: &Transaction) -> Result<bool, QueueError> {
    // A range, and not a key selector: the transaction may have pushed to keys behind it, and could not read those.
    let (mut pages, mut found) = (RangeRead::of(keys.all_states()).limit(MAX_SCHEDULES).pages(tr), 0);
    while let Some(page) = pages.next_page().await? {
        found += page.len();
    }
    Ok(found >= MAX_SCHEDULES)
}
