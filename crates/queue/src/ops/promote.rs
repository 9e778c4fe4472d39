//! Making scheduled items ready: those whose time has come, or all.

use bytes::Bytes;
use foundationdb::Transaction;

use crate::keys::Space;
use crate::model::error::QueueError;
use crate::model::id::ItemId;
use crate::model::meta::Millis;
use crate::ops::transition::{After, Before, Subject, Transitions};
use crate::ops::{bodies, cost, place};
use crate::run::range_read::RangeRead;
use mutant::{bound, mutant};

/// The most items of one transaction.
fn page_rows() -> usize {
    bound("promote-page", 500)
}
/// About how many bytes one transaction writes at most.
fn page_bytes() -> usize {
    bound("promote-page-bytes", 1 << 20)
}
/// How many values are read at once at first. Their size says how many more are read together.
fn first_together() -> usize {
    bound("promote-together", 32)
}

/// A scheduled item.
struct Scheduled {
    id: ItemId,
    record: Bytes,
}

/// What became of a page of scheduled items.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReadyPage {
    /// Items that are ready now.
    pub(crate) moved: usize,
    /// Records that cannot be read, or are another kind's. They stay.
    pub(crate) unreadable: usize,
    /// What is wrong with the first of these.
    trouble: Option<QueueError>,
    /// Where the next page begins; `None` behind the last of all.
    pub(crate) next: Option<Vec<u8>>,
}

impl ReadyPage {
    fn stays(&mut self, error: QueueError) {
        self.unreadable += 1;
        self.trouble.get_or_insert(error);
    }
}

/// Makes the first items ready that are due at `now`; returns how many. There may be more.
///
/// # Errors
/// The error of the first unreadable item, if there is nothing else to do.
pub(crate) async fn promote(space: &Space, tr: &Transaction, now: Millis) -> Result<usize, QueueError> {
    let (begin, end) = space.later.by(now);
    match page(space, tr, (&begin, &end)).await? {
        ReadyPage { moved: 0, trouble: Some(error), .. } => Err(error),
        page => Ok(page.moved),
    }
}

/// Makes the first items of a range of records ready, at their own places. Fails at commit if another has moved one.
///
/// The records are read without a conflict: an item that is scheduled meanwhile is none of these. Each is cleared for itself,
/// since producers schedule items between them all the time.
pub(crate) async fn page(
    space: &Space,
    tr: &Transaction,
    range: (&[u8], &[u8]),
) -> Result<ReadyPage, QueueError> {
    let rows = RangeRead::of(range).limit(page_rows()).page(tr).await?;
    let mut page = ReadyPage { next: rows.next(), ..ReadyPage::default() };
    let scheduled: Vec<_> = rows.iter().map(|row| scheduled(space, row.key(), row.value())).collect();
    drop(rows);
    let (mut bytes, mut moved, mut transitions) = (0, Vec::new(), Transitions::without_ends(space));
    let mut rest = scheduled.as_slice();
    'page: while !rest.is_empty() {
        let (group, behind) = rest.split_at(together(scheduled.len() - rest.len(), bytes).min(rest.len()));
        rest = behind;
        let ids: Vec<_> =
            group.iter().filter_map(|(_, item)| item.as_ref().ok()).map(|item| &item.id).collect();
        let mut values = bodies::read(space, tr, &ids).await?.into_iter();
        for (key, item) in group {
            // Neither this one nor those behind it are of this page.
            if bytes >= page_bytes() {
                page.next = Some(key.clone());
                break 'page;
            }
            let read = match item {
                Ok(item) => values.next().expect("each item has its value").map(|value| (item, value)),
                Err(error) => Err(error.clone()),
            };
            match read {
                Ok((Scheduled { id, record }, value)) => {
                    bytes += cost::moving(space, id, value.len(), record);
                    let subject = Subject::new(id, &value, record);
                    transitions.add(tr, Before::Scheduled(key), After::Ready, subject)?;
                    moved.push(key.as_slice());
                }
                Err(error) => page.stays(error),
            }
        }
    }
    if mutant("promote-clears-a-range")
        && let Some((first, last)) = moved.first().zip(moved.last())
    {
        tr.clear_range(first, last);
    }
    page.moved = moved.len();
    transitions.write(tr, None).await?;
    Ok(page)
}

/// The key of a row, and its item; or why there is none that can be moved.
fn scheduled(space: &Space, key: &[u8], record: &[u8]) -> (Vec<u8>, Result<Scheduled, QueueError>) {
    let found = space.later.decode_item(key).ok_or_else(|| QueueError::unreadable(key));
    let item = found.and_then(|(_, id)| {
        place::check_kind(space, &id)?;
        Ok(Scheduled { id, record: Bytes::copy_from_slice(record) })
    });
    (key.to_vec(), item)
}

/// The number of values to read next, after `read` values that cost `bytes` bytes: all that fit into the transaction if they are alike. So a page of small items
/// is read in two rounds, and one of large items reads few in vain.
fn together(read: usize, bytes: usize) -> usize {
    match bytes.checked_div(read) {
        None => first_together(),
        Some(each) => {
            (page_bytes().saturating_sub(bytes) / each.max(1)).max(first_together()).min(page_rows().max(1))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rounds of reads of a page whose items cost `each` bytes, and the number of values.
    fn rounds(each: usize) -> (usize, usize) {
        let (mut rounds, mut read) = (0, 0);
        while read < page_rows() && read * each < page_bytes() {
            read = (read + together(read, read * each)).min(page_rows());
            rounds += 1;
        }
        (rounds, read)
    }

    #[test]
    fn the_values_of_small_items_are_read_in_two_rounds_and_few_large_ones_in_vain() {
        assert_eq!([0, 300, 2_000].map(rounds), [(2, page_rows()); 3]);
        let (round, read) = rounds(10_000);
        assert!(round <= 3 && (read - first_together()) * 10_000 <= page_bytes(), "{round} {read}");
        assert_eq!(rounds(100_000), (1, first_together()));
    }
}
