//! The consumers of one process.

use std::fmt;
use std::num::NonZeroUsize;
use std::ops::AddAssign;
use std::sync::Arc;
use std::time::{Duration, Instant};

use foundationdb::Database;
use kvqueue_queue::{Approach, FetchOptions, Fetched, ItemOutcome, Queue, RetryPolicy, Session};
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::cell::Cell;

/// The lease, in versions: longer than the benchmark.
const LEASE: u64 = 600_000_000;

/// What came of it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    items: u64,
    takes: u64,
    conflicts: u64,
    seconds: f64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.items += other.items;
        self.takes += other.takes;
        self.conflicts += other.conflicts;
        self.seconds = self.seconds.max(other.seconds);
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = self.items as f64 / self.seconds.max(0.001);
        let conflicts = 100.0 * self.conflicts as f64 / self.takes.max(1) as f64;
        write!(f, "{rate:.0}/s, {conflicts:.1} %")
    }
}

impl Tally {
    pub(crate) fn line(&self) -> String {
        format!("{} {} {} {}", self.items, self.takes, self.conflicts, self.seconds)
    }

    pub(crate) fn parse(line: &str) -> Tally {
        let mut words = line.split(' ');
        let mut number = || words.next().unwrap().parse::<f64>().unwrap();
        let (items, takes, conflicts) = (number() as u64, number() as u64, number() as u64);
        Tally { items, takes, conflicts, seconds: number() }
    }
}

/// Works for the cell's time, or until the queue is empty where nobody pushes.
pub(crate) async fn work(db: &Arc<Database>, queue: &Queue, cell: &Cell, push: bool) -> Tally {
    let end = Instant::now() + cell.time;
    // As in the daemon, where one session fetches for all consumers of the process.
    let turn = Arc::new(Mutex::new((Session::new(queue.clone()), cell.approach())));
    let producer = push.then(|| tokio::spawn(produce(db.clone(), queue.clone(), cell.bytes, end)));
    let consumers: Vec<_> = (0..cell.consumers)
        .map(|_| tokio::spawn(consume(db.clone(), cell.clone(), turn.clone(), end)))
        .collect();
    let mut tally = Tally::default();
    for consumer in consumers {
        tally += consumer.await.unwrap();
    }
    if let Some(producer) = producer {
        producer.await.unwrap();
    }
    tally
}

async fn produce(db: Arc<Database>, queue: Queue, bytes: usize, end: Instant) {
    let mut session = Session::new(queue);
    let payloads = vec![vec![7; bytes]; 10];
    while Instant::now() < end {
        session.push(&db, &payloads).await.unwrap();
    }
}

async fn consume(
    db: Arc<Database>,
    cell: Cell,
    turn: Arc<Mutex<(Session, Approach)>>,
    end: Instant,
) -> Tally {
    let mut tally = Tally::default();
    let began = Instant::now();
    while Instant::now() < end {
        let Fetched { got: lease, watch, attempts, .. } = {
            let mut turn = turn.lock().await;
            let (session, approach) = &mut *turn;
            let k = NonZeroUsize::new(cell.k).unwrap();
            let mut take =
                FetchOptions::new(k, Duration::from_micros(LEASE), approach).with_watch(cell.producer);
            session.fetch(&db, &mut take).await.unwrap()
        };
        tally.conflicts += u64::from(attempts.conflicts);
        match lease {
            Some(mut lease) => {
                tally.takes += 1;
                tally.items += lease.items().len() as u64;
                let done: Vec<_> = lease.open().map(|index| (index, ItemOutcome::Done)).collect();
                lease.acknowledge(&db, &RetryPolicy::default(), &done).await.unwrap();
                tally.seconds = began.elapsed().as_secs_f64();
            }
            None if !cell.producer => break,
            None => {
                let left = end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
                if let Some(watch) = watch {
                    let _ = timeout(left, watch).await;
                }
            }
        }
    }
    tally
}
