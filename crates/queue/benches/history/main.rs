//! What a history costs: a queue is filled and burned down on the embedded engine, with and without one, in turns.
//!
//! ```sh
//! cargo bench -p kvqueue-queue --bench history -- [ITEMS [ROUNDS [K...]]]
//! cargo bench -p kvqueue-queue --bench history -- long [ITEMS]
//! cargo bench -p kvqueue-queue --bench history -- index [ITEMS]
//! ```
//!
//! A round burns the same number of items with either setting, each in a database of its own, so the rate of both is of the same minute. The last column
//! is the rate with a history divided by the one without, by the medians of the rounds.
//!
//! `index` measures what an index by an attribute costs and saves: [`index`].
//!
//! `long` makes a history of ten million items, in directories of some gigabytes, and measures what its length costs: [`long`].

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on says why and ends")]

// The client library's symbols, for the linker.
use fdb_embedded as _;

mod index;
mod long;

use std::num::NonZeroUsize;
use std::time::{Duration, Instant, SystemTime};

use fdb_embedded::Network;
use foundationdb::Database;
use futures::executor::block_on;
use kvqueue_queue::{
    Approach, FetchOptions, HistoryFilter, ItemOutcome, Queue, Recorder, Recording, RetryPolicy, Session,
};

const PAYLOAD: [u8; 100] = [b'x'; 100];
/// Items of a push.
const FILL: usize = 1_000;
/// Items of a lease in a long history.
const K: usize = 100;

fn main() {
    let numbers: Vec<usize> = std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let items = numbers.first().copied().unwrap_or(200_000);
    let rounds = numbers.get(1).copied().unwrap_or(3);
    let _network = Network::start().unwrap();
    if std::env::args().any(|argument| argument == "long") {
        return block_on(long::run(numbers.first().copied().unwrap_or(10_000_000)));
    }
    if std::env::args().any(|argument| argument == "index") {
        return block_on(index::run(numbers.first().copied().unwrap_or(1_000_000)));
    }
    println!("{items} items of {} bytes, {rounds} rounds", PAYLOAD.len());
    println!("| K | without, items/s | with, items/s | ratio |\n|---|---|---|---|");
    let ks = numbers.get(2..).filter(|ks| !ks.is_empty()).unwrap_or(&[1, 10, 100]);
    for &k in ks {
        let items = if k == 1 { items / 10 } else { items };
        let mut rates = [Vec::new(), Vec::new()];
        for round in 0..rounds {
            // Each begins every second round.
            for at in [round % 2, 1 - round % 2] {
                let recording = [Recording::Off, Recording::On][at];
                rates[at].push(block_on(burn(items, k, recording)));
            }
        }
        let [without, with] = rates.map(|mut rates| {
            rates.sort_by(f64::total_cmp);
            rates[rates.len() / 2]
        });
        println!("| {k} | {without:.0} | {with:.0} | {:.2} |", with / without);
    }
    block_on(look_up(items));
}

fn database() -> (tempfile::TempDir, Database) {
    let scratch = tempfile::tempdir().unwrap();
    let db = Database::from_path(&format!("embedded:{}", scratch.path().join("db").display())).unwrap();
    (scratch, db)
}

/// Items a second from their fetch to their end.
async fn burn(items: usize, k: usize, recording: Recording) -> f64 {
    let (_scratch, db) = database();
    let recorder = Recorder::new(recording, Some("host/4711".to_owned()), SystemTime::now);
    let queue = Queue::new(b"", b"q").unwrap().with_recorder(&recorder);
    fill(&db, &queue, items).await;
    let begun = Instant::now();
    drain(&db, &queue, k).await;
    items as f64 / begun.elapsed().as_secs_f64()
}

async fn fill(db: &Database, queue: &Queue, items: usize) {
    let mut session = Session::new(queue.clone());
    for _ in 0..items / FILL {
        session.push(db, &vec![PAYLOAD; FILL]).await.unwrap();
    }
}

async fn drain(db: &Database, queue: &Queue, k: usize) {
    drain_with(db, queue, k, || ()).await;
}

/// Ends all items. `fetched` is called for each lease.
async fn drain_with(db: &Database, queue: &Queue, k: usize, fetched: impl Fn()) {
    let (mut session, mut approach) = (Session::new(queue.clone()), Approach::Front);
    loop {
        let k = NonZeroUsize::new(k).unwrap();
        let mut options = FetchOptions::new(k, Duration::from_mins(10), &mut approach);
        let Some(mut lease) = session.fetch(db, &mut options).await.unwrap().got else { return };
        fetched();
        let done: Vec<_> = lease.open().map(|index| (index, ItemOutcome::Done)).collect();
        lease.acknowledge(db, &RetryPolicy::default(), &done).await.unwrap();
    }
}

/// How long it takes to show a page and to find an item in a long history.
async fn look_up(items: usize) {
    let (_scratch, db) = database();
    let recorder = Recorder::new(Recording::On, Some("host/4711".to_owned()), SystemTime::now);
    let queue = Queue::new(b"", b"q").unwrap().with_recorder(&recorder);
    fill(&db, &queue, items).await;
    let first = {
        let tr = db.create_trx().unwrap();
        queue.oldest(&tr).await.unwrap().unwrap()
    };
    drain(&db, &queue, K).await;
    let page = NonZeroUsize::new(50).unwrap();
    let begun = Instant::now();
    let (mut before, mut pages) = (None, 0);
    for _ in 0..200 {
        let tr = db.create_trx().unwrap();
        let found = queue.history(&tr, &HistoryFilter::default(), before.as_ref(), page).await.unwrap();
        before = found.next;
        pages += 1;
    }
    println!("a page of 50 of {items}: {:?}", begun.elapsed() / pages);
    let begun = Instant::now();
    for _ in 0..200 {
        let tr = db.create_trx().unwrap();
        queue.ended_item(&tr, &first).await.unwrap().unwrap();
    }
    println!("the first of {items} by its id: {:?}", begun.elapsed() / 200);
}
