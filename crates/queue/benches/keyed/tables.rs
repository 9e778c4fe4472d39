//! The tables.

use std::num::NonZeroU32;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use foundationdb::options::StreamingMode;
use foundationdb::{Database, RangeOption, RetryableTransaction};
use futures::future::join_all;
use kvqueue_queue::{Kind, Limits, NewItem, Pattern, PushOptions, Queue, Rate, Session};

use crate::consumer::{Consumer, Tally};

pub(crate) const TABLES: [&str; 7] = ["cost", "hot", "waiting", "active", "fair", "weights", "rate"];

/// How often each measurement of a pair is repeated, in turns.
const ROUNDS: usize = 5;
const FOREVER: Duration = Duration::from_secs(3_600);

pub(crate) struct Bench {
    database: String,
    db: Database,
    items: usize,
    queues: AtomicU32,
}

/// A queue to be measured: its name in the table, its kind, and its rules.
type Layout = (&'static str, Kind, Vec<(&'static str, Limits)>);

async fn nothing(_: &[Vec<u8>], _: Option<u64>) {}

fn running(n: u32) -> Limits {
    Limits::default().with_running(n)
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

impl Bench {
    pub(crate) fn new(database: &str, items: usize) -> Bench {
        let db = Database::from_path(database).unwrap();
        Bench { database: database.to_owned(), db, items, queues: AtomicU32::new(0) }
    }

    pub(crate) async fn run(&self, table: &str) {
        println!("\n### {table}\n");
        match table {
            "cost" => self.cost().await,
            "hot" => self.hot().await,
            "waiting" => self.waiting().await,
            "active" => self.active().await,
            "fair" => self.fair().await,
            "weights" => self.weights().await,
            _ => self.rate().await,
        }
    }

    /// A new queue with rules.
    async fn queue(&self, kind: Kind, rules: &[(&str, Limits)]) -> Handle<'_> {
        let prefix = format!("kvqueue-keyed/{}/", uuid::Uuid::now_v7());
        let number = self.queues.fetch_add(1, Ordering::Relaxed);
        let handle = Handle { bench: self, prefix, name: format!("q{number}"), kind };
        for (pattern, limits) in rules {
            handle.limit(pattern, limits).await;
        }
        handle
    }

    /// Items per second of `consumers` consumers of K items, of queues in turns: medians.
    async fn burn_down(&self, layouts: &[Layout], keys: usize, consumers: usize, k: usize, items: usize) {
        let mut rates = vec![Vec::new(); layouts.len()];
        for _ in 0..ROUNDS {
            for (at, (_, kind, rules)) in layouts.iter().enumerate() {
                let queue = self.queue(*kind, rules).await;
                queue.fill(keys, items).await;
                let began = Instant::now();
                let tally = queue.consume(consumers, k, FOREVER, false, nothing).await;
                assert_eq!(tally.items, items);
                rates[at].push(items as f64 / began.elapsed().as_secs_f64());
                queue.delete().await;
            }
        }
        let plain = rates[0].clone();
        for ((name, ..), rates) in layouts.iter().zip(rates) {
            let ratio = median(rates.iter().zip(&plain).map(|(rate, plain)| rate / plain).collect());
            println!("| {name} | {keys} | {consumers} | {k} | {:.0} | {ratio:.2} |", median(rates));
        }
    }

    async fn cost(&self) {
        let layouts: Vec<Layout> = vec![
            ("fifo", Kind::Fifo, vec![]),
            ("keyed", Kind::Keyed, vec![]),
            ("keyed, limits of keys that do not bind", Kind::Keyed, vec![("*", running(1_000))]),
            ("keyed, a limit of the queue that does not bind", Kind::Keyed, vec![("", running(10_000))]),
            ("keyed, ordered", Kind::Keyed, vec![("*", Limits::default().with_ordered(true))]),
        ];
        println!("| queue | keys | consumers | K | items/s | of fifo |\n|---|---|---|---|---|---|");
        for (keys, consumers) in [(1_000, 1), (1_000, 4), (10, 4)] {
            for k in [1, 10, 100] {
                let ordered = if keys > 10 { layouts.len() } else { layouts.len() - 1 };
                let items = if k == 1 { self.items / 5 } else { self.items };
                self.burn_down(&layouts[..ordered], keys, consumers, k, items).await;
            }
        }
    }

    async fn hot(&self) {
        println!("| consumers | limit | items/s | conflicts per 100 fetches |\n|---|---|---|---|");
        for (consumers, limit) in [(4, 4), (16, 4), (64, 4), (64, 16)] {
            let queue = self.queue(Kind::Keyed, &[("*", running(limit))]).await;
            queue.fill(1, 100_000).await;
            let time = Duration::from_secs(5);
            let handle =
                async |_: &[Vec<u8>], _: Option<u64>| tokio::time::sleep(Duration::from_millis(20)).await;
            let tally = queue.consume(consumers, 1, time, true, handle).await;
            let conflicts = f64::from(tally.conflicts) * 100.0 / f64::from(tally.fetches);
            println!(
                "| {consumers} | {limit} | {:.0} | {conflicts:.1} |",
                tally.items as f64 / time.as_secs_f64()
            );
            queue.delete().await;
        }
    }

    /// From a push to the fetch of the idle consumer that it wakes, while other keys are parked.
    async fn waiting(&self) {
        println!(
            "| queue | keys that wait | bytes each | push to fetch, median | of fifo |\n|---|---|---|---|---|"
        );
        let mut plain = 0.0;
        for (kind, keys) in [(Kind::Fifo, 0), (Kind::Keyed, 0), (Kind::Keyed, self.items * 5)] {
            let queue = self.queue(kind, &[]).await;
            if keys > 0 {
                queue.limit("w-*", &running(0)).await;
                queue.fill_each(keys).await;
                let mut parks = Consumer::new(&self.database, queue.open(), 100);
                while parks.fetch().await.got.is_some() {}
            }
            let bytes = queue.bytes().await.checked_div(keys as u64).unwrap_or_default();
            // The engine has written by then what was pushed.
            tokio::time::sleep(Duration::from_secs(3)).await;
            let mut consumer = Consumer::new(&self.database, queue.open(), 1);
            let mut times = Vec::new();
            for n in 0..200 {
                let idle = consumer.fetch().await;
                let began = Instant::now();
                let key = if kind == Kind::Keyed { Some(format!("k{}", n % 50)) } else { None };
                queue.push(&[(key, n)]).await;
                idle.watch.unwrap().await.unwrap();
                assert!(consumer.fetch().await.got.is_some());
                times.push(began.elapsed().as_secs_f64() * 1e3);
            }
            let time = median(times);
            plain = if kind == Kind::Fifo { time } else { plain };
            println!("| {kind} | {keys} | {bytes} | {time:.2} ms | {:.2} |", time / plain);
            queue.delete().await;
        }
    }

    async fn active(&self) {
        let layouts: Vec<Layout> = vec![
            ("fifo", Kind::Fifo, vec![]),
            ("keyed", Kind::Keyed, vec![]),
            ("keyed, limits that do not bind", Kind::Keyed, vec![("*", running(1_000))]),
        ];
        println!("| queue | keys | consumers | K | items/s | of fifo |\n|---|---|---|---|---|---|");
        self.burn_down(&layouts, 10_000, 4, 10, self.items * 2).await;
    }

    /// How many fetches begin, over all consumers, between the push of a first item of a key and its start.
    async fn fair(&self) {
        println!(
            "| consumers | K | fetches per consumer until the item starts: mean | most |\n|---|---|---|---|"
        );
        for (consumers, k) in [(1, 1), (1, 10), (4, 10), (16, 1), (16, 10)] {
            let queue = self.queue(Kind::Keyed, &[]).await;
            queue.fill(1, self.items * 5).await;
            let (started, fetches) = (Mutex::new(0), AtomicU32::new(0));
            let handle = async |keys: &[Vec<u8>], _: Option<u64>| {
                fetches.fetch_add(1, Ordering::SeqCst);
                if keys.iter().any(|key| key.starts_with(b"b")) {
                    *started.lock().unwrap() = fetches.load(Ordering::SeqCst);
                }
            };
            let until = Duration::from_secs(4);
            let mut delays = Vec::new();
            let pushes = async {
                let end = Instant::now() + until - Duration::from_millis(500);
                let mut n = 0;
                while Instant::now() < end {
                    *started.lock().unwrap() = 0;
                    queue.push(&[(Some(format!("b{n}")), n)]).await;
                    let pushed = fetches.load(Ordering::SeqCst);
                    while *started.lock().unwrap() == 0 && Instant::now() < end {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                    let seen = *started.lock().unwrap();
                    if seen > 0 {
                        delays.push(f64::from(seen.saturating_sub(pushed)) / consumers as f64);
                    }
                    n += 1;
                }
            };
            futures::future::join(queue.consume(consumers, k, until, true, handle), pushes).await;
            let mean = delays.iter().sum::<f64>() / delays.len() as f64;
            let most = delays.iter().copied().fold(0.0, f64::max);
            println!("| {consumers} | {k} | {mean:.2} | {most:.2} |");
            queue.delete().await;
        }
    }

    async fn weights(&self) {
        println!("| consumers | items of weight 1 | of weight 3 | ratio |\n|---|---|---|---|");
        for consumers in [1, 4, 16] {
            let weight = Limits::default().with_weight(NonZeroU32::new(3).unwrap());
            let queue = self.queue(Kind::Keyed, &[("k1", weight)]).await;
            queue.fill(2, 20_000).await;
            let (all, heavy) = (AtomicU64::new(0), AtomicU64::new(0));
            let handle = async |keys: &[Vec<u8>], _: Option<u64>| {
                for key in keys {
                    if all.fetch_add(1, Ordering::SeqCst) < 10_000 && key == b"k1" {
                        heavy.fetch_add(1, Ordering::SeqCst);
                    }
                }
            };
            queue.consume(consumers, 10, FOREVER, false, handle).await;
            let heavy = heavy.into_inner();
            println!(
                "| {consumers} | {} | {heavy} | {:.2} |",
                10_000 - heavy,
                heavy as f64 / (10_000 - heavy) as f64
            );
            queue.delete().await;
        }
    }

    async fn rate(&self) {
        println!(
            "| consumers | rate | started in 5 s, of it | most above rate and burst, in any window |\n|---|---|---|---|"
        );
        for per_second in [10, 100, 1_000] {
            let rate = Rate::new(NonZeroU32::new(per_second).unwrap(), Duration::from_secs(1)).unwrap();
            let queue = self.queue(Kind::Keyed, &[("*", Limits::default().with_rate(rate))]).await;
            queue.fill(1, 8 * per_second as usize).await;
            let started: Mutex<Vec<u64>> = Mutex::default();
            let handle = async |keys: &[Vec<u8>], version: Option<u64>| {
                started.lock().unwrap().extend(keys.iter().map(|_| version.unwrap()));
            };
            queue.consume(16, 10, Duration::from_secs(5), true, handle).await;
            let mut started = started.into_inner().unwrap();
            started.sort_unstable();
            let span = (started[started.len() - 1] - started[0]) as f64 / 1e6;
            let share = started.len() as f64 / (span * f64::from(per_second));
            let burst = 1 + u64::from(per_second) / 10;
            let above = |at: usize| {
                let within = started[at..].iter().zip(1..);
                let excess = within.map(|(end, n)| {
                    n - ((end - started[at]) * u64::from(per_second) / 1_000_000 + burst).cast_signed()
                });
                excess.max().unwrap_or_default()
            };
            let most = (0..started.len()).map(above).max().unwrap_or_default();
            println!("| 16 | {per_second}/s | {:.3} | {most} |", share);
            queue.delete().await;
        }
    }
}

/// A queue of the benchmark.
struct Handle<'b> {
    bench: &'b Bench,
    prefix: String,
    name: String,
    kind: Kind,
}

impl Handle<'_> {
    /// A handle of its own on the queue.
    fn open(&self) -> Queue {
        Queue::of_kind(self.prefix.as_bytes(), self.name.as_bytes(), self.kind).unwrap()
    }

    async fn limit(&self, pattern: &str, limits: &Limits) {
        let pattern = if pattern.is_empty() { Pattern::QUEUE } else { Pattern::keys(pattern).unwrap() };
        let tr = self.bench.db.create_trx().unwrap();
        self.open().set_rule(&tr, &pattern, limits).await.unwrap();
        tr.commit().await.unwrap();
    }

    /// Pushes items of these keys.
    async fn push(&self, items: &[(Option<String>, usize)]) {
        let item = |(key, n): &(Option<String>, usize)| {
            let item = NewItem::new(format!("{n:0100}"));
            key.as_ref().map_or(item.clone(), |key| item.with_key(key.clone()))
        };
        let items: Vec<_> = items.iter().map(item).collect();
        let mut session = Session::new(self.open());
        session.push_items(&self.bench.db, &items, &PushOptions::default()).await.unwrap();
    }

    /// Pushes items of 100 bytes, of so many keys in turn.
    async fn fill(&self, keys: usize, items: usize) {
        let all: Vec<_> =
            (0..items).map(|n| ((self.kind == Kind::Keyed).then(|| format!("k{}", n % keys)), n)).collect();
        for page in all.chunks(2_000) {
            self.push(page).await;
        }
    }

    /// Pushes an item of each of so many keys.
    async fn fill_each(&self, keys: usize) {
        let all: Vec<_> = (0..keys).map(|n| (Some(format!("w-{n:08}")), n)).collect();
        for page in all.chunks(2_000) {
            self.push(page).await;
        }
    }

    async fn consume(
        &self,
        consumers: usize,
        k: usize,
        time: Duration,
        waits: bool,
        handle: impl AsyncFn(&[Vec<u8>], Option<u64>),
    ) -> Tally {
        let until = Instant::now() + time;
        let all = (0..consumers).map(|_| {
            let consumer = Consumer::new(&self.bench.database, self.open(), k);
            consumer.work(until, waits, &handle)
        });
        join_all(all).await.into_iter().sum()
    }

    /// The bytes of the queue's rows.
    async fn bytes(&self) -> u64 {
        let (mut begin, end) = self.open().range();
        let mut bytes = 0;
        loop {
            let tr = self.bench.db.create_trx().unwrap();
            let option = RangeOption {
                limit: Some(10_000),
                mode: StreamingMode::WantAll,
                ..(begin.as_slice(), end.as_slice()).into()
            };
            let rows = tr.get_range(&option, 1, true).await.unwrap();
            bytes += rows.iter().map(|row| row.key().len() + row.value().len()).sum::<usize>() as u64;
            match rows.last() {
                Some(last) => begin = [last.key(), &[0]].concat(),
                None => return bytes,
            }
        }
    }

    async fn delete(self) {
        let queue = self.open();
        let run = async |tr: RetryableTransaction, _| {
            queue.delete(&tr);
            Ok(())
        };
        self.bench.db.run(run).await.unwrap();
    }
}
