//! Leases with more items than one transaction can acknowledge.

use kvqueue_queue::{
    Approach, Failure, ItemOutcome, Kind, Lease, LeaseError, MAX_REASON, NewItem, Packing, Queue,
    RetryPolicy, from_millis,
};

use crate::common::{TestDb, fetch_options, on_database, record, rules, sweeper};

/// More items with keys as long as those of [`far`] than a transaction can make ready.
const ITEMS: usize = 900;

/// Pushes `n` items.
async fn fill(t: &TestDb, q: &Queue, n: usize, item: impl Fn(usize) -> NewItem) {
    let items: Vec<_> = (0..n).map(item).collect();
    for part in items.chunks(300) {
        t.push_items(q, part).await;
    }
}

/// A queue with long keys, so that a transaction holds a few hundred writes.
fn far(t: &TestDb) -> Queue {
    let prefix = [t.prefix.as_slice(), &[b'p'; 4_000]].concat();
    Queue::new(&prefix, b"q").unwrap()
}

async fn leased(t: &TestDb, q: &Queue, n: usize) -> Lease {
    fill(t, q, n, |_| NewItem::new("x")).await;
    let lease = t.lease(q, n).await.unwrap();
    assert_eq!(lease.items().len(), n);
    lease
}

fn all(lease: &Lease, outcome: &ItemOutcome) -> Vec<(usize, ItemOutcome)> {
    lease.open().map(|index| (index, outcome.clone())).collect()
}

#[test]
fn any_number_of_items_is_acknowledged_at_once() {
    on_database(async |t| {
        let q = far(t);
        let mut lease = leased(t, &q, ITEMS).await;
        let failure = || Failure::new(from_millis(1), 1, &"r".repeat(MAX_REASON));
        let outcomes = lease.open().map(|index| {
            let outcome = match index % 4 {
                0 => ItemOutcome::Release,
                1 => ItemOutcome::Retry { due: None, failure: failure() },
                2 => ItemOutcome::Retry { due: Some(from_millis(5)), failure: failure() },
                _ => ItemOutcome::Dead(failure()),
            };
            (index, outcome)
        });
        let outcomes: Vec<_> = outcomes.collect();
        lease.acknowledge(&t.db, &RetryPolicy::default(), &outcomes).await.unwrap();
        assert!(lease.is_acknowledged());
        let counts = t.run(async |tr| q.counts(tr).await).await;
        let quarter = ITEMS as i64 / 4;
        assert_eq!((counts.ready, counts.waiting, counts.dead), (2 * quarter, quarter, quarter));
    });
}

#[test]
fn an_acknowledgement_too_large_for_the_callers_transaction_is_refused() {
    on_database(async |t| {
        let q = far(t);
        let lease = leased(t, &q, ITEMS).await;
        let (release, done) = (all(&lease, &ItemOutcome::Release), all(&lease, &ItemOutcome::Done));
        let tr = t.db.create_trx().unwrap();
        let refused = lease.acknowledge_in(&tr, &release).await.unwrap_err();
        assert!(matches!(refused, LeaseError::TooLarge { items: ITEMS }), "{refused:?}");
        assert!(refused.to_string().ends_with("acknowledge fewer at a time, or lower `k`"));
        // Nothing was written, so the transaction does for what fits.
        assert!(lease.acknowledge_in(&tr, &done).await.unwrap().is_some());
        tr.commit().await.unwrap();
        assert_eq!(t.len(&q).await, 0);
    });
}

#[test]
fn a_large_take_is_limited_to_one_transaction() {
    on_database(async |t| {
        // Of the queues of recipes each item is cleared for itself; of each item with a unique key, that is.
        for (kind, unique) in [(Kind::Recipe(Packing::Raw), false), (Kind::Fifo, true)] {
            let prefix = [t.prefix.as_slice(), &[b'p'; 4_000]].concat();
            let q = Queue::of_kind(&prefix, b"q", kind).unwrap();
            fill(t, &q, ITEMS, |n| {
                let mut item = NewItem::new("x");
                item.unique = unique.then(|| format!("{n:0200}").into_bytes());
                item
            })
            .await;
            for length in [0, 1] {
                let mut approach = Approach::Front;
                let take = &mut fetch_options(ITEMS, length, &mut approach, false);
                let found = match length {
                    0 => t.session(&q).take_with(&t.db, take).await.unwrap().got.len(),
                    _ => t.session(&q).fetch(&t.db, take).await.unwrap().got.unwrap().items().len(),
                };
                assert!((10..ITEMS).contains(&found), "{kind:?} {length}: {found}");
            }
            t.run(async |tr| {
                tr.clear_range(&prefix, &[prefix.as_slice(), &[0xff]].concat());
                Ok(())
            })
            .await;
        }
    });
}

#[test]
fn as_many_dead_letters_are_purged_at_once_as_one_transaction_holds() {
    on_database(async |t| {
        let q = far(t);
        let mut lease = leased(t, &q, 300).await;
        t.acknowledge(&mut lease, &ItemOutcome::Dead(Failure::new(from_millis(1), 1, "no"))).await;
        let purged = q.purge_all_dead(&t.db, &RetryPolicy::default(), None).await.unwrap();
        assert_eq!((purged.moved, t.run(async |tr| q.counts(tr).await).await.dead), (300, 0));
    });
}

#[test]
fn as_many_orphans_are_cleared_at_once_as_one_transaction_holds() {
    on_database(async |t| {
        let q = far(t);
        fill(t, &q, 200, |n| NewItem::new("x").with_unique(format!("{n:01000}").into_bytes())).await;
        // A foreign program takes them all.
        t.run(async |tr| {
            tr.clear_range(&record(&q, "val", b""), &record(&q, "val", b"\xff"));
            Ok(())
        })
        .await;
        let (mut sweeper, mut orphans) = (sweeper(&q), 0);
        // Each sweep does some of it at least.
        for _ in 0..200 {
            orphans += t.sweep(&mut sweeper, 0, &rules()).await.moved.orphans;
            if orphans == 200 {
                break;
            }
        }
        assert_eq!(orphans, 200);
        // So their unique keys are free.
        let again = NewItem::new("x").with_unique(format!("{:01000}", 7).into_bytes());
        assert_eq!(t.push_items(&q, &[again]).await.items, 1);
    });
}
