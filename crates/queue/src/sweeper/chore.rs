//! One transaction of a sweep, seen through.

use foundationdb::{Database, Transaction};

use super::plan::Chore;
use super::{Sweep, SweepCounts, Sweeper};
use crate::error::QueueError;
use crate::keys::claims::Claim;
use crate::keys::leases::LeaseId;
use crate::ops::expire::{self, Terms};
use crate::ops::orphans::{Part, clear_orphans};
use crate::ops::place::check_kind;
use crate::ops::sweep_right::{self, CLAIM, held_by_another};
use crate::ops::version::now;
use crate::ops::{forget_operations, promote, times, want};
use crate::retry::{Retry, RetryError, maybe_committed};
use crate::time::versions;

/// What a transaction does.
#[derive(Debug, Clone, Copy)]
pub(super) enum Work {
    Chore(Chore),
    /// Clear orphans among the first side records.
    RepairFront,
    /// Clear orphans among the side records that are next.
    RepairNext,
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

/// What an attempt is about to commit.
#[derive(Debug, Clone)]
struct Attempt {
    claim: Claim,
    applied: Applied,
}

/// What a transaction does once it is committed.
#[derive(Debug, Clone, Default)]
struct Applied {
    moved: SweepCounts,
    /// Whether it writes something that is not counted.
    notes: bool,
    /// Where side records go on.
    cursor: Option<Vec<u8>>,
}

/// How an attempt goes on.
enum ChoreStep {
    /// An earlier one had committed.
    Earlier(Attempt),
    /// There is nothing to commit.
    Over(Ran),
    Commit(Attempt),
}

impl Sweeper {
    /// Runs a transaction until it has committed.
    pub(super) async fn run(
        &mut self,
        db: &Database,
        work: Work,
        sweep: &mut Sweep<'_>,
    ) -> Result<Ran, RetryError> {
        let (mut retry, mut tr) = Retry::begin(db, &sweep.rules.policy)?;
        // Attempts that may have committed; at most one did.
        let mut unsure: Vec<Attempt> = Vec::new();
        let attempt = loop {
            let prepared = self.prepare(&tr, work, sweep, &unsure).await;
            tr = match prepared {
                Err(error) => retry.after_body(tr, error).await?,
                Ok(ChoreStep::Earlier(attempt)) => break attempt,
                Ok(ChoreStep::Over(ran)) => {
                    sweep.count(retry.attempts);
                    return Ok(ran);
                }
                Ok(ChoreStep::Commit(attempt)) => match tr.commit().await {
                    Ok(_committed) => break attempt,
                    Err(error) => {
                        if maybe_committed(*error) {
                            unsure.push(attempt);
                        }
                        retry.after_commit(error).await?
                    }
                },
            };
        };
        sweep.count(retry.attempts);
        sweep.moved += attempt.applied.moved;
        if let Some(cursor) = attempt.applied.cursor {
            self.cursor = cursor;
        }
        Ok(Ran::Moved)
    }

    async fn prepare(
        &mut self,
        tr: &Transaction,
        work: Work,
        sweep: &Sweep<'_>,
        unsure: &[Attempt],
    ) -> Result<ChoreStep, QueueError> {
        let queue = self.queue.clone();
        let (space, version) = (queue.space(), now(tr).await?);
        let held = sweep_right::read(space, tr).await?;
        if let Some(attempt) = unsure.iter().find(|attempt| held == Some(attempt.claim)) {
            return Ok(ChoreStep::Earlier(attempt.clone()));
        }
        if held_by_another(held, self.id, version).is_some() {
            return Ok(ChoreStep::Over(Ran::Claimed));
        }
        let applied = self.apply(tr, work, sweep).await?;
        if applied.moved.is_nothing() && !applied.notes {
            self.cursor = applied.cursor.unwrap_or_else(|| std::mem::take(&mut self.cursor));
            return Ok(ChoreStep::Over(Ran::Nothing));
        }
        self.until = version.saturating_add(CLAIM).max(self.until + 1);
        let claim = Claim { sweeper: self.id, until: self.until };
        sweep_right::write(space, tr, claim);
        Ok(ChoreStep::Commit(Attempt { claim, applied }))
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
            Work::Chore(Chore::Promote) => SweepCounts {
                promoted: promote::promote(space, tr, sweep.now).await?,
                ..SweepCounts::default()
            },
            Work::Chore(Chore::Forget) => {
                let kept = versions(sweep.rules.idempotency_window);
                let operations = forget_operations::forget_operations(space, tr, sweep.now, kept).await?;
                SweepCounts { operations, ..SweepCounts::default() }
            }
            Work::Chore(Chore::Note(known)) => {
                let kept = versions(sweep.rules.idempotency_window);
                let notes = times::note(space, tr, known, sweep.now, kept).await?;
                return Ok(Applied { notes, ..Applied::default() });
            }
            Work::Chore(Chore::Dismiss) => {
                SweepCounts { requests: want::dismiss(space, tr).await?, ..SweepCounts::default() }
            }
            Work::Chore(Chore::Return(id)) => {
                self.attempt += 1;
                let spare = LeaseId { session: self.id, number: self.attempt * MAX_PARTS };
                let terms = Terms { retry: sweep.rules.retry, at: sweep.now, spare };
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
                SweepCounts { orphans: page.cleared, ..SweepCounts::default() }
            }
            Work::RepairNext => {
                let page = clear_orphans(space, tr, Part::From(&self.cursor)).await?;
                let moved = SweepCounts { orphans: page.cleared, ..SweepCounts::default() };
                return Ok(Applied { moved, cursor: Some(page.next), ..Applied::default() });
            }
        };
        Ok(Applied { moved, ..Applied::default() })
    }
}

/// More than a lease has items: so many numbers each attempt has for new leases.
const MAX_PARTS: u64 = 1 << 32;
