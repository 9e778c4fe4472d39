//! A long history: what its length costs pushes and ends, pages, searches by id, and the removal of a day.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use foundationdb::Database;
use kvqueue_queue::{
    EndedItem, Ending, HistoryFilter, ItemId, Millis, Queue, Recorder, Recording, RetryPolicy, SweepRules,
    Sweeper, VersionHistory, from_millis, retry,
};

use super::{K, database, drain_with, fill};

const HOUR: Millis = 3_600_000;
const DAY: Millis = 24 * HOUR;
/// The recorder's clock when the first item ends.
const START: Millis = 500_000 * HOUR;
/// The items are pushed and ended in so many parts.
const PARTS: usize = 20;
const REPEATS: usize = 200;

/// One database, with a history or without one.
struct Side {
    scratch: tempfile::TempDir,
    db: Database,
    queue: Queue,
    clock: Arc<AtomicU64>,
    /// Seconds for each part.
    pushed: Vec<f64>,
    ended: Vec<f64>,
}

impl Side {
    fn new(recording: Recording) -> Side {
        let (scratch, db) = database();
        let clock = Arc::new(AtomicU64::new(START));
        let its = clock.clone();
        let now = move || from_millis(its.load(Ordering::Relaxed));
        let recorder = Recorder::new(recording, Some("host/4711".to_owned()), now);
        let queue = Queue::new(b"", b"q").unwrap().with_recorder(&recorder);
        Side { scratch, db, queue, clock, pushed: Vec::new(), ended: Vec::new() }
    }

    /// Pushes a part of the items and ends them. The clock goes on by `step` for each lease.
    async fn part(&mut self, items: usize, step: Millis) {
        let begun = Instant::now();
        fill(&self.db, &self.queue, items).await;
        self.pushed.push(begun.elapsed().as_secs_f64());
        let begun = Instant::now();
        drain_with(&self.db, &self.queue, K, || _ = self.clock.fetch_add(step, Ordering::Relaxed)).await;
        self.ended.push(begun.elapsed().as_secs_f64());
    }

    async fn page(&self, filter: &HistoryFilter, n: usize) -> Vec<EndedItem> {
        let tr = self.db.create_trx().unwrap();
        let n = std::num::NonZeroUsize::new(n).unwrap();
        self.queue.history(&tr, filter, None, n).await.unwrap().items
    }

    async fn find(&self, id: &ItemId) -> Option<EndedItem> {
        let tr = self.db.create_trx().unwrap();
        self.queue.ended_item(&tr, id).await.unwrap()
    }
}

pub(super) async fn run(items: usize) {
    let [mut without, mut with] = [Recording::Off, Recording::On].map(Side::new);
    let part = items / PARTS;
    let step = DAY / (items / K) as u64;
    for n in 0..PARTS {
        // Each begins every second part.
        let order = if n % 2 == 0 { [&mut without, &mut with] } else { [&mut with, &mut without] };
        for side in order {
            side.part(part, step).await;
        }
    }
    println!("{items} items, K = {K}, ended within a day by the recorder's clock");
    println!("| | without, items/s | with, items/s | ratio | of the first quarter | of the last |");
    println!("|---|---|---|---|---|---|");
    row("pushed", part, &without.pushed, &with.pushed);
    row("ended", part, &without.ended, &with.ended);
    println!("on the disk: {} MB without, {} MB with", size(&without), size(&with));
    drop(without);
    look_up(&with).await;
    clear(&with).await;
}

fn row(what: &str, part: usize, without: &[f64], with: &[f64]) {
    let rate = |seconds: &[f64]| (seconds.len() * part) as f64 / seconds.iter().sum::<f64>();
    let (quarter, rest) = (PARTS / 4, PARTS - PARTS / 4);
    let ratio = |from: usize, to: usize| rate(&with[from..to]) / rate(&without[from..to]);
    let (all, first, last) = (ratio(0, PARTS), ratio(0, quarter), ratio(rest, PARTS));
    println!("| {what} | {:.0} | {:.0} | {all:.2} | {first:.2} | {last:.2} |", rate(without), rate(with));
}

/// In megabytes.
fn size(side: &Side) -> u64 {
    fn of(path: &Path) -> u64 {
        let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
        entries.map(|path| if path.is_dir() { of(&path) } else { path.metadata().unwrap().len() }).sum()
    }
    of(side.scratch.path()) / 1_000_000
}

/// The median and the longest time of what is repeated.
async fn timed<T>(what: &str, of: impl AsyncFn() -> T) {
    let mut times = Vec::new();
    for _ in 0..REPEATS {
        let begun = Instant::now();
        of().await;
        times.push(begun.elapsed());
    }
    times.sort();
    println!("{what}: {:?}, at most {:?}", times[REPEATS / 2], times[REPEATS - 1]);
}

async fn look_up(side: &Side) {
    let all = HistoryFilter::default();
    let until = |at| HistoryFilter { until: Some(at), ..HistoryFilter::default() };
    let (newest, oldest) = (side.page(&all, 50).await, side.page(&until(START + 60_000), 50).await);
    let middle = side.page(&until(START + DAY / 2), 50).await;
    timed("the first page of 50", async || assert_eq!(side.page(&all, 50).await.len(), 50)).await;
    timed("a page of 50 of the middle", async || side.page(&until(START + DAY / 2), 50).await).await;
    timed("a page of 50 of the oldest minute", async || side.page(&until(START + 60_000), 50).await).await;
    let none = HistoryFilter { ending: Some(Ending::Dead), ..HistoryFilter::default() };
    timed("a page in which nothing matches", async || side.page(&none, 50).await).await;
    for (what, items) in [("newest", newest), ("middle", middle), ("oldest", oldest)] {
        let id = &items[items.len() - 1].id;
        timed(&format!("one of the {what} by its id"), async || side.find(id).await.unwrap()).await;
    }
    let mut session = kvqueue_queue::Session::new(side.queue.clone());
    session.push(&side.db, &["x"]).await.unwrap();
    let tr = side.db.create_trx().unwrap();
    let id = &side.queue.oldest(&tr).await.unwrap().unwrap();
    timed("an id that is not there", async || assert!(side.find(id).await.is_none())).await;
}

/// Removes the day.
async fn clear(side: &Side) {
    let (db, queue) = (&side.db, &side.queue);
    let kept = |tr| async { (queue.keep_history(&tr, Duration::from_millis(DAY)).await, tr) };
    retry::run(db, &RetryPolicy::default(), |tr| async {
        let (done, tr) = kept(tr).await;
        (tr, done)
    })
    .await
    .unwrap();
    let mut sweeper = Sweeper::new(queue.clone(), VersionHistory::new(Duration::default));
    let rules = SweepRules::default().with_lease(Duration::ZERO);
    let mut sweep = async |now| {
        let begun = Instant::now();
        sweeper.sweep(db, &|| from_millis(now), &rules).await.unwrap();
        begun.elapsed()
    };
    println!("a sweep without anything to clear: {:?}, {:?}", sweep(START).await, sweep(START).await);
    pushes(side, "before").await;
    println!("a sweep that clears the day: {:?}", sweep(START + 3 * DAY).await);
    pushes(side, "after").await;
    assert!(side.page(&HistoryFilter::default(), 50).await.is_empty());
    println!("on the disk: {} MB", size(side));
}

/// How long a push takes, for some seconds.
async fn pushes(side: &Side, when: &str) {
    let mut session = kvqueue_queue::Session::new(side.queue.clone());
    let (begun, mut times) = (Instant::now(), Vec::new());
    while begun.elapsed() < Duration::from_secs(5) {
        let begun = Instant::now();
        session.push(&side.db, &["x"]).await.unwrap();
        times.push(begun.elapsed());
    }
    times.sort();
    println!("a push {when}: {:?}, at most {:?}", times[times.len() / 2], times[times.len() - 1]);
}
