//! A long history: what its length costs pushes and ends, pages, searches by id, and the removal of a day.

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use foundationdb::Database;
use futures::future::join;
use kvqueue_queue::{
    EndedItem, Ending, HistoryFilter, ItemId, Queue, Recorder, Recording, RetryPolicy, SweepRules, Sweeper,
    VersionHistory, from_millis, retry,
};

use super::{K, database, drain_with, fill};

const HOUR: u64 = 3_600_000;
const DAY: u64 = 24 * HOUR;
/// The recorder's clock when the first item ends.
const START: u64 = 500_000 * HOUR;
/// The items are pushed and ended in so many parts.
const PARTS: usize = 20;
const REPEATS: usize = 200;

/// One database, with a history or without one.
struct Side {
    scratch: tempfile::TempDir,
    db: Database,
    queue: Queue,
    clock: Arc<AtomicU64>,
    pushed: Vec<Taken>,
    ended: Vec<Taken>,
}

/// What a part took.
struct Taken {
    seconds: f64,
    /// Of this process, on all threads. Other programs on the machine change it less.
    cpu_seconds: f64,
}

impl Taken {
    async fn by(of: impl Future<Output = ()>) -> Taken {
        let (begun, cpu) = (Instant::now(), cpu_seconds());
        of.await;
        Taken { seconds: begun.elapsed().as_secs_f64(), cpu_seconds: cpu_seconds() - cpu }
    }
}

/// From `/proc`, which counts hundredths of a second.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11..13].iter().map(|ticks| ticks.parse::<f64>().unwrap()).sum::<f64>() / 100.0
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
    async fn part(&mut self, items: usize, step: u64) {
        self.pushed.push(Taken::by(fill(&self.db, &self.queue, items)).await);
        let tick = || _ = self.clock.fetch_add(step, Ordering::Relaxed);
        self.ended.push(Taken::by(drain_with(&self.db, &self.queue, K, tick)).await);
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
    println!("| | without, items/s | with, items/s | ratio | of CPU time | first quarter | last |");
    println!("|---|---|---|---|---|---|---|");
    row("pushed", part, &without.pushed, &with.pushed);
    row("ended", part, &without.ended, &with.ended);
    println!("on the disk: {} MB without, {} MB with", size(&without), size(&with));
    drop(without);
    look_up(&with).await;
    clear(&with).await;
}

fn row(what: &str, part: usize, without: &[Taken], with: &[Taken]) {
    let sum = |parts: &[Taken]| parts.iter().map(|part| part.seconds).sum::<f64>();
    let cpu = |parts: &[Taken]| parts.iter().map(|part| part.cpu_seconds).sum::<f64>();
    let rate = |parts: &[Taken]| (parts.len() * part) as f64 / sum(parts);
    let (quarter, rest) = (PARTS / 4, PARTS - PARTS / 4);
    let cpu_ratio = |from: usize, to: usize| cpu(&with[from..to]) / cpu(&without[from..to]);
    let (all, first, last) = (cpu_ratio(0, PARTS), cpu_ratio(0, quarter), cpu_ratio(rest, PARTS));
    let ratio = rate(with) / rate(without);
    let (without, with) = (rate(without), rate(with));
    println!("| {what} | {without:.0} | {with:.0} | {ratio:.2} | {all:.2} | {first:.2} | {last:.2} |");
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
    let (newest, oldest) =
        (side.page(&all, 50).await, side.page(&until(from_millis(START + 60_000)), 50).await);
    let middle = side.page(&until(from_millis(START + DAY / 2)), 50).await;
    timed("the first page of 50", async || assert_eq!(side.page(&all, 50).await.len(), 50)).await;
    timed("a page of 50 of the middle", async || side.page(&until(from_millis(START + DAY / 2)), 50).await)
        .await;
    timed("a page of 50 of the oldest minute", async || {
        side.page(&until(from_millis(START + 60_000)), 50).await
    })
    .await;
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

/// Removes three hours of the day, as a daemon does, and then the rest. A sweep clears up to 20 hours, each in a transaction.
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
    let oldest = START + DAY + HOUR;
    let whats = [("nothing", START), ("nothing", START), ("an hour", oldest)];
    let late = START + 3 * DAY;
    let more = [oldest + HOUR, oldest + 2 * HOUR].map(|at| ("an hour", at));
    let more = more.into_iter().chain([("20 hours", late), ("the rest", late)]);
    for (what, now) in whats.into_iter().chain(more) {
        let over = Cell::new(false);
        let sweep = async {
            let begun = Instant::now();
            sweeper.sweep(db, &|| from_millis(now), &rules).await.unwrap();
            over.set(true);
            begun.elapsed()
        };
        let (swept, during) = join(sweep, pushes(side, &over)).await;
        over.set(false);
        let end = Instant::now() + Duration::from_secs(2);
        let (_, after) = join(until(end, &over), pushes(side, &over)).await;
        println!(
            "a sweep that clears {what}: {swept:?}; a push meanwhile at most {during:?}, in the next 2 s {after:?}"
        );
    }
    assert!(side.page(&HistoryFilter::default(), 50).await.is_empty());
    println!("on the disk: {} MB", size(side));
}

async fn until(end: Instant, over: &Cell<bool>) {
    while Instant::now() < end {
        futures::pending!();
    }
    over.set(true);
}

/// Pushes until it is over; the longest time that one took.
async fn pushes(side: &Side, over: &Cell<bool>) -> Duration {
    let mut session = kvqueue_queue::Session::new(side.queue.clone());
    let mut longest = Duration::ZERO;
    while !over.get() {
        let begun = Instant::now();
        session.push(&side.db, &["x"]).await.unwrap();
        longest = longest.max(begun.elapsed());
    }
    longest
}
