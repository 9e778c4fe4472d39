//! Reading ended items by the value of an attribute.

use std::ops::ControlFlow;

use foundationdb::Transaction;
use futures::future::try_join_all;
use futures::stream;
use futures::stream::StreamExt as _;
use mutant::bound;

use super::read::{Page, hours_before, most_together};
use super::setting;
use crate::keys::Space;
use crate::keys::ended::{Setting, hour};
use crate::keys::ended_by::of_value;
use crate::model::element::split_number;
use crate::model::error::QueueError;
use crate::model::history::{GroupKey, HistoryFilter};
use crate::model::schedule::ATTRIBUTES;
use crate::run::range_read::RangeRead;

/// The most rows that are read of an hour at once.
fn page_rows() -> usize {
    bound("history-index-rows", 128)
}

/// How many groups are read at once.
fn groups_together() -> usize {
    bound("history-groups-together", 16)
}

/// What the row and the read of a group count as, in bytes. So a page has at most 2,000 groups: each is a read of its own, and a transaction has five seconds.
const PRICE: usize = 500;

/// An attribute that a filter has and the history is indexed by.
pub(super) struct Index<'a> {
    name: &'a str,
    value: &'a str,
    /// The minute from which on the index has all items, and of which on none are cleared: rows of an hour stay until all of it is cleared.
    pub(super) from: u64,
}

impl Index<'_> {
    /// The indexed attribute of the filter whose index has been complete for the longest time: it leaves the least to be read in full.
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
            let from = *indexed.get(name)?;
            Some(Index { name, value, from })
        });
        Ok(found.min_by_key(|index| index.from).map(|index| Index { from: index.from.max(cleared), ..index }))
    }

    /// Adds the items with this value whose groups have keys in this range, until the page is full.
    pub(super) async fn read(
        &self,
        tr: &Transaction,
        page: &mut Page<'_>,
        (begin, end): (&[u8], &[u8]),
    ) -> Result<ControlFlow<()>, QueueError> {
        // Rows end with what follows the prefix in the keys of their groups.
        let prefix = page.space.ended.len();
        let (begin, end) = (&begin[prefix..], &end[prefix..]);
        let hour_of = |key| split_number(key).map(|(minute, _)| hour(minute));
        let oldest = hour_of(begin).unwrap_or(0);
        let mut before = hour_of(end).map_or(u64::MAX, |newest| newest.saturating_add(1));
        // Most likely the page is full soon. If it is not, more and more hours are read at once.
        let mut together = 1;
        loop {
            let mut hours = hours_before(page.space, tr, before, together).await?;
            hours.retain(|hour| *hour >= oldest);
            let Some(last) = hours.last() else { return Ok(ControlFlow::Continue(())) };
            before = *last;
            let rows = hours.iter().map(|hour| self.rows(tr, page.space, *hour, (begin, end)));
            for (hour, mut rows) in hours.iter().zip(try_join_all(rows).await?) {
                loop {
                    if add(tr, page, &rows.groups).await?.is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                    let Some(rest) = rows.rest else { break };
                    rows = self.rows(tr, page.space, *hour, (begin, &rest)).await?;
                }
            }
            together = (2 * together).min(most_together());
        }
    }

    /// The newest rows of an hour that have the value.
    async fn rows(
        &self,
        tr: &Transaction,
        space: &Space,
        hour: u64,
        (begin, end): (&[u8], &[u8]),
    ) -> Result<Rows, QueueError> {
        let before = of_value(&space.ended_by, hour, self.name, self.value);
        let range = ([&before, begin].concat(), [&before, end].concat());
        let mut pages = RangeRead::of(range).reverse(true).limit(page_rows()).pages(tr);
        let mut rows = Rows { groups: Vec::new(), rest: None };
        while let Some(page) = pages.next_page().await? {
            rows.groups.extend(page.iter().map(|row| GroupKey::decode(&before, row.key())));
            rows.rest = page.next().map(|key| key[before.len()..].to_vec());
        }
        Ok(rows)
    }
}

/// Rows of an hour, the newest first.
struct Rows {
    /// The groups that they lead to; `None` for a row of another layout.
    groups: Vec<Option<GroupKey>>,
    /// What follows the value in the last key, if there may be more rows before it.
    rest: Option<Vec<u8>>,
}

/// Adds items of these groups, until the page is full.
async fn add(
    tr: &Transaction,
    page: &mut Page<'_>,
    groups: &[Option<GroupKey>],
) -> Result<ControlFlow<()>, QueueError> {
    let space = page.space;
    let mut values = stream::iter(groups)
        .map(|group| async move {
            let Some(group) = group else { return (None, Ok(None)) };
            (Some(group.clone()), tr.get(&group.encode(&space.ended), true).await)
        })
        .buffered(groups_together());
    while let Some((group, value)) = values.next().await {
        let value = value?;
        let is_full = match (group, &value) {
            (Some(group), Some(value)) => page.add(Some(group), PRICE, value),
            // A row without its group leads to nothing.
            (Some(_), None) => ControlFlow::Continue(()),
            (None, _) => page.add(None, PRICE, &[]),
        };
        if is_full.is_break() {
            return Ok(is_full);
        }
    }
    Ok(ControlFlow::Continue(()))
}
