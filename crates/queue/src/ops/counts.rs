//! The number of items in each state.

use foundationdb::Transaction;
use futures::future::{try_join, try_join3, try_join4};
use mutant::bound;

use crate::keys::leases::Header;
use crate::keys::{Counter, Space, counters, range};
use crate::model::counts::{Counts, Unfinished};
use crate::model::error::QueueError;
use crate::model::time::from_millis;
use crate::ops::agenda::{First, first};
use crate::ops::find::first_key;
use crate::ops::len::len;
use crate::run::range_read::RangeRead;

/// The first key or row of each, without a conflict.
pub(crate) async fn rest(space: &Space, tr: &Transaction) -> Result<Unfinished, QueueError> {
    let any = async |range| first_key(tr, &range).await.map(|key| key.is_some());
    let plain = try_join3(any(space.item_range()), any(range(&space.leases)), first(&space.later, tr));
    let ((ready, running, waiting), parted) = try_join(plain, any(space.parted_range())).await?;
    let waiting =
        waiting.and_then(|first| if let First::At(due) = first { Some(from_millis(due)) } else { None });
    Ok(Unfinished { ready: ready || parted, running, waiting })
}

/// Counters, and the headers of all leases.
pub(crate) async fn counts(space: &Space, tr: &Transaction) -> Result<Counts, QueueError> {
    let ((ready, npush), running, (nlater, ndue, nback), (dead, done)) = try_join4(
        ready(space, tr),
        leased(space, tr),
        try_join3(
            counter(space, tr, Counter::Later, true),
            counter(space, tr, Counter::Due, true),
            counter(space, tr, Counter::Back, true),
        ),
        try_join(counter(space, tr, Counter::Dead, true), counter(space, tr, Counter::Done, true)),
    )
    .await?;
    let waiting = counters::difference(nlater, ndue);
    // As the counters wrap. Another program may have written to them.
    let pushed =
        npush.map(|npush| counters::difference(npush.wrapping_add(nlater), ndue.wrapping_add(nback)));
    let pushed = pushed.map(|pushed| pushed.max(0).cast_unsigned());
    Ok(Counts { ready, running, waiting, dead: dead.cast_signed(), done, pushed })
}

async fn counter(space: &Space, tr: &Transaction, of: Counter, snapshot: bool) -> Result<u64, QueueError> {
    Ok(counters::decode(tr.get(space.counter(of), snapshot).await?.as_deref()))
}

/// How many items are ready, and the counter `npush` if all producers add to it.
async fn ready(space: &Space, tr: &Transaction) -> Result<(i64, Option<u64>), QueueError> {
    if !space.kind.is_stamped() {
        return Ok((len(space, tr).await?, None));
    }
    let (npush, npop) =
        try_join(counter(space, tr, Counter::Push, false), counter(space, tr, Counter::Pop, false)).await?;
    Ok((counters::difference(npush, npop), Some(npush)))
}

/// Up to this many bytes of leases are counted one by one.
fn most_counted_bytes() -> usize {
    bound("lease-bytes-counted", 4_000_000)
}

/// The items in leases that are not acknowledged; beyond [`most_counted_bytes`] bytes an estimate, by the size of all leases and what was counted of them.
/// Leases of a layout that this version does not know are passed over.
async fn leased(space: &Space, tr: &Transaction) -> Result<u64, QueueError> {
    leased_up_to(space, tr, most_counted_bytes()).await
}

async fn leased_up_to(space: &Space, tr: &Transaction, most_bytes: usize) -> Result<u64, QueueError> {
    let (begin, end) = range(&space.leases);
    let mut pages = RangeRead::of((&begin[..], &end[..])).pages(tr);
    let (mut items, mut bytes) = (0, 0);
    while let Some(page) = pages.next_page().await? {
        let open = page
            .iter()
            .filter_map(|row| Header::decode(row.value()))
            .map(|header| header.acknowledged.open().count());
        items += open.sum::<usize>() as u64;
        bytes += page.byte_len();
        if bytes >= most_bytes && page.has_more() {
            let all = tr.get_estimated_range_size_bytes(&begin, &end).await?.unsigned_abs();
            return Ok((items as f64 * (all as f64 / bytes as f64).max(1.0)) as u64);
        }
    }
    Ok(items)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::client::queue::Queue;
    use crate::keys::leases::Held;
    use crate::model::id::ItemId;
    use crate::model::lease_id::LeaseId;
    use crate::model::session_id::SessionId;
    use crate::ops::lease;
    use crate::testing::on_database;

    #[test]
    fn few_leased_items_are_counted_and_many_are_estimated() {
        on_database(async |db| {
            let queue = Queue::new(b"", b"q").unwrap();
            let tr = db.create_trx().unwrap();
            for number in 0..300 {
                let id = ItemId::new(vec![0; 13].into());
                let held = Held { id, meta: Bytes::new(), value: vec![b'x'; 1_900].into() };
                let id = LeaseId { session: SessionId([1; 16]), number };
                lease::put(queue.space(), &tr, id, (1, 1), &[held.clone(), held]);
            }
            tr.commit().await.unwrap();
            let tr = db.create_trx().unwrap();
            assert_eq!(leased(queue.space(), &tr).await.unwrap(), 600);
            let estimate = leased_up_to(queue.space(), &tr, 200_000).await.unwrap();
            assert!((400..=900).contains(&estimate), "{estimate}");
        });
    }
}
