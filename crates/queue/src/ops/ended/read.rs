//! Reading ended items: pages, the newest first, and one by its id.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;

use bytes::Bytes;
use foundationdb::Transaction;
use foundationdb::future::FdbKeyValue;
use futures::future::{try_join, try_join_all};
use mutant::bound;

use super::by_attribute::Index;
use crate::keys::ended::{Run, decode_group, from_minute, hour, minute, result_key, runs_of};
use crate::keys::{Space, after, range};
use crate::model::element::split_number;
use crate::model::error::QueueError;
use crate::model::history::{EndedItem, GroupKey, HistoryCursor, HistoryFilter, HistoryPage, MAX_RESULT};
use crate::model::id::ItemId;
use crate::model::sightings::Sightings;
use crate::model::time::millis;
use crate::ops::find::last_key;
use crate::ops::times;
use crate::run::range_read::RangeRead;
use crate::run::version;

/// A page reads about this many bytes at most.
fn page_bytes() -> usize {
    bound("history-page-bytes", 1_000_000)
}

/// The most hours that are searched at once.
pub(super) fn most_together() -> usize {
    bound("history-hours-together", 48)
}

/// A page of items that match.
pub(crate) async fn page(
    space: &Space,
    tr: &Transaction,
    filter: &HistoryFilter,
    before: Option<&HistoryCursor>,
    k: NonZeroUsize,
) -> Result<HistoryPage, QueueError> {
    let (begin, mut end) = bounds(space, filter, before);
    let mut page = Page { space, filter, before, k, bytes: 0, page: HistoryPage::default() };
    if let Some(index) = Index::find(space, tr, filter).await? {
        let from = from_minute(&space.ended, index.from).max(begin.clone());
        if from < end && index.read(tr, &mut page, (&from, &end)).await?.is_break() {
            return Ok(page.page);
        }
        end = end.min(from);
    }
    if begin < end {
        let _ = page.walk(tr, (begin, end)).await?;
    }
    Ok(page.page)
}

/// A page that is being filled, the newest items first.
pub(super) struct Page<'a> {
    pub(super) space: &'a Space,
    filter: &'a HistoryFilter,
    before: Option<&'a HistoryCursor>,
    k: NonZeroUsize,
    /// How much was read.
    bytes: usize,
    page: HistoryPage,
}

impl Page<'_> {
    /// Adds items of a range of groups, until the page is full.
    async fn walk(
        &mut self,
        tr: &Transaction,
        range: (Vec<u8>, Vec<u8>),
    ) -> Result<ControlFlow<()>, QueueError> {
        let mut pages = RangeRead::of(range).reverse(true).growing().pages(tr);
        while let Some(rows) = pages.next_page().await? {
            for row in rows.iter() {
                let group = GroupKey::decode(&self.space.ended, row.key());
                if self.add(group, row.key().len(), row.value()).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Adds those items of a group that match. Breaks when the page is full. `price`: what it cost to find the group, in bytes.
    pub(super) fn add(&mut self, group: Option<GroupKey>, price: usize, value: &[u8]) -> ControlFlow<()> {
        self.bytes += price + value.len();
        let Some(group) = group else {
            self.page.unreadable += 1;
            return ControlFlow::Continue(());
        };
        let items = decode_group(value).unwrap_or_else(|| {
            self.page.unreadable += 1;
            Vec::new()
        });
        // Of the group that the last page ended in, the rest.
        let until = self.before.filter(|before| before.group == group).map(|before| before.index);
        for (index, item) in (0_u32..).zip(items).collect::<Vec<_>>().into_iter().rev() {
            if until.is_some_and(|until| index >= until) || !self.filter.matches(&item) {
                continue;
            }
            self.page.items.push(item);
            if self.page.items.len() == self.k.get() {
                self.page.next = Some(HistoryCursor { group, index });
                return ControlFlow::Break(());
            }
        }
        // A page that has only what the last one ended with would lead to itself.
        if self.bytes >= page_bytes() && until != Some(0) {
            self.page.next = Some(HistoryCursor { group, index: 0 });
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

/// The keys that may have items of a page.
fn bounds(space: &Space, filter: &HistoryFilter, before: Option<&HistoryCursor>) -> (Vec<u8>, Vec<u8>) {
    let (mut begin, mut end) = range(&space.ended);
    if let Some(since) = filter.since {
        begin = begin.max(from_minute(&space.ended, minute(millis(since))));
    }
    if let Some(until) = filter.until {
        // Nothing of a minute that begins then has ended before.
        end = end.min(from_minute(&space.ended, minute(millis(until).saturating_sub(1)).saturating_add(1)));
    }
    if let Some(before) = before {
        end = end.min(after(&before.group.encode(&space.ended)));
    }
    (begin, end)
}

/// By how many hours the clocks of the processes that note times and ends may be wrong.
const DOUBT: u64 = 24;

/// The first hours in which items can have ended, by the versions of their pushes. Without that, each id that is not there costs reads of all hours.
#[derive(Debug)]
pub(crate) struct FirstHours {
    times: Sightings,
    version: u64,
}

impl FirstHours {
    pub(crate) async fn read(space: &Space, tr: &Transaction) -> Result<FirstHours, QueueError> {
        let (times, version) = try_join(times::read(space, tr, true), version::now(tr)).await?;
        Ok(FirstHours { times, version })
    }

    /// 0 if nothing tells: of a recipe's item, and after versions went back.
    fn of(&self, id: &ItemId) -> u64 {
        let pushed = id.pushed_at().filter(|pushed| *pushed <= self.version);
        let seen = pushed.and_then(|pushed| self.times.time_before(pushed));
        seen.map_or(0, |at| hour(minute(at)).saturating_sub(DOUBT))
    }
}

/// The last end of an item.
pub(crate) async fn one(
    space: &Space,
    tr: &Transaction,
    id: &ItemId,
) -> Result<Option<EndedItem>, QueueError> {
    let first_hours = FirstHours::read(space, tr).await?;
    one_of(space, tr, id, &first_hours).await
}

/// The same, when it is known at which times versions had been read.
pub(crate) async fn one_of(
    space: &Space,
    tr: &Transaction,
    id: &ItemId,
    first_hours: &FirstHours,
) -> Result<Option<EndedItem>, QueueError> {
    let (mut before, first) = (u64::MAX, first_hours.of(id));
    loop {
        let mut hours = hours_before(space, tr, before, most_together()).await?;
        hours.retain(|hour| *hour >= first);
        let Some(oldest) = hours.last() else { return Ok(None) };
        let found = try_join_all(hours.iter().map(|hour| groups_of(space, tr, *hour, id))).await?;
        let mut groups: Vec<GroupKey> = found.into_iter().flatten().collect();
        groups.sort();
        for group in groups.iter().rev() {
            if let Some(item) = in_group(space, tr, group, id).await? {
                return Ok(Some(item));
            }
        }
        before = *oldest;
    }
}

/// The result of an item that has ended, if it is kept.
pub(crate) async fn result(
    space: &Space,
    tr: &Transaction,
    item: &EndedItem,
) -> Result<Option<Bytes>, QueueError> {
    if item.result.is_none_or(|len| len > MAX_RESULT) {
        return Ok(None);
    }
    let value = tr.get(&result_key(&space.results, minute(millis(item.ended)), &item.id), true).await?;
    Ok(value.map(|value| Bytes::copy_from_slice(&value)))
}

/// Up to `most` hours, the newest first: the hour of the newest record before the hour `before`, and the hours before that one. Empty if there is no such
/// record. A clock that is far ahead leaves a gap of hours without records, which this skips.
pub(super) async fn hours_before(
    space: &Space,
    tr: &Transaction,
    before: u64,
    most: usize,
) -> Result<Vec<u64>, QueueError> {
    let (begin, _) = range(&space.ended_ids);
    let last = last_key(tr, &(begin, from_minute(&space.ended_ids, before))).await?;
    let of = |key: &[u8]| split_number(key.strip_prefix(space.ended_ids.as_slice())?).map(|(hour, _)| hour);
    let Some(newest) = last.as_deref().and_then(of) else { return Ok(Vec::new()) };
    Ok((0..=newest).rev().take(most).collect())
}

/// The groups of an hour that may have an item.
async fn groups_of(
    space: &Space,
    tr: &Transaction,
    hour: u64,
    id: &ItemId,
) -> Result<Vec<GroupKey>, QueueError> {
    let run = |row: &FdbKeyValue| Run::decode(&space.ended_ids, row.key(), row.value());
    let runs = RangeRead::of(runs_of(&space.ended_ids, hour, id)).collect(tr, run).await?;
    let may_have = |run: &Run| run.first <= *id && *id <= run.last;
    Ok(runs.into_iter().flatten().filter(may_have).map(|run| run.group).collect())
}

async fn in_group(
    space: &Space,
    tr: &Transaction,
    group: &GroupKey,
    id: &ItemId,
) -> Result<Option<EndedItem>, QueueError> {
    // It may have been cleared already: minutes are cleared before their hour is.
    let Some(value) = tr.get(&group.encode(&space.ended), true).await? else { return Ok(None) };
    let items = decode_group(&value).unwrap_or_default();
    Ok(items.into_iter().find(|item| item.id == *id))
}
