//! Making items ready whose time has come.

use bytes::Bytes;
use foundationdb::options::StreamingMode;
use foundationdb::{RangeOption, Transaction};
use futures::future::join_all;

use crate::keys::{Space, later, range};
use crate::model::error::QueueError;
use crate::model::id::ItemId;
use crate::model::meta::Millis;
use crate::ops::transition::{After, Before, Subject, Transitions};
use crate::ops::{cost, place};
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

/// An item whose time has come.
struct Due {
    key: Vec<u8>,
    id: ItemId,
    meta: Bytes,
}

/// Makes the first items ready that are due at `now`, at their own places; returns how many. There may be more.
///
/// Records that cannot be read, or are another kind's, are passed over.
///
/// # Errors
/// The error of the first unreadable item, if there is nothing else to do.
pub(crate) async fn promote(space: &Space, tr: &Transaction, now: Millis) -> Result<usize, QueueError> {
    let (page, mut trouble) = page(space, tr, now).await?;
    let (mut moved, mut bytes, mut transitions) = (Vec::new(), 0, Transitions::without_ends(space));
    let mut rest = page.as_slice();
    while let Some((group, behind)) =
        rest.split_at_checked(together(page.len() - rest.len(), bytes).min(rest.len()))
        && !group.is_empty()
    {
        rest = behind;
        let values = join_all(group.iter().map(|due| place::body(space, tr, &due.id))).await;
        for (due, value) in group.iter().zip(values) {
            if bytes >= page_bytes() {
                break;
            }
            let value = match value {
                Ok(value) => value,
                Err(error) if error.database().is_some() => return Err(error),
                Err(error) => {
                    trouble.get_or_insert(error);
                    continue;
                }
            };
            bytes += cost::moving(space, &due.id, value.len(), &due.meta);
            let item = Subject::new(&due.id, &value, &due.meta);
            transitions.add(tr, Before::Scheduled(&due.key), After::Ready, &item)?;
            moved.push(due.key.as_slice());
        }
        if bytes >= page_bytes() {
            break;
        }
    }
    let Some((first, last)) = moved.first().zip(moved.last()) else { return trouble.map_or(Ok(0), Err) };
    if mutant("promote-clears-a-range") {
        tr.clear_range(first, last);
    }
    transitions.write(tr, None).await?;
    Ok(moved.len())
}

/// The number of values to read next, after `read` values that cost `bytes` bytes: all that fit into the transaction if they are alike. So a page of small items
/// takes two rounds of reads, and one of large items reads few in vain.
fn together(read: usize, bytes: usize) -> usize {
    match bytes.checked_div(read) {
        None => first_together(),
        Some(each) => {
            (page_bytes().saturating_sub(bytes) / each.max(1)).max(first_together()).min(page_rows().max(1))
        }
    }
}

/// The first items that are due, and what is wrong with the first record among them that is none. Read without a conflict: an item put
/// aside meanwhile is none of ours.
async fn page(
    space: &Space,
    tr: &Transaction,
    now: Millis,
) -> Result<(Vec<Due>, Option<QueueError>), QueueError> {
    let (begin, end) = range(&space.later);
    let end = now.checked_add(1).map_or(end, |next| later::at(&space.later, next));
    let option = RangeOption {
        limit: Some(page_rows()),
        mode: StreamingMode::WantAll,
        ..RangeOption::from((begin, end))
    };
    let rows = tr.get_range(&option, 1, true).await?;
    let (mut page, mut trouble) = (Vec::with_capacity(rows.len()), None);
    for row in &rows {
        let found = later::decode(&space.later, row.key()).ok_or_else(|| QueueError::unreadable(row.key()));
        match found.and_then(|(_, id)| place::check_kind(space, &id).map(|()| id)) {
            Ok(id) => {
                page.push(Due { key: row.key().to_vec(), id, meta: Bytes::copy_from_slice(row.value()) });
            }
            Err(error) => drop(trouble.get_or_insert(error)),
        }
    }
    Ok((page, trouble))
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
