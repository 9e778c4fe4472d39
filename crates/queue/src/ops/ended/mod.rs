//! The history of a queue: writing it, reading it and clearing it.

mod clear;
pub(crate) mod read;
mod write;

use std::time::Duration;

use foundationdb::Transaction;

use crate::error::QueueError;
use crate::keys::ended::Setting;
use crate::keys::{Space, range};
use crate::ops::find::first_key;
use crate::ops::pause::check_unfrozen;

pub(crate) use clear::clear;
pub(crate) use write::{Endings, begin, of_rows};

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
    let retention = u64::try_from(kept.as_millis()).unwrap_or(u64::MAX);
    let earlier = setting(space, tr, false).await?;
    // Rows without a setting would stay: of a process that went on recording after the last ones were cleared.
    let has_rest =
        earlier.is_none() && retention == 0 && first_key(tr, &range(&space.ended)).await?.is_some();
    if earlier.map_or(0, |setting| setting.retention) == retention && !has_rest {
        return Ok(false);
    }
    check_unfrozen(space, tr).await?;
    // Minutes that were cleared stay so; of a shorter time more are due at once.
    let cleared = earlier.map_or(0, |setting| setting.cleared);
    tr.set(&space.history, &Setting { retention, cleared }.encode());
    Ok(true)
}
