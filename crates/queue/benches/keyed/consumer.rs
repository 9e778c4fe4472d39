//! A consumer, and what it counts.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use foundationdb::Database;
use kvqueue_queue::{Approach, FetchOptions, Fetched, ItemOutcome, Lease, Queue, RetryPolicy, Session};

/// The pause after a watch, after a first lost race, and the longest.
const LEAST_PAUSE: Duration = Duration::from_millis(1);
const MOST_PAUSE: Duration = Duration::from_millis(50);

/// What consumers did.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Tally {
    pub(crate) items: usize,
    pub(crate) fetches: u32,
    pub(crate) conflicts: u32,
}

impl std::iter::Sum for Tally {
    fn sum<I: Iterator<Item = Tally>>(all: I) -> Tally {
        all.fold(Tally::default(), |a, b| Tally {
            items: a.items + b.items,
            fetches: a.fetches + b.fetches,
            conflicts: a.conflicts + b.conflicts,
        })
    }
}

pub(crate) struct Consumer {
    db: Database,
    session: Session,
    k: NonZeroUsize,
    /// How long it pauses at most after its watch has fired. As the daemon's: longer after a fetch that conflicted, or that found nothing though a watch had fired.
    pause: Duration,
    pub(crate) tally: Tally,
}

impl Consumer {
    pub(crate) fn new(database: &str, queue: Queue, k: usize) -> Consumer {
        let (db, session) = (Database::from_path(database).unwrap(), Session::new(queue));
        Consumer {
            db,
            session,
            k: NonZeroUsize::new(k).unwrap(),
            pause: Duration::ZERO,
            tally: Tally::default(),
        }
    }

    pub(crate) async fn fetch(&mut self) -> Fetched<Option<Lease>> {
        let mut approach = Approach::Front;
        let mut options = FetchOptions::new(self.k, Duration::from_secs(30), &mut approach).with_watch(true);
        let fetched = self.session.fetch(&self.db, &mut options).await.unwrap();
        self.tally.fetches += 1;
        self.tally.conflicts += fetched.attempts.conflicts;
        fetched
    }

    /// Fetches, lets `handle` see the keys, and finishes the items, until `until` or until the queue is empty. With `waits` an empty queue is waited for.
    pub(crate) async fn work(
        mut self,
        until: Instant,
        waits: bool,
        handle: impl AsyncFn(&[Vec<u8>], Option<u64>),
    ) -> Tally {
        let mut is_woken = false;
        while Instant::now() < until {
            let fetched = self.fetch().await;
            if std::mem::take(&mut is_woken) {
                let is_lost = fetched.got.is_none() || fetched.attempts.conflicts > 0;
                self.pause = match is_lost {
                    true => (self.pause * 2).clamp(LEAST_PAUSE, MOST_PAUSE),
                    false if self.pause > LEAST_PAUSE => self.pause / 2,
                    false => Duration::ZERO,
                };
            }
            let Some(mut lease) = fetched.got else {
                if !waits {
                    break;
                }
                let left = until.saturating_duration_since(Instant::now());
                let wait = fetched.look_again_in.unwrap_or(left).min(left);
                let _ = tokio::time::timeout(wait, fetched.watch.unwrap()).await;
                tokio::time::sleep(self.pause.mul_f64(random())).await;
                is_woken = true;
                continue;
            };
            let keys: Vec<_> = lease.items().iter().map(|item| item.id.key().unwrap_or_default()).collect();
            handle(&keys, fetched.version).await;
            self.tally.items += keys.len();
            let outcomes: Vec<_> = lease.open().map(|index| (index, ItemOutcome::Done)).collect();
            lease.acknowledge(&self.db, &RetryPolicy::default(), &outcomes).await.unwrap();
        }
        self.tally
    }
}

/// From 0 to 1.
fn random() -> f64 {
    let random = uuid::Uuid::now_v7().as_u64_pair().1 << 2;
    random as f64 / u64::MAX as f64
}
