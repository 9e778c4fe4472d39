//! Reading ended items by the value of an attribute.

use std::ops::ControlFlow;

use foundationdb::options::StreamingMode;
use foundationdb::{RangeOption, Transaction};
use futures::future::try_join_all;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};

use super::read::{Page, TOGETHER, hours};
use super::setting;
use crate::error::QueueError;
use crate::history::HistoryFilter;
use crate::keys::Space;
use crate::keys::element::split_number;
use crate::keys::ended::{GroupKey, Setting, hour};
use crate::keys::ended_by::of_value;
use crate::schedule::ATTRIBUTES;

/// The most rows that are read of an hour at once.
const ROWS: usize = 128;

/// How many groups are read at once.
const GROUPS: usize = 16;

/// An attribute that a filter has and the history is indexed by.
pub(super) struct Index<'a> {
    name: &'a str,
    value: &'a str,
    /// The minute from which on the index has all items, and of which on none are cleared: rows of an hour stay until all of it is cleared.
    pub(super) from: u64,
}

impl Index<'_> {
    /// The one to be used: that which has been there for the longest time.
    pub(super) async fn find<'a>(
        space: &Space,
        tr: &Transaction,
        filter: &'a HistoryFilter,
    ) -> Result<Option<Index<'a>>, QueueError> {
        let schedule = filter.schedule.as_deref().map(|schedule| (ATTRIBUTES[0], schedule));
        let attributes = filter.attributes.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let mut attributes = schedule.into_iter().chain(attributes).peekable();
        if attributes.peek().is_none() {
            return Ok(None);
        }
        // Without a setting that can be read, the groups are read one after the other.
        let setting = QueueError::if_readable(setting(space, tr, true).await)?.ok().flatten();
        let Setting { indexed, cleared, .. } = setting.unwrap_or_default();
        let found = attributes.filter_map(|(name, value)| {
            let from = cleared.max(*indexed.get(name)?);
            Some(Index { name, value, from })
        });
        Ok(found.min_by_key(|index| index.from))
    }

    /// Adds the items with this value whose groups have keys in this range, until the page is full.
    pub(super) async fn read(
        &self,
        tr: &Transaction,
        page: &mut Page<'_>,
        (begin, end): (&[u8], &[u8]),
    ) -> Result<ControlFlow<()>, QueueError> {
        let Some((oldest, newest)) = hours(page.space, tr).await? else {
            return Ok(ControlFlow::Continue(()));
        };
        // Rows end with what follows the prefix in the keys of their groups.
        let prefix = page.space.ended.len();
        let (begin, end) = (&begin[prefix..], &end[prefix..]);
        let hour_of = |key| split_number(key).map(|(minute, _)| hour(minute));
        let oldest = oldest.max(hour_of(begin).unwrap_or(0));
        let newest = newest.min(hour_of(end).unwrap_or(u64::MAX));
        let hours: Vec<u64> = (oldest..=newest).rev().collect();
        // Most likely the page is full soon. If it is not, more and more hours are read at once.
        let (mut rest, mut together) = (hours.as_slice(), 1);
        while !rest.is_empty() {
            let (now, later) = rest.split_at(together.min(rest.len()));
            let rows = now.iter().map(|hour| self.rows(tr, page.space, *hour, (begin, end)));
            let rows = try_join_all(rows).await?;
            for (hour, mut groups) in now.iter().zip(rows) {
                loop {
                    if self.add(tr, page, &groups).await?.is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                    let Some(last) = groups.last().filter(|_| groups.len() == ROWS) else { break };
                    groups = self.rows(tr, page.space, *hour, (begin, &last.encode(&[]))).await?;
                }
            }
            (rest, together) = (later, (2 * together).min(TOGETHER));
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The newest groups of an hour that have the value.
    async fn rows(
        &self,
        tr: &Transaction,
        space: &Space,
        hour: u64,
        (begin, end): (&[u8], &[u8]),
    ) -> Result<Vec<GroupKey>, QueueError> {
        let before = of_value(&space.ended_by, hour, self.name, self.value);
        let (begin, end) = ([&before, begin].concat(), [&before, end].concat());
        let option = RangeOption {
            reverse: true,
            limit: Some(ROWS),
            mode: StreamingMode::WantAll,
            ..RangeOption::from((begin, end))
        };
        let replies: Vec<_> = tr.get_ranges(option, true).try_collect().await?;
        Ok(replies.iter().flatten().filter_map(|row| GroupKey::decode(&before, row.key())).collect())
    }

    async fn add(
        &self,
        tr: &Transaction,
        page: &mut Page<'_>,
        groups: &[GroupKey],
    ) -> Result<ControlFlow<()>, QueueError> {
        let space = page.space;
        let mut values = stream::iter(groups)
            .map(|group| async move { (group, tr.get(&group.encode(&space.ended), true).await) })
            .buffered(GROUPS);
        while let Some((group, value)) = values.next().await {
            // A row without its group leads to nothing.
            let Some(value) = value? else { continue };
            if page.add(Some(group.clone()), space.ended.len(), &value).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}
