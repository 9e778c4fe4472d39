//! A consumer of another program takes the first item of a recipe's queue, again and again, in transactions shorter than ours.

use std::pin::pin;
use std::task::Poll;

use fdb_embedded::{Fault, Gate};
use futures::poll;
use kvqueue_queue::recipes::RecipeQueue;
use kvqueue_queue::{Approach, Fetched, Item, Packing};

use crate::common::gate::to_the_end;
use crate::common::{TestDb, fetch_options, on_database};

/// Removes the first item, as a program of the recipe does that knows nothing of kvqueue.
async fn dequeue(t: &TestDb, gate: &Gate, queue: &RecipeQueue) -> bool {
    let mut removed = false;
    to_the_end(
        gate,
        pin!(async {
            let tr = t.db.create_trx().unwrap();
            removed = queue.dequeue(&tr).await.unwrap().is_some();
            tr.commit().await.unwrap();
        }),
    )
    .await;
    removed
}

/// Runs a take; before each of its commits arrives, the other program removes an item. Returns how many it has removed.
async fn alongside<F: Future<Output = Fetched<Vec<Item>>>>(
    t: &TestDb,
    gate: &Gate,
    queue: &RecipeQueue,
    take: F,
) -> (Fetched<Vec<Item>>, usize) {
    let mut take = pin!(take);
    let mut removed = 0;
    loop {
        if let Poll::Ready(taken) = poll!(take.as_mut()) {
            return (taken, removed);
        }
        drop(gate.backoffs());
        for commit in gate.arrived() {
            removed += usize::from(dequeue(t, gate, queue).await);
            // The client gets the answer, too.
            let _answer = commit.pass(Fault::None);
        }
        tokio::task::yield_now().await;
    }
}

/// How many of the items a consumer gets that takes `n` at once while such a program runs.
fn share(items: usize, n: usize) -> Option<usize> {
    let mut share = None;
    on_database(async |t| {
        let queue = RecipeQueue::new(&t.prefix, "q", Packing::Raw).unwrap();
        t.push(queue.queue(), &vec!["x"; items]).await;
        let Some(gate) = t.close_gate() else { return };
        let (mut session, mut approach) = (t.session(queue.queue()), Approach::default());
        let (mut ours, mut theirs) = (0, 0);
        loop {
            let mut take = fetch_options(n, 0, &mut approach, true);
            let taking = async { session.take_with(&t.db, &mut take).await.unwrap() };
            let (taken, removed) = alongside(t, &gate, &queue, taking).await;
            (ours, theirs) = (ours + taken.got.len(), theirs + removed);
            if taken.got.is_empty() {
                break;
            }
        }
        println!("{ours} of {items} items, {theirs} to the other program");
        assert_eq!(ours + theirs, items);
        share = Some(ours);
    });
    share
}

#[test]
fn a_faster_foreign_consumer_of_a_short_queue_leaves_us_a_share() {
    for n in [1, 10] {
        let Some(ours) = share(400, n) else { return };
        assert!(ours >= 100, "{ours} of 400 items with K = {n}");
    }
}

#[test]
fn a_faster_foreign_consumer_of_a_long_queue_leaves_us_a_share() {
    let Some(ours) = share(2_000, 1) else { return };
    assert!(ours >= 500, "{ours} of 2,000 items");
}
