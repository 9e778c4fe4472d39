//! Maintenance of a queue: the sweeper makes due items ready, fires schedules, closes batches, ends items that have expired, returns items whose worker died, and clears records that
//! are not needed any more.
//!
//! Any number of sweepers may work on a queue. One of them is on duty: it looks for work, and writes down when it looks again. The others
//! only look whether it still does, and the first of them takes over if it is late. That is a matter of cost alone: any sweeper
//! that moves something writes a claim with it, and the others leave the work to it for two seconds from then.

mod chore;
mod failing;
mod plan;
mod retention;
mod rules;

use std::collections::BTreeSet;
use std::ops::{AddAssign, Range};
use std::time::{Duration, SystemTime};

use foundationdb::Database;

use crate::client::queue::Queue;
use crate::keys::agenda::Event;
use crate::keys::clocks::Reading;
use crate::keys::duty::Duty;
use crate::model::clocks::ClocksDiffer;
use crate::model::item_batch::{BatchId, ClosedBatch};
use crate::model::retry_error::{Attempts, RetryError};
use crate::model::rng::Rng;
use crate::model::schedule::OccurrenceRecord;
use crate::model::session_id::SessionId;
use crate::model::time::{Millis, duration, from_millis, millis, versions};
use crate::ops;
use crate::ops::clocks::{ClockCheck, Judgement, OwnClock};
use crate::ops::duty::{IDLE, Lookout, SPREAD, Scope};
use crate::ops::look::{Leases, Seen};
use crate::ops::promote::Clears;
use crate::run::retry::{RetryPolicy, run, run_adding};
use crate::run::version_history::VersionHistory;
use crate::run::watch::Watch;
use chore::Ran;
use failing::Failing;
use mutant::bound;
use plan::{Chore, Plan, all_from_next, plan};
use retention::DeadLetterPass;
pub use rules::SweepRules;

/// The most looks of one sweep; after them it returns, and asks to be called again at once.
fn max_looks() -> usize {
    bound("looks-of-a-sweep", 20)
}

/// The most pages of one kind between two looks.
fn max_pages() -> usize {
    bound("pages-of-a-sweep", 20)
}

/// A sweeper on duty that looks more often than this writes that down no more often, in versions: two seconds.
const LEAST_DUTY: u64 = 2_000_000;

/// An idle queue with operations is looked through this often in the time for which they are kept, so that times are noted.
const NOTES: u32 = 32;

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
    /// Items that expired before their first attempt. By the [rules](SweepRules::on_expiry) they left the queue, or are dead letters.
    pub expired: usize,
    /// Dead letters that were older than the [rules](SweepRules::dead_retention) keep them, and are gone.
    pub removed_dead: usize,
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
        self.expired += other.expired;
        self.removed_dead += other.removed_dead;
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
    /// What became of occurrences of schedules, with the names of their schedules. Items have no ids here: the history has them
    /// ([`Queue::schedule_history`]). The history has all records; a few are not here, if the outcome of a commit was unknown and
    /// the sweeper gave up, or another one took over before it knew.
    pub occurrences: Vec<(String, OccurrenceRecord)>,
    /// Schedules that were due, and that this version of kvqueue cannot read, or whose items a queue of this kind cannot have. They did not
    /// fire, and are looked at again after a minute.
    pub unusable_schedules: BTreeSet<String>,
    /// When the oldest dead letter died, if this sweeper is on duty, removes old ones and has gone through all of them, which it does once an hour.
    /// Unreadable letters do not count.
    pub oldest_dead: Option<SystemTime>,
    /// How far its clock is ahead of the one of another sweeper that differs most, and what it does about that; `None` if none differs by more than the
    /// [rules](SweepRules::clock_tolerance) allow.
    pub clock: Option<ClocksDiffer>,
    /// Whether it has compared its clock with those of other sweepers, or has asked and is alone. Until then, for three seconds after it was
    /// started on a queue where no sweeper was, it removes nothing by its clock.
    pub has_compared_clocks: bool,
    /// Batches that have called back. A few are not here, if the outcome of a commit was unknown and the sweeper gave up, or another one took
    /// over before it knew.
    pub closed_batches: Vec<ClosedBatch>,
    /// Batches that were due, and that this version of kvqueue cannot read, or whose callbacks a queue of this kind cannot have. They are looked
    /// at again after a minute.
    pub unusable_batches: BTreeSet<BatchId>,
    /// The first thing that failed. The rest was done all the same.
    pub trouble: Option<RetryError>,
    /// How long nothing is to be done, if nothing comes before. What failed is tried again after ten seconds and no sooner, however often
    /// the watch fires.
    pub next: Duration,
    /// Resolves when an item is put aside for later or a schedule is changed, from the moment on that `next` was reckoned at: look again then.
    pub watch: Watch,
    /// How long to wait when the watch has fired, before the next sweep: a few seconds while another sweeper is on duty, which looks
    /// at once. A sweep that comes sooner only reads.
    pub patience: Duration,
    /// The attempts of all its transactions.
    pub attempts: Attempts,
}

/// Says what time of day it is.
pub type Clock<'a> = &'a (dyn Fn() -> SystemTime + Send + Sync);

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
    /// Where the rates of a keyed queue are to be looked at next.
    rates: Vec<u8>,
    /// The key at which the next look at leases begins; `None`: at the first lease.
    leases: Option<Vec<u8>>,
    history: VersionHistory,
    failing: Failing,
    dead: DeadLetterPass,
    /// Keeps the items of a lease apart when they come back.
    rng: Rng,
    /// The version of the last look.
    last: u64,
    /// How much longer than other sweepers it waits for one that is late, in versions.
    share: u64,
    /// The version from which on it looks at marks of batches again.
    marks_from: u64,
    /// What it knows of its clock.
    clock: ClockCheck,
    /// How the rows of items that become ready are cleared: apart after the first promotion of a sweep that conflicts.
    clears: Clears,
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
        let mut rng = Rng::of(id);
        Sweeper {
            queue,
            id,
            pause: 0..0,
            until: 0,
            attempt: 0,
            cursor: Vec::new(),
            rates: Vec::new(),
            leases: None,
            history,
            failing: Failing::default(),
            dead: DeadLetterPass::default(),
            last: 0,
            share: rng.next() % SPREAD,
            marks_from: 0,
            clock: ClockCheck::default(),
            clears: Clears::Together,
            rng,
        }
    }

    /// The queue it sweeps.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Does what there is to do at the time of `clock`, and says when to look again.
    ///
    /// Makes items ready that are due, in transactions of up to 500; fires schedules that are due, up to 50 and about 100 items or 1 MiB in a
    /// transaction; ends items that have expired, up to 500 or about 1 MiB in a transaction; gives back the items of leases that have run out, a lease
    /// in each transaction; removes dead letters that are older than the rules keep them, up to 10,000 in a sweep; forgets old operations, and requests of takes that died in the line; and looks through some of the side
    /// records for those whose items foreign programs took. A lease has run out when its deadline is past and the [`VersionHistory`]
    /// proves that it was not changed for its length; a sweeper with an empty history finds that out after one length. All but the first is looked at every `rules.lease`, and when a known lease may run out. With nothing to do, nothing is
    /// written.
    ///
    /// Closes batches that are complete or due, up to 100 in a transaction; their callbacks are pushed with that.
    ///
    /// While another sweeper is on duty, nothing of that is done, and a look reads six keys. A sweeper takes over when the one on duty is
    /// from one to three seconds late, with a look, a scheduled item, a schedule or an expiry. The duty is written down once in the time of a lease; and not
    /// for a queue that is idle, until something is fetched from it, or for ten minutes.
    ///
    /// A look reads half a megabyte of leases at most. If there are more, looks come more often, and each reads the next part: all leases
    /// within the time of half a lease, or within this sweep if `rules.lease` is zero.
    ///
    /// # Errors
    /// If the database could not even be looked at. What fails after that is in [`Swept::trouble`].
    pub async fn sweep(
        &mut self,
        db: &Database,
        clock: Clock<'_>,
        rules: &SweepRules,
    ) -> Result<Swept, RetryError> {
        let mut sweep = self.begin(clock, rules);
        self.clears = Clears::Together;
        if rules.lease.is_zero() {
            // This sweep goes through all leases.
            self.leases = None;
        }
        let mut looks = 0;
        // Of the pages of leases before the current one.
        let mut doubtful = 0;
        let mut before: Option<(Seen, Watch)> = None;
        let (seen, next, watch) = loop {
            let (mut seen, watch) = match (self.look(db, &mut sweep).await, before.take()) {
                (Ok(looked), _) => looked,
                (Err(error), None) => return Err(error),
                // What was done so far is to be known all the same.
                (Err(error), Some((seen, watch))) => {
                    sweep.trouble.get_or_insert(error);
                    break (seen, Duration::ZERO, watch);
                }
            };
            looks += 1;
            self.last = seen.version;
            self.judge(db, &mut seen, &mut sweep).await;
            sweep.takes_over |= seen.scope == Scope::Everything;
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
            match plan(&seen, &self.lookout(&sweep), rules) {
                Plan::Rest(_) if rules.lease.is_zero() && self.leases.is_some() => looks -= 1,
                Plan::Rest(next) => {
                    self.rest(db, &seen, &mut sweep).await;
                    let next = self.failing.pause(seen.version).map_or(next, |pause| pause.min(next));
                    break (seen, next, watch);
                }
                Plan::Wait(left) => break (seen, duration(left), watch),
                Plan::Work(_) if looks == max_looks() => break (seen, Duration::ZERO, watch),
                Plan::Work(chores) => self.work(db, &chores, seen.version, &mut sweep).await,
            }
            before = Some((seen, watch));
        };
        let lookout = self.lookout(&sweep);
        let is_second = lookout.is_second(seen.version, seen.duty) && seen.scope != Scope::Everything;
        let patience = if is_second { duration(lookout.patience()) } else { Duration::ZERO };
        let (clock, has_compared_clocks) = (sweep.judgement.differs(), sweep.judgement.has_compared());
        let Sweep { moved, occurrences, unusable_schedules, doubtful, trouble, attempts, .. } = sweep;
        let (closed_batches, unusable_batches) = (sweep.closed_batches, sweep.unusable_batches);
        Ok(Swept {
            moved,
            occurrences,
            unusable_schedules,
            clock,
            has_compared_clocks,
            closed_batches,
            unusable_batches,
            doubtful,
            oldest_dead: self.dead.oldest_known().map(from_millis),
            trouble,
            next,
            watch,
            patience,
            attempts,
        })
    }

    fn begin<'a>(&self, clock: Clock<'a>, rules: &'a SweepRules) -> Sweep<'a> {
        Sweep {
            rules,
            clock,
            judgement: Judgement::default(),
            known: self.history.last_version(),
            moved: SweepCounts::default(),
            occurrences: Vec::new(),
            unusable_schedules: BTreeSet::new(),
            closed_batches: Vec::new(),
            unusable_batches: BTreeSet::new(),
            doubtful: 0,
            trouble: None,
            last: self.last,
            takes_over: false,
            attempts: Attempts::default(),
        }
    }

    /// Leaves the duty, if this sweeper has it, so that another one takes over at once. If that fails, another one does so a
    /// few seconds after this sweeper would have looked.
    ///
    /// # Errors
    /// If the database refused.
    pub async fn leave(&self, db: &Database, policy: &RetryPolicy) -> Result<(), RetryError> {
        let (space, me) = (self.queue.space(), self.id);
        let done = run(db, policy, |tr| async move {
            let left = ops::duty::leave(space, &tr, me).await;
            (tr, left)
        });
        done.await.map(drop)
    }

    fn lookout(&self, sweep: &Sweep<'_>) -> Lookout {
        let lease = versions(sweep.rules.lease);
        let (share, marks_from) = if lease == 0 { (0, 0) } else { (self.share, self.marks_from) };
        let pause = self.pause.clone();
        Lookout {
            me: self.id,
            now: sweep.now(),
            lease,
            share,
            last: sweep.last,
            takes_over: sweep.takes_over,
            pause,
            marks_from,
            clock: OwnClock {
                time: millis((sweep.clock)()),
                tolerance: sweep.rules.clock_tolerance,
                check: if lease == 0 { ClockCheck::COMPARED } else { self.clock },
            },
        }
    }

    /// Goes by what a look thinks of the clock, and asks other sweepers if clocks differ.
    async fn judge(&mut self, db: &Database, seen: &mut Seen, sweep: &mut Sweep<'_>) {
        // A sweep that looks at everything is perhaps the only one of its sweeper, and does not wait for answers.
        if sweep.rules.lease.is_zero() {
            sweep.judgement = seen.clock;
            return;
        }
        if let Some(asks) = seen.clock.asks
            && !self.publish(db, asks, true, sweep).await
        {
            seen.clock.take_question_back();
        }
        sweep.judgement = seen.clock;
        self.clock = seen.clock.check;
    }

    /// Writes down what the clock says, and returns whether it is written. If not, the next look tries it again.
    async fn publish(
        &self,
        db: &Database,
        reading: (Reading, u64),
        wakes: bool,
        sweep: &mut Sweep<'_>,
    ) -> bool {
        let (space, once) = (self.queue.space(), RetryPolicy { max_attempts: Some(1), ..sweep.rules.policy });
        let published = run_adding(db, &once, |tr| async move {
            let published = ops::clocks::publish(space, &tr, reading, wakes).await;
            (tr, published)
        });
        let (attempts, written) = match published.await {
            Ok(done) => (done.attempts, done.value),
            Err(error) => (error.attempts, false),
        };
        sweep.count(attempts);
        written
    }

    /// Nothing is to be done: reckons when to look at everything again, and repairs what foreign programs left.
    async fn rest(&mut self, db: &Database, seen: &Seen, sweep: &mut Sweep<'_>) {
        match seen.scope {
            Scope::Scheduled => return,
            // The leases are another's. When this sweeper takes over, it begins at the first.
            Scope::Standby(_) => {
                self.dead = DeadLetterPass::default();
                return self.leases = None;
            }
            Scope::Unless(..) | Scope::Everything => {}
        }
        self.pause = seen.version..all_from_next(seen, self.pause.end, sweep.rules);
        if let Some(again) = self.failing.again_from() {
            self.pause.end = self.pause.end.min(again);
        }
        let has_duty = self.takes_duty(db, seen, sweep).await;
        if has_duty && self.leases.is_none() {
            self.repair(db, sweep).await;
        }
        let goes_through_letters = match &seen.seldom {
            // A queue that nothing was fetched from has no duty, and may have letters that were imported.
            Some(seldom) => has_duty || seldom.npop.is_none(),
            // The queue is idle.
            None => seen.duty.is_some_and(|duty| duty.sweeper == self.id),
        };
        if goes_through_letters {
            self.remove_old_letters(db, sweep).await;
        } else {
            self.dead = DeadLetterPass::default();
        }
    }

    /// Writes down that this sweeper is on duty, after it has looked at everything. Returns whether it repairs the queue.
    async fn takes_duty(&self, db: &Database, seen: &Seen, sweep: &mut Sweep<'_>) -> bool {
        let (Some(seldom), rules) = (&seen.seldom, sweep.rules) else { return false };
        if rules.lease.is_zero() {
            return true;
        }
        let Some(npop) = seldom.npop else {
            self.note_clock(db, seen, sweep).await;
            // Nothing was fetched yet, so there are no leases, and looks are cheap. Programs that follow the recipes do not count.
            return !self.queue.kind().is_stamped();
        };
        let idle = (seldom.is_idle() && self.failing.again_from().is_none()).then_some(npop);
        let (looked, noted) = (seen.version, versions(rules.idempotency_window / NOTES));
        let until = match idle {
            None => self.pause.end.max(looked.saturating_add(LEAST_DUTY)),
            Some(_) if seldom.operation.is_some() => looked.saturating_add(noted.min(IDLE)),
            Some(_) => looked.saturating_add(IDLE),
        };
        let has_duty = |duty: Duty| {
            duty.sweeper == self.id && (duty.idle, idle) == (None, None) && duty.until >= self.pause.end
        };
        if seen.duty.is_some_and(has_duty) {
            return true;
        }
        let (space, duty) = (self.queue.space(), Duty { sweeper: self.id, looked, until, idle });
        // The record saves reads, and nothing else. If it cannot be written, the next look tries that again.
        let once = RetryPolicy { max_attempts: Some(1), ..rules.policy };
        let taken = run_adding(db, &once, |tr| async move {
            let taken = ops::duty::take(space, &tr, seen.duty, duty, seen.clock.stale).await;
            (tr, taken)
        });
        match taken.await {
            Ok(taken) => {
                sweep.count(taken.attempts);
                taken.value
            }
            Err(error) => {
                sweep.count(error.attempts);
                false
            }
        }
    }

    /// Writes down what the clock says in a queue without a record of duty, if something waits for its time there and nobody has done so for a while.
    async fn note_clock(&self, db: &Database, seen: &Seen, sweep: &mut Sweep<'_>) {
        let waits = seen.times.iter().next().is_some();
        if let Some(reading) = seen.clock.stale.filter(|_| waits && seen.clock.is_forgotten) {
            // It has a reading in the record by then, or tries again.
            let _: bool = self.publish(db, (reading, 0), false, sweep).await;
        }
    }

    /// Looks, and watches from there on.
    async fn look(&mut self, db: &Database, sweep: &mut Sweep<'_>) -> Result<(Seen, Watch), RetryError> {
        let (space, lookout, failing) = (self.queue.space(), &self.lookout(sweep), &self.failing);
        let (history, from) = (&self.history, self.leases.as_deref());
        let done = run(db, &sweep.rules.policy, |tr| async move {
            let leases = Leases { history, from, passes: |id| failing.has_lease(id) };
            let seen = ops::look::look(space, &tr, lookout, leases).await;
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
            for _ in 0..max_pages() {
                let result = self.run(db, chore::Work::Chore(*chore), sweep).await;
                match sweep.note(result) {
                    // There may be more.
                    Some(Ran::Moved)
                        if !matches!(chore, Chore::Return(_) | Chore::Note(_) | Chore::Due(Event::Batch)) => {
                    }
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

    /// Looks for orphans: at the front as long as there are any, and at one page of the rest, and of rates.
    async fn repair(&mut self, db: &Database, sweep: &mut Sweep<'_>) {
        for work in [chore::Work::RepairFront, chore::Work::RepairNext] {
            for _ in 0..max_pages() {
                let result = self.run(db, work, sweep).await;
                if !matches!(sweep.note(result), Some(Ran::Moved)) {
                    break;
                }
            }
        }
    }

    /// Goes through dead letters, and removes the old ones, until it has seen all or so many pages.
    async fn remove_old_letters(&mut self, db: &Database, sweep: &mut Sweep<'_>) {
        let Some(retention) = sweep.rules.dead_retention else {
            return self.dead = DeadLetterPass::default();
        };
        if !self.dead.is_due(sweep.removal_time(), retention) {
            return;
        }
        for _ in 0..max_pages() {
            let result = self.run(db, chore::Work::DeadLetters, sweep).await;
            let went_on = matches!(sweep.note(result), Some(Ran::Moved | Ran::Nothing));
            if !went_on || !self.dead.is_under_way() {
                return;
            }
        }
    }
}

/// A sweep under way.
struct Sweep<'a> {
    rules: &'a SweepRules,
    clock: Clock<'a>,
    /// What the last look thinks of the clock.
    judgement: Judgement,
    /// A version that had been read at that time.
    known: Option<u64>,
    moved: SweepCounts,
    occurrences: Vec<(String, OccurrenceRecord)>,
    unusable_schedules: BTreeSet<String>,
    closed_batches: Vec<ClosedBatch>,
    unusable_batches: BTreeSet<BatchId>,
    doubtful: usize,
    trouble: Option<RetryError>,
    /// The version of the last look before this sweep.
    last: u64,
    /// It looks at everything to the end, even if the sweeper on duty was late only with what has been done meanwhile.
    takes_over: bool,
    attempts: Attempts,
}

impl Sweep<'_> {
    /// The time by which it works. Each transaction asks for it again: one before it may have waited for long.
    fn now(&self) -> Millis {
        self.judgement.time(millis((self.clock)()))
    }

    /// The time by which it removes what cannot be brought back.
    fn removal_time(&self) -> Millis {
        self.judgement.removal_time(millis((self.clock)()))
    }

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
    use crate::client::approach::Approach;
    use crate::client::session::{FetchOptions, Session};
    use crate::testing::on_database;

    #[test]
    fn a_sweep_reads_all_records_after_versions_went_back() {
        on_database(async |db| {
            let queue = Queue::new(b"", b"q").unwrap();
            let mut session = Session::new(queue.clone());
            session.push(db, &["a"]).await.unwrap();
            let approach = &mut Approach::Front;
            let mut take = FetchOptions::new(NonZeroUsize::MIN, Duration::from_micros(1), approach);
            let lease = session.fetch(db, &mut take).await.unwrap().got.unwrap();
            let version = async || db.create_trx().unwrap().get_read_version().await.unwrap().cast_unsigned();
            while version().await <= lease.deadline() {}
            let begun = std::time::Instant::now();
            let history = VersionHistory::new(move || begun.elapsed());
            let mut sweeper = Sweeper::new(queue, history);
            // It has rested until then, in another life of the database.
            sweeper.pause = u64::MAX / 2..u64::MAX;
            let swept = sweeper.sweep(db, &|| UNIX_EPOCH, &SweepRules::default()).await.unwrap();
            assert_eq!(swept.moved.returned, 1);
            assert!(swept.next <= Duration::from_secs(30));
            // And now it rests, as ever.
            let pause = sweeper.pause.clone();
            sweeper.sweep(db, &|| UNIX_EPOCH, &SweepRules::default()).await.unwrap();
            assert_eq!(sweeper.pause, pause);
        });
    }
}
