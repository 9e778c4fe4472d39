//! Going to a place within a long queue, and finding out whether it is long, at a cost that does not grow with the items' size.
//!
//! To pass over items the database reads them, with their values. So only a walk of [`WALK`] bytes is left to it. Where a jump goes further,
//! it goes by the items' stamps or numbers for the most part: if this many items lie between the first and the last one, a part of them
//! lies in that part of the versions between. That is exact where pushes came evenly. Elsewhere it is off, and the walk that
//! remains keeps takes apart that land at the same item.

use foundationdb::{KeySelector, Transaction};
use futures::future::try_join;

use crate::keys::recipes::leading_integer;
use crate::keys::{Counter, Space};
use crate::model::error::QueueError;
use crate::model::id::ItemId;
use crate::model::id_layout::{RANDOM, queue_id};
use crate::model::kind::Kind;
use crate::model::place::Place;
use crate::model::stamp::Stamp;
use crate::ops::find::has_keys;
use crate::ops::len::between;

/// How many bytes the database may read to pass over items. It reads 500,000 at a time.
const WALK: usize = 3_000_000;

/// How many items of this size a walk may pass over. Where the size is not known, they count as large.
fn walk(row_bytes: usize) -> usize {
    const UNKNOWN: usize = 100_000;
    (WALK / if row_bytes == 0 { UNKNOWN } else { row_bytes }).max(1)
}

/// The place about this many items behind the front.
pub(crate) async fn jump(
    space: &Space,
    tr: &Transaction,
    items: usize,
    row_bytes: usize,
) -> Result<Place, QueueError> {
    let near = items % walk(row_bytes).saturating_add(1);
    let far = items - near;
    let front = Place { behind: None, skip: items.min(walk(row_bytes)) };
    if far == 0 {
        return Ok(front);
    }
    let Some((first, last)) = ends(space, tr).await? else { return Ok(front) };
    let behind = match space.kind {
        Kind::Fifo => {
            let len =
                usize::try_from(between(space, tr, Counter::Push, Counter::Pop, true).await?).unwrap_or(0);
            // Beyond the last item there is nothing: it is any other place then.
            let share = far.checked_rem(len).map_or(0.0, |far| far as f64 / len as f64);
            versions(&first).zip(versions(&last)).map(|(first, last)| {
                let version = first.saturating_add((last.saturating_sub(first) as f64 * share) as u64);
                let mut stamp = [0; 12];
                stamp[..8].copy_from_slice(&version.to_be_bytes());
                ItemId::from(Stamp::from(stamp))
            })
        }
        Kind::Recipe(_) => numbers(&first).zip(numbers(&last)).map(|(first, last)| {
            let number = first.saturating_add_unsigned(far as u64);
            queue_id(if number > last { first } else { number }, &[0; RANDOM])
        }),
        // Its items are taken from the front only.
        Kind::Priority(..) | Kind::Keyed => None,
    };
    Ok(behind.map_or(front, |behind| Place { behind: Some(behind), skip: near }))
}

/// Whether the queue has about this many items. A queue whose items are so large that a walk passes over fewer counts as long if it
/// has more than these.
pub(crate) async fn has_items(
    space: &Space,
    tr: &Transaction,
    items: usize,
    row_bytes: usize,
) -> Result<bool, QueueError> {
    match space.kind {
        Kind::Fifo | Kind::Keyed => {
            Ok(between(space, tr, Counter::Push, Counter::Pop, true).await? >= items as i64)
        }
        Kind::Recipe(_) | Kind::Priority(..) => {
            has_keys(tr, &space.item_range(), items.min(walk(row_bytes))).await
        }
    }
}

/// The first and the last item.
async fn ends(space: &Space, tr: &Transaction) -> Result<Option<(ItemId, ItemId)>, QueueError> {
    let (begin, end) = space.item_range();
    let first = KeySelector::first_greater_or_equal(begin.as_slice());
    let last = KeySelector::last_less_than(end.as_slice());
    let (first, last) = try_join(tr.get_key(&first, true), tr.get_key(&last, true)).await?;
    let id = |key: &[u8]| key.strip_prefix(space.ready.as_slice()).map(|id| ItemId::new(id.to_vec().into()));
    Ok(id(&first).zip(id(&last)))
}

/// The version in a stamp.
fn versions(id: &ItemId) -> Option<u64> {
    id.stamp().map(|stamp| stamp.version())
}

/// The number of an item of a recipe's queue.
fn numbers(id: &ItemId) -> Option<i64> {
    leading_integer(id.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::queue::Queue;
    use crate::client::session::Session;
    use crate::testing::on_database;

    #[test]
    fn reading_ahead_for_a_jump_is_bounded_in_bytes() {
        assert_eq!([0, 100, 150, 10_000, 100_000, usize::MAX].map(walk), [30, 30_000, 20_000, 300, 30, 1]);
    }

    #[test]
    fn a_jump_over_large_items_finds_its_place_by_stamps() {
        on_database(async |db| {
            let queue = Queue::new(b"", b"q").unwrap();
            let mut session = Session::new(queue.clone());
            for _ in 0..50 {
                session.push(db, &["x"; 20]).await.unwrap();
            }
            let tr = db.create_trx().unwrap();
            // As if each item had 100 kB: a walk passes over thirty.
            let place = jump(queue.space(), &tr, 500, 100_000).await.unwrap();
            assert_eq!(place.skip, 500 % 31);
            let items = queue.list(&tr).await.unwrap();
            let behind = place.behind.unwrap();
            let at = items.iter().position(|item| item.id > behind).unwrap() + place.skip;
            // Pushes came about as evenly as a busy machine has them.
            assert!((100..900).contains(&at), "{at}");
            // Small items are counted, and so is what lies near.
            for (items, bytes) in [(500, 100), (30, 100_000)] {
                let place = jump(queue.space(), &tr, items, bytes).await.unwrap();
                assert_eq!(place, Place { behind: None, skip: items });
            }
            // Beyond the end there is some other place.
            let place = jump(queue.space(), &tr, 20_000, 100_000).await.unwrap();
            assert!(place.behind.is_some_and(|behind| behind < items[999].id));
        });
    }
}
