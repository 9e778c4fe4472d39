//! Maintenance of a queue: the sweeper makes due items ready, returns items whose worker died, and clears records that are not needed
//! any more.
//!
//! Any number of sweepers may work on a queue. Any process that moves something writes a claim with it, and the others leave the work to
//! it for two seconds from then.

mod chore;
mod failing;
mod plan;

use std::ops::{AddAssign, Range};
use std::time::{Duration, SystemTime};

use foundationdb::Database;

use crate::meta::Millis;
use crate::ops;
use crate::ops::look::{Leases, Seen};
use crate::queue::Queue;
use crate::retry::{Attempts, RetryError, RetryPolicy, run};
use crate::rng::Rng;
use crate::rules::RetryRules;
use crate::session::SessionId;
use crate::time::{duration, millis};
use crate::version_history::VersionHistory;
use crate::watch::Watch;
use chore::Ran;
use failing::Failing;
use plan::{Chore, Plan, all_from_next, plan};

/// The most looks of one sweep; after them it returns, and asks to be called again at once.
const MAX_LOOKS: usize = 20;

/// The most pages of one kind between two looks.
const MAX_PAGES: usize = 20;

/// The settings of a [`Sweeper`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SweepRules {
    /// How many attempts an item has, and how long it waits for the next one after its lease ran out. An item whose lease runs out on
    /// the last attempt is a dead letter.
    pub retry: RetryRules,
    /// The length of the shortest leases: how often the sweeper looks at leases, if none expires sooner.
    /// [`Duration::ZERO`]: at every sweep.
    pub lease: Duration,
    /// How long idempotency keys are kept at least.
    pub idempotency_window: Duration,
    /// When the sweeper gives up a transaction.
    pub policy: RetryPolicy,
}

impl Default for SweepRules {
    /// The default retry rules, leases of thirty seconds, idempotency keys for a day, and retries without
    /// end.
    fn default() -> SweepRules {
        SweepRules {
            retry: RetryRules::default(),
            lease: Duration::from_secs(30),
            idempotency_window: Duration::from_hours(24),
            policy: RetryPolicy::default(),
        }
    }
}

impl SweepRules {
    /// The same with other [`retry`](SweepRules::retry) rules.
    #[must_use]
    pub fn with_retry(self, retry: RetryRules) -> SweepRules {
        SweepRules { retry, ..self }
    }

    /// The same for other lengths of [`lease`](SweepRules::lease).
    #[must_use]
    pub fn with_lease(self, lease: Duration) -> SweepRules {
        SweepRules { lease, ..self }
    }

    /// The same with idempotency keys kept for another time.
    #[must_use]
    pub fn with_idempotency_window(self, idempotency_window: Duration) -> SweepRules {
        SweepRules { idempotency_window, ..self }
    }

    /// The same with another [`policy`](SweepRules::policy).
    #[must_use]
    pub fn with_policy(self, policy: RetryPolicy) -> SweepRules {
        SweepRules { policy, ..self }
    }
}

/// How much a sweep moved and cleared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SweepCounts {
    /// Scheduled items that are ready now.
    pub promoted: usize,
    /// Leases that had expired.
    pub leases: usize,
    /// Items of expired leases that have another attempt: at once, or after the backoff.
    pub returned: usize,
    /// Items of expired leases that had no attempt left; they are dead letters.
    pub dead: usize,
    /// Idempotency keys removed.
    pub operations: usize,
    /// Requests of staged fetches whose session is gone.
    pub requests: usize,
    /// Items that another program took, whose side records and unique keys were left.
    pub orphans: usize,
}

impl SweepCounts {
    /// Whether it was nothing.
    pub fn is_nothing(&self) -> bool {
        *self == SweepCounts::default()
    }
}

impl AddAssign for SweepCounts {
    fn add_assign(&mut self, other: SweepCounts) {
        self.promoted += other.promoted;
        self.leases += other.leases;
        self.returned += other.returned;
        self.dead += other.dead;
        self.operations += other.operations;
        self.requests += other.requests;
        self.orphans += other.orphans;
    }
}

/// The result of a sweep.
#[derive(Debug)]
#[non_exhaustive]
pub struct Swept {
    /// The counts of moved items, also if some of the work failed.
    pub moved: SweepCounts,
    /// How many leases are past their deadline and were left alone, as far as it looked: their holders may be alive. Versions may have
    /// jumped, or this sweeper has not seen enough of them yet.
    pub doubtful: usize,
    /// The first thing that failed. The rest was done all the same.
    pub trouble: Option<RetryError>,
    /// How long nothing is to be done, if nothing comes before. What failed is tried again after ten seconds and no sooner, however often
    /// the watch fires.
    pub next: Duration,
    /// Resolves when an item is put aside for later, from the moment on that `next` was reckoned at: look again then.
    pub watch: Watch,
    /// The attempts of all its transactions.
    pub attempts: Attempts,
}

/// One sweeper of a queue.
///
/// A sweep that is dropped half-way leaves nothing behind that another does not take up.
#[derive(Debug)]
pub struct Sweeper {
    queue: Queue,
    id: SessionId,
    /// At these versions, which began with the last look at everything, there is no other. Versions before them have gone back.
    pause: Range<u64>,
    /// How far its last claim reached. Each reaches further, so that a claim tells which attempt wrote it.
    until: u64,
    /// The number of its last attempt to move something.
    attempt: u64,
    /// Where side records are to be looked at next.
    cursor: Vec<u8>,
    /// The key at which the next look at leases begins; `None`: at the first lease.
    leases: Option<Vec<u8>>,
    history: VersionHistory,
    failing: Failing,
    /// Keeps the items of a lease apart when they come back.
    rng: Rng,
}

impl Sweeper {
    /// A sweeper of `queue` with a new id. The history belongs to the database that the queue is in. It
    /// tells the sweeper which leases may have expired.
    pub fn new(queue: Queue, history: VersionHistory) -> Sweeper {
        Sweeper::with_id(queue, SessionId::new(), history)
    }

    /// A sweeper with an id of the caller's, which no other sweeper or session of the queue has.
    /// Simulations use it, so that a run can be repeated.
    pub fn with_id(queue: Queue, id: SessionId, history: VersionHistory) -> Sweeper {
        Sweeper {
            queue,
            id,
            pause: 0..0,
            until: 0,
            attempt: 0,
            cursor: Vec::new(),
            leases: None,
            history,
            failing: Failing::default(),
            rng: Rng::of(id),
        }
    }

    /// The queue it sweeps.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Does what there is to do at `now`, and says when to look again.
    ///
    /// Makes items ready that are due, in transactions of up to 500; gives back the items of leases that have run out, a lease
    /// in each transaction; forgets old operations, and requests of takes that died in the line; and looks through some of the side
    /// records for those whose items foreign programs took. A lease has run out when its deadline is past and the [`VersionHistory`]
    /// proves that it was not changed for its length; a sweeper with an empty history finds that out after one length. All but the first is looked at every `rules.lease`, and when a known lease may run out. With nothing to do, nothing is
    /// written.
    ///
    /// A look reads half a megabyte of leases at most. If there are more, looks come more often, and each reads the next part: all leases
    /// within the time of half a lease, or within this sweep if `rules.lease` is zero.
    ///
    /// # Errors
    /// If the database could not even be looked at. What fails after that is in [`Swept::trouble`].
    pub async fn sweep(
        &mut self,
        db: &Database,
        now: SystemTime,
        rules: &SweepRules,
    ) -> Result<Swept, RetryError> {
        let mut sweep = Sweep {
            rules,
            now: millis(now),
            known: self.history.last_version(),
            moved: SweepCounts::default(),
            doubtful: 0,
            trouble: None,
            attempts: Attempts::default(),
        };
        if rules.lease.is_zero() {
            // This sweep goes through all leases.
            self.leases = None;
        }
        let mut looks = 0;
        // Of the pages of leases before the current one.
        let mut doubtful = 0;
        let (next, watch) = loop {
            let (seen, watch) = self.look(db, &mut sweep).await?;
            looks += 1;
            if let Some(seldom) = &seen.seldom {
                sweep.doubtful = doubtful + seldom.doubtful;
                if seldom.expired.is_empty() {
                    self.leases.clone_from(&seldom.next);
                    doubtful = if self.leases.is_some() { sweep.doubtful } else { 0 };
                }
                if let Some(went_back) = seldom.went_back {
                    let error = went_back.error(self.queue.space());
                    sweep.trouble.get_or_insert(RetryError { error, attempts: Attempts::default() });
                }
            }
            match plan(&seen, self.pause.end, sweep.now, self.id, rules) {
                Plan::Rest(_) if rules.lease.is_zero() && self.leases.is_some() => looks -= 1,
                Plan::Rest(next) => {
                    if seen.seldom.is_some() {
                        if self.leases.is_none() {
                            self.repair(db, &mut sweep).await;
                        }
                        self.pause.start = seen.version;
                    }
                    self.pause.end = all_from_next(&seen, self.pause.end, rules);
                    if let Some(again) = self.failing.again_from() {
                        self.pause.end = self.pause.end.min(again);
                    }
                    break (self.failing.pause(seen.version).map_or(next, |pause| pause.min(next)), watch);
                }
                Plan::Wait(left) => break (duration(left), watch),
                Plan::Work(_) if looks == MAX_LOOKS => break (Duration::ZERO, watch),
                Plan::Work(chores) => self.work(db, &chores, seen.version, &mut sweep).await,
            }
        };
        let Sweep { moved, doubtful, trouble, attempts, .. } = sweep;
        Ok(Swept { moved, doubtful, trouble, next, watch, attempts })
    }

    /// Looks, and watches from there on.
    async fn look(&mut self, db: &Database, sweep: &mut Sweep<'_>) -> Result<(Seen, Watch), RetryError> {
        let (space, pause, failing) = (self.queue.space(), &self.pause, &self.failing);
        let (history, from) = (&self.history, self.leases.as_deref());
        let done = run(db, &sweep.rules.policy, |tr| async move {
            let leases = Leases { history, from, passes: |id| failing.has_lease(id) };
            let seen = ops::look::look(space, &tr, pause, leases).await;
            let watch = ops::watch::watch_later(space, &tr);
            (tr, seen.map(|seen| (seen, watch)))
        });
        let done = done.await?;
        sweep.count(done.attempts);
        let (mut seen, watch) = done.value;
        self.failing.tick(seen.version);
        self.failing.pass_over(&mut seen);
        seen.known = sweep.known;
        Ok((seen, watch.paced(db)))
    }

    /// Does chores, as many as it can.
    async fn work(&mut self, db: &Database, chores: &[Chore], version: u64, sweep: &mut Sweep<'_>) {
        for chore in chores {
            for _ in 0..MAX_PAGES {
                let result = self.run(db, chore::Work::Chore(*chore), sweep).await;
                match sweep.note(result) {
                    // There may be more.
                    Some(Ran::Moved) if !matches!(chore, Chore::Return(_) | Chore::Note(_)) => {}
                    Some(Ran::Claimed) => return,
                    Some(Ran::Moved | Ran::Nothing) => break,
                    None => {
                        self.failing.add(*chore, version);
                        break;
                    }
                }
            }
        }
    }

    /// Looks for orphans: at the front as long as there are any, and at one page of the rest.
    async fn repair(&mut self, db: &Database, sweep: &mut Sweep<'_>) {
        for work in [chore::Work::RepairFront, chore::Work::RepairNext] {
            for _ in 0..MAX_PAGES {
                let result = self.run(db, work, sweep).await;
                if !matches!(sweep.note(result), Some(Ran::Moved)) {
                    break;
                }
            }
        }
    }
}

/// A sweep under way.
#[derive(Debug)]
struct Sweep<'a> {
    rules: &'a SweepRules,
    now: Millis,
    /// A version that had been read at that time.
    known: Option<u64>,
    moved: SweepCounts,
    doubtful: usize,
    trouble: Option<RetryError>,
    attempts: Attempts,
}

impl Sweep<'_> {
    fn count(&mut self, attempts: Attempts) {
        self.attempts.begun += attempts.begun;
        self.attempts.conflicts += attempts.conflicts;
        self.attempts.unknown += attempts.unknown;
    }

    /// Keeps the first failure.
    fn note<T>(&mut self, result: Result<T, RetryError>) -> Option<T> {
        result
            .map_err(|error| {
                self.count(error.attempts);
                self.trouble.get_or_insert(error);
            })
            .ok()
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::time::UNIX_EPOCH;

    use super::*;
    use crate::approach::Approach;
    use crate::session::{FetchOptions, Session};
    use crate::testing::on_database;

    #[test]
    fn a_sweep_reads_all_records_after_versions_went_back() {
        on_database(async |db| {
            let queue = Queue::new(b"", b"q").unwrap();
            let mut session = Session::new(queue.clone());
            session.push(db, &["a"]).await.unwrap();
            let approach = &mut Approach::Front;
            let mut take = FetchOptions::new(NonZeroUsize::MIN, Duration::from_micros(1), approach);
            let lease = session.fetch(db, &mut take).await.unwrap().lease.unwrap();
            let version = async || db.create_trx().unwrap().get_read_version().await.unwrap().cast_unsigned();
            while version().await <= lease.deadline() {}
            let begun = std::time::Instant::now();
            let history = VersionHistory::new(move || begun.elapsed());
            let mut sweeper = Sweeper::new(queue, history);
            // It has rested until then, in another life of the database.
            sweeper.pause = u64::MAX / 2..u64::MAX;
            let swept = sweeper.sweep(db, UNIX_EPOCH, &SweepRules::default()).await.unwrap();
            assert_eq!(swept.moved.returned, 1);
            assert!(swept.next <= Duration::from_secs(30));
            // And now it rests, as ever.
            let pause = sweeper.pause.clone();
            sweeper.sweep(db, UNIX_EPOCH, &SweepRules::default()).await.unwrap();
            assert_eq!(sweeper.pause, pause);
        });
    }
}
