//! Scheduled items: reading them, and making them ready before their time.

use std::num::NonZeroUsize;
use std::time::{Instant, SystemTime};

use foundationdb::{Database, Transaction};

use crate::client::queue::Queue;
use crate::keys::{Space, after};
use crate::model::error::QueueError;
use crate::model::id::ItemId;
use crate::model::retry_error::RetryError;
use crate::model::scheduled::{Requeued, ScheduledItem};
use crate::model::session_id::SessionId;
use crate::model::sizes::MAX_TAKE_BYTES;
use crate::model::time::{from_millis, millis};
use crate::ops::aside::{delayed, read_records};
use crate::ops::find::last_key;
use crate::ops::promote::{self, Clears, ReadyPage};
use crate::run::exactly_once::{Act, Body, Marked};
use crate::run::retry::{RetryPolicy, run};

impl Queue {
    /// Scheduled and retrying items, in the order of their times, which are whole [milliseconds](crate::millis): the items behind `after`, or
    /// the first. Up to `k` of them; fewer where [`MAX_TAKE_BYTES`] of payloads and side records are reached,
    /// but at least one if there is one. An item that cannot be read is among them, with the reason. A
    /// snapshot read: it conflicts with nothing.
    pub async fn scheduled_after(
        &self,
        tr: &Transaction,
        after: Option<(SystemTime, &ItemId)>,
        k: NonZeroUsize,
    ) -> Result<Vec<ScheduledItem>, QueueError> {
        let found = delayed(self.space(), tr, after.map(|(due, id)| (millis(due), id)), k).await?;
        let records: Vec<_> = found.iter().map(|(_, id, meta)| (id.clone(), meta.clone())).collect();
        let items = read_records(self.space(), tr, &records, MAX_TAKE_BYTES).await?;
        let delayed = found.into_iter().zip(items).map(|((due, id, _), item)| ScheduledItem {
            due: from_millis(due),
            id,
            item: item.map(|(_, item)| item).map_err(|error| error.to_string()),
        });
        Ok(delayed.collect())
    }

    /// Makes all scheduled items ready that there are when it begins, each at its own place. Items that wait for a retry are among them.
    ///
    /// In pages, a transaction each: what was done before an error stays done. Under an unknown outcome
    /// no item is counted or made ready twice. After `until` no further page begins; `None`:
    /// without a limit.
    pub async fn requeue_scheduled(
        &self,
        db: &Database,
        policy: &RetryPolicy,
        until: Option<Instant>,
    ) -> Result<Requeued, RetryError> {
        let space = self.space();
        let all = space.later.all();
        let all_keys = &all;
        let last = run(db, policy, |tr| async move {
            let last = last_key(&tr, all_keys).await;
            (tr, last)
        });
        let mut requeued = Requeued::default();
        let Some(last) = last.await?.value else { return Ok(requeued) };
        let (mut begin, end) = (Some(all.0.clone()), after(&last));
        let mut marked = Marked::new(self.space(), SessionId::new());
        let mut clears = Clears::Together;
        while let Some(from) = begin {
            let from = from.as_slice();
            let body = PageOf { space, range: (from, &end), clears: &mut clears, is_first_attempt: true };
            let page = marked.run(db, policy, body).await?;
            requeued.moved += page.moved;
            requeued.unreadable += page.unreadable;
            begin = page.next;
            requeued.more = begin.is_some() && until.is_some_and(|until| Instant::now() >= until);
            if requeued.more {
                break;
            }
        }
        // The items are ready, even if this fails: sweepers clear the mark later.
        let _ = marked.close(db, policy).await;
        Ok(requeued)
    }
}

/// The transaction of one page.
struct PageOf<'a> {
    space: &'a Space,
    range: (&'a [u8], &'a [u8]),
    /// As it is after a conflict, for the pages that follow too.
    clears: &'a mut Clears,
    is_first_attempt: bool,
}

impl Body for PageOf<'_> {
    type Output = ReadyPage;

    async fn fill(&mut self, tr: &Transaction) -> Result<Act<ReadyPage>, QueueError> {
        if !self.is_first_attempt {
            *self.clears = Clears::Apart;
        }
        self.is_first_attempt = false;
        let page = promote::page(self.space, tr, self.range, *self.clears).await?;
        Ok(if page.moved == 0 { Act::Nothing(page) } else { Act::Write(page) })
    }
}
