//! The values of many items that are put aside or dead, in few requests.
//!
//! Items that were pushed together have ids that follow each other, and so have their values: one range has them all. A read for each value would cost
//! the database several times as much.

use bytes::Bytes;
use foundationdb::Transaction;
use futures::future::join_all;
use mutant::{bound, mutant};

use crate::keys::{Space, after};
use crate::model::codes::ACCESSED_UNREADABLE;
use crate::model::error::QueueError;
use crate::model::id::ItemId;
use crate::ops::place;
use crate::run::range_read::RangeRead;

/// Fewer values than this are read one by one.
fn least() -> usize {
    bound("bodies-of-a-range", 8)
}

/// A value; or why there is none.
type Value = Result<Bytes, QueueError>;

/// The values of items, and how they lie.
#[derive(Debug)]
pub(crate) struct Bodies {
    /// In the order in which the items were named.
    pub(crate) values: Vec<Value>,
    /// Places in `values`, in the order of ids.
    order: Vec<usize>,
    /// Of each element of `order`: whether its value follows the one before it, without another row between them, nor an item without a value.
    follows: Vec<bool>,
}

impl Bodies {
    /// Stretches of items for which `wanted` holds, and whose values follow each other without another row between them: the places in `values` of the first
    /// and the last of each.
    pub(crate) fn runs(&self, is_together: bool, wanted: impl Fn(usize) -> bool) -> Vec<(usize, usize)> {
        let follows = self.follows.iter().map(|follows| *follows && is_together);
        runs(self.order.iter().copied().zip(follows), wanted)
    }
}

/// Stretches of rows that are wanted and follow each other: the first and the last of each. `rows`: of each row, in the order of keys, its name, and whether
/// it follows the one before it without another between them.
pub(crate) fn runs(
    rows: impl Iterator<Item = (usize, bool)>,
    wanted: impl Fn(usize) -> bool,
) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    let mut goes_on = false;
    for (row, follows) in rows {
        let is_wanted = wanted(row);
        match runs.last_mut().filter(|_| goes_on && follows) {
            Some((_, last)) if is_wanted => *last = row,
            _ if is_wanted => runs.push((row, row)),
            _ => {}
        }
        goes_on = is_wanted;
    }
    runs
}

/// The values of items. Read without a conflict: a value stays as it is as long as its item's record does.
///
/// # Errors
/// If the database refuses.
pub(crate) async fn read(space: &Space, tr: &Transaction, ids: &[&ItemId]) -> Result<Bodies, QueueError> {
    let mut found: Vec<Option<Value>> = vec![None; ids.len()];
    let mut order: Vec<usize> = (0..ids.len()).collect();
    order.sort_unstable_by_key(|at| ids[*at].as_bytes());
    let mut follows = vec![false; ids.len()];
    let mut rest = order.as_slice();
    while rest.len() >= least() {
        let behind = &mut follows[ids.len() - rest.len()..];
        let part = match read_range(space, tr, ids, rest, (&mut found, behind)).await {
            // The transaction has pushed to keys between these.
            Err(error) if error.database().is_some_and(|error| error.code() == ACCESSED_UNREADABLE) => break,
            part => part?,
        };
        rest = &rest[part.passed..];
        if !part.goes_on {
            break;
        }
    }
    let single = join_all(rest.iter().map(|at| place::body(space, tr, ids[*at]))).await;
    for (at, value) in rest.iter().zip(single) {
        found[*at] = Some(QueueError::if_readable(value)?);
    }
    let missing = |at: usize| Err(QueueError::unreadable(&space.body_key(ids[at])));
    let values =
        found.into_iter().enumerate().map(|(at, value)| value.unwrap_or_else(|| missing(at))).collect();
    Ok(Bodies { values, order, follows })
}

/// What one reply told.
struct Part {
    /// This many of the items are known now.
    passed: usize,
    /// Another range is worth it: most of these rows were wanted.
    goes_on: bool,
}

/// Reads from the value of the first of these items to that of the last, as far as one reply goes. `rest`: places in `ids`, in the order of ids; `follows`:
/// whether there is no other row between each of these and the one before it.
async fn read_range(
    space: &Space,
    tr: &Transaction,
    ids: &[&ItemId],
    rest: &[usize],
    (found, follows): (&mut [Option<Value>], &mut [bool]),
) -> Result<Part, QueueError> {
    let key = |at: usize| space.body_key(ids[rest[at]]);
    let (first, end) = (key(0), after(&key(rest.len() - 1)));
    let page = RangeRead::of((first.as_slice(), end.as_slice())).limit(rest.len()).page(tr).await?;
    let (mut passed, mut wanted) = (0, 0);
    let mut follows_wanted = false;
    for row in page.iter() {
        let id = &row.key()[space.bodies.len()..];
        let wanted_before = wanted;
        while passed < rest.len() && ids[rest[passed]].as_bytes() < id {
            // It has no value, and other rows of it may lie between those of its neighbours.
            (passed, follows_wanted) = (passed + 1, false);
        }
        // An item may be asked for more than once.
        while passed < rest.len() && ids[rest[passed]].as_bytes() == id {
            found[rest[passed]] = Some(Ok(Bytes::copy_from_slice(row.value())));
            follows[passed] = follows_wanted;
            (passed, wanted) = (passed + 1, wanted + 1);
        }
        follows_wanted = wanted > wanted_before;
    }
    let goes_on = 2 * wanted >= page.len();
    if !page.has_more() || mutant("bodies-beyond-a-reply-are-missing") {
        passed = rest.len();
    }
    Ok(Part { passed, goes_on })
}

#[cfg(test)]
mod tests {
    use foundationdb::options::MutationType;
    use proptest::prelude::*;

    use super::*;
    use crate::keys::append_bytes;
    use crate::keys::items::pending_record;
    use crate::model::kind::Kind;
    use crate::testing::on_database;

    fn id(n: u16) -> ItemId {
        ItemId::new([&b"\x33"[..], &[0; 8], &n.to_be_bytes(), &[0, 0]].concat().into())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn values_are_those_of_their_ids_however_they_lie(
            there in prop::collection::btree_map(0..400_u16, 0..3_000_usize, 0..300),
            asked in prop::collection::vec(0..400_u16, 0..200),
            is_asked_in_a_row: bool,
        ) {
            on_database(async |db| {
                let space = Space::new(b"p", b"q", Kind::Fifo).unwrap();
                let tr = db.create_trx().unwrap();
                for (n, len) in &there {
                    tr.set(&space.body_key(&id(*n)), &vec![b'v'; *len]);
                }
                tr.commit().await.unwrap();
                let asked = if is_asked_in_a_row { there.keys().copied().collect() } else { asked };
                let ids: Vec<_> = asked.iter().map(|n| id(*n)).collect();
                let tr = db.create_trx().unwrap();
                let values = read(&space, &tr, &ids.iter().collect::<Vec<_>>()).await.unwrap();
                let lengths: Vec<_> = values.values.into_iter().map(|value| value.ok().map(|value| value.len())).collect();
                let expected: Vec<_> = asked.iter().map(|n| there.get(n).copied()).collect();
                assert_eq!(lengths, expected);
            });
        }
    }

    #[test]
    fn values_on_both_sides_of_a_push_of_the_same_transaction_are_read() {
        on_database(async |db| {
            let space = Space::new(b"p", b"q", Kind::Keyed).unwrap();
            let key = |n: u8| {
                let mut key = Vec::new();
                append_bytes(&mut key, &[n]);
                key
            };
            let ids: Vec<_> = (0..20_u8)
                .filter(|n| *n != 10)
                .map(|n| ItemId::new([&key(n)[..], b"\x33", &[7; 12]].concat().into()))
                .collect();
            let tr = db.create_trx().unwrap();
            ids.iter().for_each(|id| tr.set(&space.body_key(id), b"v"));
            tr.commit().await.unwrap();
            let tr = db.create_trx().unwrap();
            let pushed = pending_record(&[&space.bodies[..], &key(10)].concat(), 0, &[]);
            tr.atomic_op(&pushed, b"v", MutationType::SetVersionstampedKey);
            let values = read(&space, &tr, &ids.iter().collect::<Vec<_>>()).await.unwrap();
            assert!(values.values.iter().all(Result::is_ok), "{values:?}");
        });
    }
}
