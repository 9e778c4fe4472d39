//! Reading the index of a keyed queue at one version, without a conflict.

use foundationdb::Transaction;

use super::rows::IndexRows;
use crate::keys::keyed::KeyedSpace;
use crate::keys::{Space, range};
use crate::model::error::QueueError;
use crate::ops::running::{MOST_SEARCHED, group_len, headers, open_each};
use crate::run::range_read::RangeRead;
use mutant::bound;

/// The rows of a page.
fn page_rows() -> usize {
    bound("index-page", 10_000)
}
/// The most rows that are kept in memory.
const MOST_ROWS: usize = 3_000_000;

/// The index; `None`: it is too large, or a lease is of a layout that this version does not know.
pub(crate) async fn read(
    space: &Space,
    keyed: &KeyedSpace,
    tr: &Transaction,
) -> Result<Option<IndexRows>, QueueError> {
    let mut index = IndexRows::default();
    let places = place_ranges(keyed);
    let others = [keyed.listed_range(), keyed.timer_range(), keyed.all_holds(), keyed.running_range()];
    for rows in places.into_iter().chain(others) {
        let is_read = each_row(tr, rows, |key, value| {
            index.show(keyed, key, value);
            index.len() <= MOST_ROWS
        });
        if !is_read.await? {
            return Ok(None);
        }
    }
    let is_read = read_running(space, tr, &mut index).await?;
    Ok(is_read.then_some(index))
}

/// The rows that are places of keys.
pub(crate) fn place_ranges(keyed: &KeyedSpace) -> [(Vec<u8>, Vec<u8>); 4] {
    [keyed.active_range(), keyed.parked_for_limits(), keyed.parked_suspects(), keyed.on_hold_range()]
}

/// Shows each row of a range, until one is refused. Returns whether none was.
pub(crate) async fn each_row(
    tr: &Transaction,
    range: (Vec<u8>, Vec<u8>),
    mut show: impl FnMut(&[u8], &[u8]) -> bool,
) -> Result<bool, QueueError> {
    let mut pages = RangeRead::of(range).page_limit(page_rows()).pages(tr);
    while let Some(page) = pages.next_page().await? {
        if !page.iter().all(|row| show(row.key(), row.value())) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Notes all running items. Returns whether all leases could be read.
async fn read_running(space: &Space, tr: &Transaction, index: &mut IndexRows) -> Result<bool, QueueError> {
    let mut pages = RangeRead::of(range(&space.leases)).page_limit(page_rows()).pages(tr);
    let mut bytes = 0;
    while let Some(page) = pages.next_page().await? {
        let found = headers(space, &page);
        let mut rest = found.as_slice();
        while !rest.is_empty() {
            let (group, behind) = rest.split_at(group_len(rest, usize::MAX));
            rest = behind;
            for (_, opened) in open_each(space, tr, group, None).await? {
                let Some((_, open)) = opened else { return Ok(false) };
                open.iter().for_each(|(_, row)| index.is_running(&row.id));
                bytes += open.iter().map(|(_, row)| row.value.len() + row.meta.len()).sum::<usize>();
            }
            if bytes > MOST_SEARCHED {
                return Ok(false);
            }
        }
    }
    Ok(true)
}
