//! Names of schedules: pages of them, and the one that a misspelt name may mean.

use std::num::NonZeroUsize;

use foundationdb::Transaction;
use kvqueue_queue::{
    Queue, QueueError,
    schedule::{MAX_SCHEDULES, ScheduleView},
};

use crate::config::nearest;

/// The name of a schedule that is nearly `name`, among the first of the queue.
pub(super) async fn near(tr: &Transaction, queue: &Queue, name: &str) -> Result<Option<String>, QueueError> {
    let all = NonZeroUsize::new(MAX_SCHEDULES).unwrap_or(NonZeroUsize::MIN);
    let some = queue.schedules_after(tr, None, all).await?;
    Ok(nearest(name, some.iter().map(|view| view.name.as_str())).map(ToOwned::to_owned))
}

/// Some schedules of a queue, in the order of their names.
#[derive(Debug)]
pub(crate) struct SchedulePage {
    pub(crate) schedules: Vec<ScheduleView>,
    /// Whether there are more behind them.
    pub(crate) more: bool,
}

impl SchedulePage {
    /// Reads up to `limit` schedules behind the name `after`, or the first ones. Conflicts with nothing.
    pub(crate) async fn read(
        queue: &Queue,
        tr: &Transaction,
        after: Option<&str>,
        limit: NonZeroUsize,
    ) -> Result<Self, QueueError> {
        let mut schedules = Vec::<ScheduleView>::new();
        // One more than wanted tells whether there are more.
        while let Some(left) = NonZeroUsize::new((limit.get() + 1).saturating_sub(schedules.len())) {
            let behind = schedules.last().map(|view| view.name.clone());
            let found = queue.schedules_after(tr, behind.as_deref().or(after), left).await?;
            if found.is_empty() {
                break;
            }
            schedules.extend(found);
        }
        let more = schedules.len() > limit.get();
        schedules.truncate(limit.get());
        Ok(Self { schedules, more })
    }

    /// The name behind which the next page begins; `None` if this is the last one.
    pub(crate) fn next(&self) -> Option<&str> {
        self.schedules.last().filter(|_| self.more).map(|view| view.name.as_str())
    }
}
