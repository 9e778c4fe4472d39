//! An index by an attribute: what it costs the ends of items, and what it saves a search for a value.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use foundationdb::Database;
use kvqueue_queue::{
    HistoryFilter, HistoryIndex, NewItem, PushOptions, Queue, Recorder, Recording, Session, SweepRules,
    Sweeper, VersionHistory, from_millis,
};

use super::{FILL, K, PAYLOAD, database, drain_with};

const HOUR: u64 = 3_600_000;
/// The recorder's clock.
const START: u64 = 500_000 * HOUR;
const ROUNDS: usize = 5;
const REPEATS: u32 = 50;
/// The value that a few items have.
const RARE: &str = "rare";

/// How many customers there are, and whether the history is indexed by them.
const SETTINGS: [(usize, bool); 4] = [(1, false), (1, true), (1_000_000, false), (1_000_000, true)];

pub(super) async fn run(items: usize) {
    println!("{items} items, K = {K}, each with an attribute; {ROUNDS} rounds");
    println!("| values | index | ended, items/s | a rare value | cleared in |\n|---|---|---|---|---|");
    let mut rates = [const { Vec::new() }; SETTINGS.len()];
    let mut others = [[Duration::ZERO; 2]; SETTINGS.len()];
    for round in 0..ROUNDS {
        for n in 0..SETTINGS.len() {
            // Each begins a round.
            let at = (n + round) % SETTINGS.len();
            let (rate, times) = burn(items, SETTINGS[at]).await;
            rates[at].push(rate);
            others[at] = times;
        }
    }
    for ((values, is_indexed), (mut rates, [search, cleared])) in
        SETTINGS.into_iter().zip(rates.into_iter().zip(others))
    {
        rates.sort_by(f64::total_cmp);
        println!("| {values} | {is_indexed} | {:.0} | {search:?} | {cleared:?} |", rates[ROUNDS / 2]);
    }
}

/// Items a second from their fetch to their end; how long it takes to find the items of a value, and to clear all.
async fn burn(items: usize, (values, is_indexed): (usize, bool)) -> (f64, [Duration; 2]) {
    let (_scratch, db) = database();
    let recorder = Recorder::new(Recording::On, Some("host/4711".to_owned()), || from_millis(START + HOUR));
    let queue = Queue::new(b"", b"q").unwrap().with_recorder(&recorder);
    let names: &[&str] = if is_indexed { &["customer"] } else { &[] };
    let tr = db.create_trx().unwrap();
    queue.keep_history(&tr, Duration::from_hours(24)).await.unwrap();
    queue
        .index_history(&tr, &HistoryIndex::new(names.iter().copied()).unwrap(), from_millis(START))
        .await
        .unwrap();
    tr.commit().await.unwrap();
    fill(&db, &queue, items, values).await;
    let begun = Instant::now();
    drain_with(&db, &queue, K, || ()).await;
    let rate = items as f64 / begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    let repeats = if is_indexed { REPEATS } else { 1 };
    for _ in 0..repeats {
        assert_eq!(look(&db, &queue).await, 3);
    }
    let search = begun.elapsed() / repeats;
    let mut sweeper = Sweeper::new(queue.clone(), VersionHistory::new(Duration::default));
    let rules = SweepRules::default().with_lease(Duration::ZERO);
    let mut begun = Instant::now();
    // The first sweep claims the duty, the second one knows it.
    for now in [START, START, START + 48 * HOUR] {
        begun = Instant::now();
        sweeper.sweep(&db, &|| from_millis(now), &rules).await.unwrap();
    }
    let cleared = begun.elapsed();
    assert_eq!(look(&db, &queue).await, 0);
    (rate, [search, cleared])
}

/// Three of the items have the rare value.
async fn fill(db: &Database, queue: &Queue, items: usize, values: usize) {
    let mut session = Session::new(queue.clone());
    for first in (0..items).step_by(FILL) {
        let item = |n: usize| {
            let is_rare = [items / 10, items / 2, items / 10 * 9].contains(&n);
            let customer = if is_rare { RARE.to_owned() } else { format!("c{}", n % values) };
            NewItem::new(PAYLOAD.to_vec()).with_attribute("customer", customer)
        };
        let items: Vec<_> = (first..first + FILL).map(item).collect();
        session.push_items(db, &items, &PushOptions::default()).await.unwrap();
    }
}

/// How many items have the rare value, as a client finds them, page by page.
async fn look(db: &Database, queue: &Queue) -> usize {
    let attributes = vec![("customer".to_owned(), RARE.to_owned())];
    let filter = HistoryFilter { attributes, ..HistoryFilter::default() };
    let (mut found, mut before) = (0, None);
    loop {
        let tr = db.create_trx().unwrap();
        let k = NonZeroUsize::new(50).unwrap();
        let page = queue.history(&tr, &filter, before.as_ref(), k).await.unwrap();
        found += page.items.len();
        before = page.next;
        if before.is_none() {
            return found;
        }
    }
}
