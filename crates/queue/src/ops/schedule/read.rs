//! Reading schedules, their logs, and when to look at them next.

use foundationdb::options::StreamingMode;
use foundationdb::{RangeOption, Transaction};
use futures::TryStreamExt;
use futures::future::{try_join, try_join_all};
use mutant::mutant;

use crate::error::QueueError;
use crate::keys::schedules::state::State;
use crate::keys::schedules::{ScheduleSpace, definition, log, state};
use crate::keys::{after, range};
use crate::meta::Millis;
use crate::schedule::{OccurrenceRecord, Schedule};

/// How many gaps one look reads.
pub(crate) const GAPS: usize = 100;
/// About how many bytes of definitions one page has.
const PAGE_BYTES: usize = 1 << 20;

/// How far clocks may differ without an effect on what fires: an hour, in milliseconds. If a look was made by a clock that was further
/// ahead than this, looks by other clocks may fire the occurrences that it has passed over.
pub(crate) const CLOCK_DIFFERENCE: Millis = 3_600_000;

/// A schedule as it is stored.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    /// `None`: of a later version.
    pub(crate) schedule: Option<Schedule>,
    pub(crate) state: State,
}

/// Reads a schedule to change it: conflicts with everything else that changes it. `None` if there is none of this name.
///
/// # Errors
/// [`QueueError::Unreadable`] if its state is of another layout.
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
    // Every change of the definition changes the state too, so a conflict on the state is enough. That of a schedule which is not there
    // is on the same key.
    let (definition, state) = try_join(tr.get(&definition, true), tr.get(&state, snapshot)).await?;
    let Some(definition) = definition else { return Ok(None) };
    let schedule = definition::decode(name, &definition);
    Ok(Some(Stored { schedule, state: decode_state(keys, name, state.as_deref())? }))
}

fn decode_state(keys: &ScheduleSpace, name: &str, value: Option<&[u8]>) -> Result<State, QueueError> {
    let key = keys.state_key(name);
    value.and_then(state::decode).ok_or_else(|| QueueError::unreadable(&key))
}

/// Schedules in the order of their names, from behind `behind` on: up to `k`, fewer where their definitions are large, and one at least
/// if there is one. Snapshot reads.
pub(crate) async fn page(
    keys: &ScheduleSpace,
    tr: &Transaction,
    behind: Option<&str>,
    k: usize,
) -> Result<Vec<(String, Stored)>, QueueError> {
    let names = definitions(keys, tr, behind, k).await?;
    let read = names.into_iter().map(async |(name, schedule)| {
        let state = tr.get(&keys.state_key(&name), true).await?;
        let state = decode_state(keys, &name, state.as_deref())?;
        Ok::<_, QueueError>((name, Stored { schedule, state }))
    });
    try_join_all(read).await
}

/// The same without their states.
pub(crate) async fn definitions(
    keys: &ScheduleSpace,
    tr: &Transaction,
    behind: Option<&str>,
    k: usize,
) -> Result<Vec<(String, Option<Schedule>)>, QueueError> {
    let (first, end) = range(&keys.definitions);
    let begin = behind.map_or(first, |name| after(&keys.definition_key(name)));
    let option = RangeOption {
        limit: Some(k),
        target_bytes: PAGE_BYTES,
        mode: StreamingMode::WantAll,
        ..RangeOption::from((begin, end))
    };
    let rows = tr.get_range(&option, 1, true).await?;
    let definition = |key: &[u8], value: &[u8]| {
        let name = keys.definition_name(key).ok_or_else(|| QueueError::unreadable(key))?;
        let schedule = definition::decode(&name, value);
        Ok((name, schedule))
    };
    rows.iter().map(|row| definition(row.key(), row.value())).collect()
}

/// Records of a schedule's log, the newest first, from before the record `before` on. A snapshot read.
pub(crate) async fn history(
    keys: &ScheduleSpace,
    tr: &Transaction,
    name: &str,
    before: Option<u64>,
    k: usize,
) -> Result<Vec<OccurrenceRecord>, QueueError> {
    let option = RangeOption {
        limit: Some(k),
        reverse: true,
        mode: StreamingMode::WantAll,
        ..RangeOption::from(keys.log_before(name, before))
    };
    let record = |(key, value): &Row| {
        let number = keys.log_number(name, key);
        number.and_then(|number| log::decode(number, value)).ok_or_else(|| QueueError::unreadable(key))
    };
    rows(tr, option).await?.iter().map(record).collect()
}

/// When something is due after `time` by a clock that shows it: the next time of a schedule, or of a gap. Snapshot reads.
pub(crate) async fn next_look(
    keys: &ScheduleSpace,
    tr: &Transaction,
    time: Millis,
) -> Result<Option<Millis>, QueueError> {
    // A range, and not a key selector: the transaction may have written to the log behind it, and could not read that.
    let option = RangeOption { limit: Some(1), ..RangeOption::from(keys.due_after(time)) };
    let first = async { Ok::<_, QueueError>(tr.get_range(&option, 1, true).await?) };
    let (first, gaps) = try_join(first, gaps(keys, tr, time)).await?;
    let first = first.first().and_then(|row| keys.decode_due(row.key())).map(|(due, _)| due);
    let gaps = gaps.into_iter().map(|(row, _)| row).filter(|row| *row > time);
    Ok(first.into_iter().chain(gaps).min())
}

/// The gaps that end further ahead of `time` than clocks may differ: when each is to be looked at, and its schedule.
pub(crate) async fn gaps(
    keys: &ScheduleSpace,
    tr: &Transaction,
    time: Millis,
) -> Result<Vec<(Millis, String)>, QueueError> {
    let option = RangeOption {
        limit: Some(GAPS),
        mode: StreamingMode::WantAll,
        ..RangeOption::from(keys.gaps_after(time.saturating_add(CLOCK_DIFFERENCE)))
    };
    let gap = |(key, value): &Row| {
        let row = u64::from_le_bytes(value[..].try_into().ok()?);
        Some((row, keys.decode_gap(key)?.1))
    };
    Ok(rows(tr, option).await?.iter().filter_map(gap).collect())
}

/// All rows that the range asks for, however many answers of the database they take. Snapshot reads.
pub(crate) async fn rows(tr: &Transaction, option: RangeOption<'_>) -> Result<Vec<Row>, QueueError> {
    let mut answers = tr.get_ranges(option, true);
    let mut rows = Vec::new();
    while let Some(answer) = answers.try_next().await? {
        rows.extend(answer.iter().map(|row| (row.key().to_vec(), row.value().to_vec())));
    }
    Ok(rows)
}

/// A key and its value.
pub(crate) type Row = (Vec<u8>, Vec<u8>);
