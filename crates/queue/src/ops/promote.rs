//! Making scheduled items ready: those whose time has come, or all.

use bytes::Bytes;
use foundationdb::Transaction;

use crate::keys::{Space, after};
use crate::model::error::QueueError;
use crate::model::id::ItemId;
use crate::model::time::Millis;
use crate::ops::bodies::{self, Bodies};
use crate::ops::transition::{After, Before, Subject, Transitions};
use crate::ops::{cost, place};
use crate::run::conflict;
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

/// Whether rows that lie together are cleared together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clears {
    /// A few ranges cost the database much less than several rows of each item. The transaction conflicts with everything that is written between them.
    Together,
    /// Each row for itself, after a conflict.
    Apart,
}

/// A scheduled item.
struct Scheduled {
    key: Vec<u8>,
    /// Whether its record follows the one before it, without another row between them.
    follows: bool,
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
/// The error of an unreadable item, if there is nothing else to do.
pub(crate) async fn promote(
    space: &Space,
    tr: &Transaction,
    now: Millis,
    clears: Clears,
) -> Result<usize, QueueError> {
    let (begin, end) = space.later.by(now);
    match page(space, tr, (&begin, &end), clears).await? {
        ReadyPage { moved: 0, trouble: Some(error), .. } => Err(error),
        page => Ok(page.moved),
    }
}

/// Makes the first items of a range of records ready, at their own places. Fails at commit if another has moved one.
pub(crate) async fn page(
    space: &Space,
    tr: &Transaction,
    range: (&[u8], &[u8]),
    clears: Clears,
) -> Result<ReadyPage, QueueError> {
    let rows = RangeRead::of(range).limit(page_rows()).page(tr).await?;
    let mut page = ReadyPage { next: rows.next(), ..ReadyPage::default() };
    let (mut scheduled, mut unreadable) = (Vec::with_capacity(rows.len()), Vec::new());
    let mut follows = false;
    for row in rows.iter() {
        let key = row.key().to_vec();
        let item = read(space, &key, row.value());
        let is_readable = item.is_ok();
        match item {
            Ok((id, record)) => scheduled.push(Scheduled { key, follows, id, record }),
            Err(error) => unreadable.push((key, error)),
        }
        follows = is_readable;
    }
    drop(rows);
    let (mut bytes, mut transitions) = (0, Transitions::without_ends(space));
    let mut rest = scheduled.as_slice();
    while !rest.is_empty() {
        let (group, behind) = rest.split_at(together(scheduled.len() - rest.len(), bytes).min(rest.len()));
        rest = behind;
        let bodies = bodies::read(space, tr, &group.iter().map(|item| &item.id).collect::<Vec<_>>()).await?;
        let mut moves = vec![false; group.len()];
        for (at, (item, value)) in group.iter().zip(&bodies.values).enumerate() {
            // Neither this one nor those behind it are of this page.
            if bytes >= page_bytes() {
                page.next = Some(item.key.clone());
                rest = &[];
                break;
            }
            match value {
                Ok(value) => {
                    bytes += cost::moving(space, &item.id, value.len(), &item.record);
                    moves[at] = true;
                }
                Err(error) => page.stays(error.clone()),
            }
        }
        clear(space, tr, (group, &bodies), (clears, &moves))?;
        for (at, item) in group.iter().enumerate().filter(|(at, _)| moves[*at]) {
            let value = bodies.values[at].as_ref().expect("an item without a value does not move");
            let subject = Subject::new(&item.id, value, &item.record);
            transitions.add(tr, Before::Cleared, After::Ready, subject)?;
            page.moved += 1;
        }
    }
    let end = page.next.clone();
    let is_of_page = |key: &Vec<u8>| end.as_ref().is_none_or(|end| key < end);
    unreadable.into_iter().filter(|(key, _)| is_of_page(key)).for_each(|(_, error)| page.stays(error));
    transitions.write(tr, None).await?;
    Ok(page)
}

/// Clears the rows of those items of a group that move.
///
/// The transaction fails at commit if another has moved one of them, or has written a row between two that are cleared together. An item between them
/// that is not of the group, and has lost its value, loses the row of its time, too.
fn clear(
    space: &Space,
    tr: &Transaction,
    (group, bodies): (&[Scheduled], &Bodies),
    (clears, moves): (Clears, &[bool]),
) -> Result<(), QueueError> {
    let is_together = clears == Clears::Together;
    let records = group.iter().map(|item| item.follows && is_together).enumerate();
    for (first, last) in bodies::runs(records, |at| moves[at]) {
        let (first, last) = (&group[first].key, &group[last].key);
        if !mutant("promote-reads-no-records") {
            conflict::as_reader_of_all(tr, first, last)?;
        }
        tr.clear_range(first, &after(last));
    }
    for (first, last) in bodies.runs(is_together, |at| moves[at]) {
        let (first, last) = (&group[first].id, &group[last].id);
        if first != last && !mutant("promote-reads-no-values-between") {
            conflict::as_reader_of_all(tr, &space.body_key(first), &space.body_key(last))?;
            conflict::as_reader_of_all(tr, &space.due_key(first), &space.due_key(last))?;
        }
        place::clear_all_aside(space, tr, first, last);
    }
    Ok(())
}

/// The id and the record of a scheduled item; or why it cannot be moved.
fn read(space: &Space, key: &[u8], record: &[u8]) -> Result<(ItemId, Bytes), QueueError> {
    let (_, id) = space.later.decode_item(key).ok_or_else(|| QueueError::unreadable(key))?;
    place::check_kind(space, &id)?;
    Ok((id, Bytes::copy_from_slice(record)))
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
    use foundationdb::Database;
    use proptest::prelude::*;

    use super::*;
    use crate::keys::later::encode_due;
    use crate::model::kind::Kind;
    use crate::testing::on_database;
    use mutant::Bounds;

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

    fn id(n: u8) -> ItemId {
        ItemId::new([&b"\x33"[..], &[0; 9], &[n], &[0, 0]].concat().into())
    }

    /// What there is at an id.
    #[derive(Debug, Clone, Copy)]
    enum There {
        Nothing,
        Scheduled(Millis),
        /// Scheduled, but its value has gone.
        WithoutValue(Millis),
        /// Scheduled, and then a row that cannot be read.
        BesideUnreadable(Millis),
        /// A value that is not one of a scheduled item.
        Value,
    }

    impl There {
        fn due(self) -> Option<Millis> {
            match self {
                There::Scheduled(due) | There::WithoutValue(due) | There::BesideUnreadable(due) => Some(due),
                There::Nothing | There::Value => None,
            }
        }
    }

    fn there() -> impl Strategy<Value = There> {
        let due = 0..6_u64;
        prop_oneof![
            3 => Just(There::Nothing),
            8 => due.clone().prop_map(There::Scheduled),
            1 => due.clone().prop_map(There::WithoutValue),
            1 => due.prop_map(There::BesideUnreadable),
            1 => Just(There::Value),
        ]
    }

    async fn write(db: &Database, space: &Space, rows: &[There]) {
        let tr = db.create_trx().unwrap();
        for (n, there) in (0_u8..).zip(rows) {
            let id = id(n);
            if let Some(due) = there.due() {
                tr.set(&space.later.key(due, id.as_bytes()), b"");
                tr.set(&space.due_key(&id), &encode_due(due));
            }
            if let There::BesideUnreadable(due) = there {
                tr.set(&[&space.later.key(*due, id.as_bytes())[..], b"?"].concat(), b"");
            }
            if !matches!(there, There::Nothing | There::WithoutValue(_)) {
                tr.set(&space.body_key(&id), &[n]);
            }
        }
        tr.commit().await.unwrap();
    }

    /// What an item has in the states ready, scheduled, and none: whether there is a row of it among the ready items, the records, the values and the times.
    /// `None`: it may be there.
    fn expected(there: There) -> [Option<bool>; 4] {
        let [yes, no] = [Some(true), Some(false)];
        match there {
            There::Scheduled(due) | There::BesideUnreadable(due) if due <= 3 => [yes, no, no, no],
            There::Scheduled(_) | There::BesideUnreadable(_) => [no, yes, yes, yes],
            There::WithoutValue(_) => [no, yes, no, None],
            There::Value => [no, no, yes, no],
            There::Nothing => [no; 4],
        }
    }

    fn check(space: &Space, prefix: &[u8], rows: &[There], kept: &[(Vec<u8>, Vec<u8>)]) {
        let is_there = |key: Vec<u8>| kept.iter().any(|(kept, _)| [prefix, kept].concat() == key);
        for (n, there) in (0_u8..).zip(rows) {
            let (id, due) = (id(n), there.due().unwrap_or(0));
            let keys = [
                space.ready_key(&id),
                space.later.key(due, id.as_bytes()),
                space.body_key(&id),
                space.due_key(&id),
            ];
            for (at, (key, expected)) in keys.into_iter().zip(expected(*there)).enumerate() {
                assert!(
                    expected.is_none_or(|expected| is_there(key) == expected),
                    "row {at} of item {n}, {there:?}"
                );
            }
        }
    }

    /// All rows, after pages of promotions at time 3 until the end of the range; but for the time of an item that has lost its value, since the same range
    /// may clear it.
    async fn promoted(
        db: &Database,
        prefix: &[u8],
        rows: &[There],
        clears: Clears,
    ) -> Vec<(Vec<u8>, Vec<u8>)> {
        let space = Space::new(prefix, b"q", Kind::Fifo).unwrap();
        write(db, &space, rows).await;
        let (mut begin, end) = space.later.by(3);
        loop {
            let tr = db.create_trx().unwrap();
            let page = page(&space, &tr, (&begin, &end), clears).await.unwrap();
            tr.commit().await.unwrap();
            let Some(next) = page.next else { break };
            begin = next;
        }
        let tr = db.create_trx().unwrap();
        let end = [prefix, b"\xff"].concat();
        let read = RangeRead::of((prefix, &end[..]));
        let all = read.collect(&tr, |row| (row.key().to_vec(), row.value().to_vec())).await.unwrap();
        let lost = |key: &Vec<u8>| {
            let times = (0_u8..).zip(rows).filter(|(_, there)| matches!(there, There::WithoutValue(_)));
            times.map(|(n, _)| space.due_key(&id(n))).any(|time| time == *key)
        };
        let kept = all.into_iter().filter(|(key, _)| !lost(key));
        let kept = kept.map(|(key, value)| (key[prefix.len()..].to_vec(), value)).collect::<Vec<_>>();
        check(&space, prefix, rows, &kept);
        kept
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn rows_that_are_cleared_together_are_those_that_are_cleared_one_by_one(
            rows in prop::collection::vec(there(), 0..60),
            rows_of_a_page in 1..70_usize,
            bytes_of_a_page in prop_oneof![Just(1 << 20), 1..4_000_usize],
        ) {
            let bounds = Bounds::default()
                .with("promote-page", rows_of_a_page)
                .with("promote-page-bytes", bytes_of_a_page);
            on_database(async |db| {
                let _bounds = bounds.enter();
                let together = promoted(db, b"together", &rows, Clears::Together).await;
                assert_eq!(together, promoted(db, b"apart", &rows, Clears::Apart).await);
            });
        }
    }
}
