//! Delayed items: looking at them, and making them ready before their time.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;

use foundationdb::{Database, Transaction};

use crate::MAX_TAKE_BYTES;
use crate::error::QueueError;
use crate::id::ItemId;
use crate::item::Item;
use crate::keys::{after, range};
use crate::marked::{Act, Marked};
use crate::meta::Millis;
use crate::ops::aside::{delayed, last_key, read_records};
use crate::ops::hasten;
use crate::queue::Queue;
use crate::retry::{RetryError, RetryPolicy, run};
use crate::session::SessionId;

/// An item that waits for its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delayed {
    /// When it becomes ready.
    pub due: Millis,
    /// Which item it is.
    pub id: ItemId,
    /// The item; or why it cannot be read: something of it is missing or damaged.
    pub item: Result<Item, String>,
}

/// What became of delayed items that were to be ready at once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hastened {
    /// How many are ready now.
    pub moved: usize,
    /// Which of those that were asked for by name.
    pub ids: BTreeSet<ItemId>,
    /// How many stay as they are, because they cannot be read.
    pub unreadable: usize,
}

impl Queue {
    /// Delayed items in the order of their times: those behind `after`, or the first; up to `k` of them, and fewer where
    /// [`MAX_TAKE_BYTES`] of payloads and side records are reached, but one at least if there is one. One that cannot be read is among them, and says why. A snapshot read: it conflicts with nothing.
    pub async fn later_after(
        &self,
        tr: &Transaction,
        after: Option<(Millis, &ItemId)>,
        k: NonZeroUsize,
    ) -> Result<Vec<Delayed>, QueueError> {
        let found = delayed(self.space(), tr, after, k).await?;
        let records: Vec<_> = found.iter().map(|(_, id, meta)| (id.clone(), meta.clone())).collect();
        let items = read_records(self.space(), tr, &records, MAX_TAKE_BYTES).await?;
        let delayed = found.into_iter().zip(items).map(|((due, id, _), item)| Delayed {
            due,
            id,
            item: item.map(|(_, item)| item).map_err(|error| error.to_string()),
        });
        Ok(delayed.collect())
    }

    /// Makes delayed items ready at once, each at its own place: those of `wanted`, or all that there are when it begins.
    ///
    /// In pages, a transaction each: what was done before an error stays done. Under an unknown outcome
    /// no item is counted or made ready twice.
    pub async fn hasten(
        &self,
        db: &Database,
        policy: &RetryPolicy,
        wanted: Option<&BTreeSet<ItemId>>,
    ) -> Result<Hastened, RetryError> {
        let space = self.space();
        let all = range(&space.later);
        let all_keys = &all;
        let last = run(db, policy, |tr| async move {
            let last = last_key(&tr, all_keys).await;
            (tr, last)
        });
        let mut hastened = Hastened::default();
        let Some(last) = last.await?.value else { return Ok(hastened) };
        let (mut begin, end) = (Some(all.0.clone()), after(&last));
        let mut marked = Marked::new(self.clone(), SessionId::new());
        while let Some(from) = begin {
            let from = from.as_slice();
            let body = async |tr: &Transaction| {
                let page = hasten::page(space, tr, (from, &end), wanted).await?;
                Ok(if page.moved.is_empty() { Act::Nothing(page) } else { Act::Write(page) })
            };
            let page = marked.run(db, policy, body).await?;
            hastened.moved += page.moved.len();
            hastened.unreadable += page.unreadable;
            if wanted.is_some() {
                hastened.ids.extend(page.moved);
            }
            begin = page.next;
        }
        marked.close(db, policy).await?;
        Ok(hastened)
    }
}
