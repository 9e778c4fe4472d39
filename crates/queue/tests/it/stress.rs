//! Many producers and consumers at once, under random faults: nothing lost, nothing doubled, order kept.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fdb_embedded::Faults;
use kvqueue_queue::{Item, Queue};

use crate::common::{Rng, TestDb, k, on_database, seeds};

const PRODUCERS: usize = 4;
const CONSUMERS: usize = 5;
const BATCHES: usize = 25;

#[test]
fn concurrent_sessions_lose_no_items_without_faults() {
    on_database(async |t| storm(t, 0).await);
}

#[test]
fn concurrent_sessions_lose_no_items_with_faults() {
    on_database(async |t| {
        for seed in seeds(5) {
            println!("KVQUEUE_TEST_SEED={seed} cargo test -p kvqueue-queue --test it stress::");
            let faults =
                Faults::seeded(seed).unknown_committed(0.1).unknown_not_committed(0.1).conflict(0.05);
            if !t.install(faults) {
                return;
            }
            storm(t, seed).await;
            t.end_faults();
        }
    });
}

/// Runs producers against consumers until everything pushed was taken, and checks what came out.
async fn storm(t: &TestDb, seed: u64) {
    let queue = t.queue(format!("storm {seed}"));
    let taken = AtomicUsize::new(0);
    let sizes = |producer: usize| {
        let mut rng = Rng::new(seed * PRODUCERS as u64 + producer as u64);
        (0..BATCHES).map(move |_| rng.below(8) + 1)
    };
    let total: usize = (0..PRODUCERS).flat_map(sizes).sum();

    let producers = futures::future::join_all(
        (0..PRODUCERS).map(|producer| produce(t, &queue, producer, sizes(producer))),
    );
    let consumers = futures::future::join_all(
        (0..CONSUMERS).map(|consumer| consume(t, &queue, consumer + 1, &taken, total)),
    );
    let both = async { tokio::join!(producers, consumers).1 };
    let taken = tokio::time::timeout(Duration::from_secs(120), both).await.expect("everything is taken");

    for items in &taken {
        assert!(items.is_sorted_by(|a, b| a.id < b.id), "a consumer got items out of order");
    }
    let mut all: Vec<Item> = taken.into_iter().flatten().collect();
    all.sort_by(|a, b| a.id.cmp(&b.id));
    assert_eq!(all.len(), total);
    // In commit order, every producer's items are all there, each once, as they were pushed.
    let mut next: BTreeMap<String, usize> = BTreeMap::new();
    for item in &all {
        let text = String::from_utf8(item.payload.to_vec()).unwrap();
        let (producer, number) = text.split_once(' ').unwrap();
        let expected = next.entry(producer.to_owned()).or_default();
        assert_eq!(number, expected.to_string(), "producer {producer}");
        *expected += 1;
    }
    assert_eq!(t.len(&queue).await, 0);
    assert!(t.list(&queue).await.is_empty());
}

async fn produce(t: &TestDb, queue: &Queue, producer: usize, sizes: impl Iterator<Item = usize>) {
    let mut session = t.session(queue);
    let mut next = 0;
    for size in sizes {
        let batch: Vec<String> = (next..next + size).map(|number| format!("{producer} {number}")).collect();
        next += size;
        session.push(&t.db, &batch).await.unwrap();
    }
    session.close(&t.db).await.unwrap();
}

/// Takes `n` at a time and idles on watches until all consumers together have everything.
async fn consume(t: &TestDb, queue: &Queue, n: usize, taken: &AtomicUsize, total: usize) -> Vec<Item> {
    let mut session = t.session(queue);
    let mut items = Vec::new();
    while taken.load(Ordering::SeqCst) < total {
        let got = session.take(&t.db, k(n)).await.unwrap();
        taken.fetch_add(got.got.len(), Ordering::SeqCst);
        items.extend(got.got);
        if let Some(watch) = got.watch {
            // Others may take the last item, and then no push comes to wake this one: look at the total now and then.
            let _ = tokio::time::timeout(Duration::from_millis(50), watch).await;
        }
    }
    assert!(session.close(&t.db).await.unwrap().is_empty());
    items
}
