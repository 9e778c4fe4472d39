//! The history of a queue: writing it, reading it and clearing it.

mod by_attribute;
mod clear;
pub(crate) mod read;
mod write;

use std::time::Duration;

use foundationdb::Transaction;
use mutant::mutant;

use crate::keys::ended::{HOUR, Setting, minute};
use crate::keys::{Space, range};
use crate::model::element::split_number;
use crate::model::error::QueueError;
use crate::model::history::HistoryIndex;
use crate::model::time::{Millis, span_millis};
use crate::ops::find::{first_key, last_key};
use crate::run::pause::check_unfrozen;

pub(crate) use clear::clear;
pub(crate) use write::{Endings, begin, taken};

/// The setting; `None` if the queue never had one.
pub(crate) async fn setting(
    space: &Space,
    tr: &Transaction,
    snapshot: bool,
) -> Result<Option<Setting>, QueueError> {
    let Some(value) = tr.get(&space.history, snapshot).await? else { return Ok(None) };
    Setting::decode(&value).map(Some).ok_or_else(|| QueueError::unreadable(&space.history))
}

/// Sets how long items are kept. Returns whether that is a change.
pub(crate) async fn keep(space: &Space, tr: &Transaction, kept: Duration) -> Result<bool, QueueError> {
    let retention = span_millis(kept);
    let earlier = setting(space, tr, false).await?;
    // Rows without a setting would stay: of a process that went on recording after the last ones were cleared.
    let has_rest =
        earlier.is_none() && retention == 0 && first_key(tr, &range(&space.ended)).await?.is_some();
    if earlier.as_ref().map_or(0, |setting| setting.retention) == retention && !has_rest {
        return Ok(false);
    }
    check_unfrozen(space, tr).await?;
    // Minutes that were cleared stay so; of a shorter time more are due at once.
    let mut setting = Setting { retention, ..earlier.unwrap_or_default() };
    if retention == 0 {
        setting.indexed.clear();
    }
    tr.set(&space.history, &setting.encode());
    Ok(true)
}

/// How many minutes after its declaration an index has all items that end. Programs that knew the index at an earlier time use what they knew for up to a
/// minute and a transaction; the rest is for clocks that differ.
const COMPLETE_AFTER: u64 = 10;

/// The minutes of a day.
const DAY: u64 = 24 * HOUR;

/// Sets by which attributes the items are indexed. Returns whether that is a change.
pub(crate) async fn declare_index(
    space: &Space,
    tr: &Transaction,
    index: &HistoryIndex,
    now: Millis,
) -> Result<bool, QueueError> {
    let Some(setting) = setting(space, tr, false).await?.filter(|setting| setting.retention > 0) else {
        return Ok(false);
    };
    if index.names().eq(setting.indexed.keys().map(String::as_str)) {
        return Ok(false);
    }
    check_unfrozen(space, tr).await?;
    // If this clock is slow, the last group tells a later minute. If the clock of that group was far ahead, a day of that counts at most.
    let last = last_key(tr, &range(&space.ended)).await?;
    let last =
        last.as_deref().and_then(|key| key.strip_prefix(space.ended.as_slice())).and_then(split_number);
    let last = last.map_or(0, |(last, _)| last.min(minute(now) + DAY));
    let complete = minute(now).max(last).saturating_add(COMPLETE_AFTER);
    let complete = if mutant("index-complete-at-once") { 0 } else { complete };
    let from = |name: &str| setting.indexed.get(name).copied().unwrap_or(complete);
    let indexed = index.names().map(|name| (name.to_owned(), from(name))).collect();
    tr.set(&space.history, &Setting { indexed, ..setting }.encode());
    Ok(true)
}
