//! One transaction of a sweep.

use foundationdb::{Database, FdbError, Transaction, TransactionCommitted};
use mutant::{bound, mutant};

use super::plan::Chore;
use super::{Sweep, SweepCounts, Sweeper};
use crate::keys::agenda::Event;
use crate::keys::claims::Claim;
use crate::model::codes::NOT_COMMITTED;
use crate::model::error::QueueError;
use crate::model::lease_id::LeaseId;
use crate::model::retry_error::RetryError;
use crate::model::time::{Millis, versions};
use crate::ops::agenda::check_first;
use crate::ops::batches::due::{ClosedPage, close_due};
use crate::ops::duty::MARKS_PACE;
use crate::ops::expire::Terms;
use crate::ops::expiry::expire_due;
use crate::ops::keyed::pace;
use crate::ops::orphans::{Part, clear_orphans};
use crate::ops::place::check_kind;
use crate::ops::promote::Clears;
use crate::ops::retention::{RetentionPage, remove_old};
use crate::ops::schedule::due::{FiredPage, fire_due};
use crate::ops::sweep_right::{CLAIM, held_by_another};
use crate::ops::{cancel, ended, expire, forget_operations, promote, sweep_right, times, want};
use crate::run::operation::{Operation, Step, complete, complete_adding};
use crate::run::retry::{Done, maybe_committed};
use crate::run::version::now;

/// The work of a transaction.
#[derive(Debug, Clone, Copy)]
pub(super) enum Work {
    Chore(Chore),
    /// Clear orphans among the first side records.
    RepairFront,
    /// Clear orphans among the side records that are next, and what scopes have paid that start nothing any more.
    RepairNext,
    /// Remove old ones among the dead letters that are next.
    DeadLetters,
}

/// How a transaction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ran {
    /// It moved something.
    Moved,
    /// There was nothing to move.
    Nothing,
    /// Another sweeper has the right.
    Claimed,
}

/// An attempt, by the claim that it writes.
#[derive(Debug, Clone)]
struct Attempt {
    claim: Claim,
    applied: Applied,
}

/// The effect of a transaction, if it commits.
#[derive(Debug, Clone, Default)]
struct Applied {
    moved: SweepCounts,
    /// What became of occurrences of schedules.
    fired: FiredPage,
    /// Batches that were closed.
    closed: ClosedPage,
    /// Whether it writes something that is not counted.
    notes: bool,
    /// Where the next page of side records begins.
    cursor: Option<Vec<u8>>,
    /// Where the next page of the rates of a keyed queue begins.
    rates: Option<Vec<u8>>,
    /// A page of dead letters, and when it was read.
    letters: Option<(RetentionPage, Millis)>,
}

impl Sweeper {
    /// Runs a transaction until it has committed.
    pub(super) async fn run(
        &mut self,
        db: &Database,
        work: Work,
        sweep: &mut Sweep<'_>,
    ) -> Result<Ran, RetryError> {
        let mut running = Running { sweeper: self, work, sweep, unsure: Vec::new() };
        let done = match work {
            // It only adds data, and a full disk stays full.
            Work::Chore(Chore::Due(Event::Schedule | Event::Batch)) => {
                complete_adding(db, &sweep.rules.policy, &mut running).await
            }
            _ => complete(db, &sweep.rules.policy, &mut running).await,
        };
        let Done { value: (ran, applied), attempts } = done?;
        sweep.count(attempts);
        sweep.moved += applied.moved;
        sweep.occurrences.extend(applied.fired.occurrences);
        sweep.unusable_schedules.extend(applied.fired.unusable);
        if matches!(work, Work::Chore(Chore::Due(Event::Batch))) && !applied.closed.is_full {
            self.marks_from = self.last.saturating_add(MARKS_PACE);
        }
        sweep.closed_batches.extend(applied.closed.closed);
        sweep.unusable_batches.extend(applied.closed.unusable);
        if let Some(cursor) = applied.cursor {
            self.cursor = cursor;
        }
        if let Some(rates) = applied.rates {
            self.rates = rates;
        }
        if let Some((page, at)) = applied.letters {
            self.dead.done(&page, at);
        }
        Ok(ran)
    }

    /// Puts the work into a transaction.
    async fn apply(
        &mut self,
        tr: &Transaction,
        work: Work,
        sweep: &Sweep<'_>,
    ) -> Result<Applied, QueueError> {
        let space = self.queue.space();
        let moved = match work {
            Work::Chore(Chore::Due(event)) => return self.due(tr, event, sweep).await,
            Work::Chore(Chore::Forget) => {
                let kept = versions(sweep.rules.idempotency_window);
                let operations =
                    forget_operations::forget_operations(space, tr, sweep.removal_time(), kept).await?;
                SweepCounts { operations, ..SweepCounts::default() }
            }
            Work::Chore(Chore::Note(known)) => {
                let kept = versions(sweep.rules.idempotency_window);
                let notes = times::note(space, tr, known, sweep.now(), kept).await?;
                return Ok(Applied { notes, ..Applied::default() });
            }
            Work::Chore(Chore::ClearEnded) => {
                let notes = ended::clear(space, tr, sweep.removal_time()).await?;
                return Ok(Applied { notes, ..Applied::default() });
            }
            Work::Chore(Chore::Dismiss) => {
                SweepCounts { requests: want::dismiss(space, tr).await?, ..SweepCounts::default() }
            }
            Work::Chore(Chore::Return(id)) => {
                self.attempt += 1;
                let spare = LeaseId { session: self.id, number: self.attempt * MAX_PARTS };
                let terms = Terms { retry: sweep.rules.retry, at: sweep.now(), spare };
                let (history, rng) = (&self.history, &mut self.rng);
                let expired = expire::expire(space, tr, id, history, terms, rng).await?;
                expired.map_or_else(SweepCounts::default, |expired| SweepCounts {
                    leases: 1,
                    returned: expired.returned,
                    dead: expired.dead,
                    ..SweepCounts::default()
                })
            }
            Work::RepairFront => {
                let page = clear_orphans(space, tr, Part::Front).await?;
                if let Some(alien) = page.alien.filter(|_| page.cleared == 0) {
                    check_kind(space, &alien)?;
                }
                let old = cancel::clear_old(space, tr, (old_cancellations(), PAGES)).await?;
                let moved = SweepCounts { orphans: page.cleared, ..SweepCounts::default() };
                return Ok(Applied { moved, notes: old > 0, ..Applied::default() });
            }
            Work::RepairNext => {
                let page = clear_orphans(space, tr, Part::From(&self.cursor)).await?;
                let moved = SweepCounts { orphans: page.cleared, ..SweepCounts::default() };
                let (forgotten, rates) = match &space.keyed {
                    Some(keyed) => pace::forget_page(keyed, tr, &self.rates).await?,
                    None => (0, Vec::new()),
                };
                let (cursor, rates) = (page.next, Some(rates));
                return Ok(Applied { moved, notes: forgotten > 0, cursor, rates, ..Applied::default() });
            }
            Work::DeadLetters => {
                let now = sweep.removal_time();
                let (from, until) = self.dead.page(now);
                let page = remove_old(space, tr, from, until).await?;
                let moved = SweepCounts { removed_dead: page.removed, ..SweepCounts::default() };
                return Ok(Applied { moved, letters: Some((page, now)), ..Applied::default() });
            }
        };
        Ok(Applied { moved, ..Applied::default() })
    }

    /// Does what is due of an event.
    ///
    /// # Errors
    /// Also if there was nothing to do, and the first row of the event counts as due, but cannot be read.
    async fn due(
        &mut self,
        tr: &Transaction,
        event: Event,
        sweep: &Sweep<'_>,
    ) -> Result<Applied, QueueError> {
        let (space, rules) = (self.queue.space(), sweep.rules);
        let now = if event.is_removal() { sweep.removal_time() } else { sweep.now() };
        let applied = match event {
            Event::Ready => {
                let promoted = promote::promote(space, tr, now, self.clears).await?;
                Applied { moved: SweepCounts { promoted, ..SweepCounts::default() }, ..Applied::default() }
            }
            Event::Schedule => {
                let fired = fire_due(space, tr, (now, rules.ttl), &mut self.rng).await?;
                Applied { notes: fired.has_written, fired, ..Applied::default() }
            }
            Event::Expiry => {
                let page = expire_due(space, tr, now, rules.on_expiry).await?;
                let moved = SweepCounts { expired: page.items, ..SweepCounts::default() };
                Applied { moved, notes: page.rows > 0, ..Applied::default() }
            }
            Event::Batch => {
                let closed = close_due(space, tr, (now, rules.ttl), &mut self.rng).await?;
                Applied { notes: closed.has_written, closed, ..Applied::default() }
            }
        };
        if applied.moved.is_nothing() && !applied.notes {
            check_first(&space.agenda(event), tr, now).await?;
        }
        Ok(applied)
    }
}

/// One transaction of a sweep.
struct Running<'a> {
    sweeper: &'a mut Sweeper,
    work: Work,
    sweep: &'a Sweep<'a>,
    /// The attempts that may have committed, the one under way last. At most one of them has: each writes a claim of its own.
    unsure: Vec<Attempt>,
}

impl Operation for Running<'_> {
    type Output = (Ran, Applied);

    async fn prepare(&mut self, tr: &Transaction) -> Result<Step<Self::Output>, QueueError> {
        let sweeper = &mut *self.sweeper;
        let queue = sweeper.queue.clone();
        let (space, version) = (queue.space(), now(tr).await?);
        let held = sweep_right::read(space, tr).await?;
        if let Some(attempt) = self.unsure.iter().find(|attempt| held == Some(attempt.claim)) {
            return Ok(Step::End((Ran::Moved, attempt.applied.clone())));
        }
        if held_by_another(held, sweeper.id, version).is_some() {
            return Ok(Step::End((Ran::Claimed, Applied::default())));
        }
        let applied = sweeper.apply(tr, self.work, self.sweep).await?;
        if applied.moved.is_nothing() && !applied.notes {
            return Ok(Step::End((Ran::Nothing, applied)));
        }
        sweeper.until = version.saturating_add(CLAIM).max(sweeper.until + 1);
        let claim = Claim { sweeper: sweeper.id, until: sweeper.until };
        sweep_right::write(space, tr, claim);
        self.unsure.push(Attempt { claim, applied });
        Ok(Step::Commit)
    }

    fn committed(&mut self, _: &TransactionCommitted) -> Option<Self::Output> {
        self.unsure.pop().map(|attempt| (Ran::Moved, attempt.applied))
    }

    fn failed(&mut self, error: FdbError) {
        if !maybe_committed(error) {
            self.unsure.pop();
        }
        let is_promotion = matches!(self.work, Work::Chore(Chore::Due(Event::Ready)));
        if is_promotion && error.code() == NOT_COMMITTED && !mutant("promote-stays-together") {
            self.sweeper.clears = Clears::Apart;
        }
    }
}

/// How many records of cancellations a page has, and the most pages that one transaction looks at.
fn old_cancellations() -> usize {
    bound("old-cancellations-swept", 100)
}
const PAGES: usize = 50;

/// How many numbers each attempt has for new leases: more than a lease has items.
const MAX_PARTS: u64 = 1 << 32;
