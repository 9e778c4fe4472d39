//! What operations have told their workers, held against what they did.

mod batches;
mod changes;
mod push;
mod schedules;

use std::collections::{BTreeMap, BTreeSet};

use kvqueue_queue::item_batch::{BatchId, ClosedBatch, Join};
use kvqueue_queue::schedule::OccurrenceRecord;
use kvqueue_queue::{CancelCounts, Item, ItemChange, ItemId, LeaseId, PushedItem, SessionId, SweepCounts};

use crate::intent::{Intent, Operation};
use crate::model::schedules::Change;
use crate::model::{Event, Model, Verdict, promise};
use schedules::Schedules;

pub(crate) use batches::BatchClaim;
pub(crate) use schedules::{ScheduleClaim, fate_name, is_record};

/// The result that a worker got.
#[derive(Debug)]
pub(crate) enum Claim {
    /// This came of the items of a push; or, `repeated`, of the push that was done before under its name.
    Pushed { items: Vec<PushedItem>, repeated: bool },
    /// Something else was pushed before under the name of the push.
    Reused,
    /// These items are held, on this lease.
    Leased(LeaseId, Vec<Item>),
    /// These items are the worker's; `short`: there were no more than that.
    Took { items: Vec<Item>, short: bool },
    /// There was nothing to take.
    Nothing,
    /// It is done, whatever was to be done.
    Done,
    /// A sweep moved this, and this became of occurrences; `whole`: and nothing that it does not know of.
    /// And these batches called back.
    Swept {
        moved: SweepCounts,
        occurrences: Vec<(String, OccurrenceRecord)>,
        batches: Vec<ClosedBatch>,
        whole: bool,
    },
    /// An operation on schedules.
    Schedule(ScheduleClaim),
    /// This came of a change of an item.
    Changed(ItemChange),
    /// This many items were cancelled in a step of a cancellation of many.
    CancelledSome(CancelCounts),
    /// The holder's transaction was given up, since these items of its lease were cancelled.
    Cancelled(Vec<usize>),
    /// An operation on a batch.
    Batch(BatchClaim),
    /// Nothing was pushed, since this batch gets no more members.
    NoBatch(BatchId),
    /// The lease is lost.
    LostLease,
    /// It came to nothing, for certain or perhaps.
    Failed { perhaps: bool },
}

/// What committed, by operation and session.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    /// How often an operation committed.
    commits: BTreeMap<(String, u64), usize>,
    /// What an operation did that may be done once.
    effects: BTreeMap<(String, u64), Vec<Event>>,
    /// What a sweep moved: leases, items whose time had come, operations, items that expired, old dead
    /// letters.
    swept: BTreeMap<(String, u64), [usize; 5]>,
    /// The sweep that moved something last.
    last_sweep: Option<(String, u64)>,
    /// Sweeps after whose transactions another one moved something, also if they went on afterwards.
    overtaken: BTreeSet<(String, u64)>,
    /// Leases that a session has and was not told of yet.
    leases: BTreeMap<SessionId, BTreeSet<LeaseId>>,
    /// Items that a session took for good and was not told of yet.
    items: BTreeMap<SessionId, BTreeSet<ItemId>>,
    schedules: Schedules,
    /// What each transaction of a join made of its items.
    joins: BTreeMap<(String, u64), Vec<BTreeMap<ItemId, Join>>>,
    /// Batches that a sweep closed.
    closed: BTreeMap<(String, u64), Vec<BatchId>>,
}

impl Claims {
    /// An operation committed.
    pub(crate) fn committed(
        &mut self,
        operation: &Operation,
        events: &[Event],
        model: &Model,
        version: u64,
    ) -> Verdict {
        self.schedules.committed(operation, events, model, version);
        for event in events {
            match (event, operation.intent.session()) {
                (Event::Leased { lease, .. }, _) => {
                    let own = self.leases.entry(lease.session).or_default();
                    let other = own.iter().find(|other| model.is_held(**other));
                    promise!(other.is_none(), "{operation}: {lease:?} was taken together with {other:?}");
                    own.insert(*lease);
                }
                (Event::Taken { items, .. }, Some(session)) => {
                    self.items.entry(session).or_default().extend(items.iter().cloned());
                }
                (Event::PickedUp(lease), Some(session)) => {
                    self.items.entry(session).or_default().extend(model.left_on(*lease).cloned());
                }
                (Event::Expired { .. }, _) => self.swept.entry(key(operation)).or_default()[0] += 1,
                (Event::Promoted { items, .. }, _) => {
                    self.swept.entry(key(operation)).or_default()[1] += items.len();
                }
                (Event::Forgotten { operations, .. }, _) => {
                    self.swept.entry(key(operation)).or_default()[2] += operations.len();
                }
                (Event::LettersRemoved { items, .. }, _) => {
                    self.swept.entry(key(operation)).or_default()[4] += items.len();
                }
                (Event::BatchesSeen { closed, .. }, _) => {
                    let ids = closed.iter().map(|(id, _)| id.clone());
                    self.closed.entry(key(operation)).or_default().extend(ids);
                }
                (Event::ItemsExpired { gone, dead, .. }, _) => {
                    self.swept.entry(key(operation)).or_default()[3] += gone.len() + dead.len();
                }
                _ => {}
            }
        }
        *self.commits.entry(key(operation)).or_default() += 1;
        if matches!(operation.intent, Intent::Sweep(_)) {
            let before = self.last_sweep.replace(key(operation));
            self.overtaken.extend(before.filter(|before| *before != key(operation)));
        }
        let own = events.iter().filter(|event| is_effect(event, operation)).cloned();
        let effects = self.effects.entry(key(operation)).or_default();
        effects.extend(own);
        promise!(effects.len() <= 1, "{operation} happened twice");
        Ok(())
    }

    /// An operation committed, and this came of the items that were to join a batch.
    pub(crate) fn joined(&mut self, operation: &Operation, joins: &BTreeMap<ItemId, Join>) {
        if !joins.is_empty() {
            self.joins.entry(key(operation)).or_default().push(joins.clone());
        }
    }

    /// A worker got a result.
    pub(crate) fn check(&mut self, operation: &Operation, claim: &Claim, model: &Model) -> Verdict {
        let effects = self.effects.get(&key(operation)).map(Vec::as_slice).unwrap_or_default();
        match claim {
            Claim::Pushed { items, repeated: false } => push::check(operation, items, effects, model)?,
            Claim::Pushed { items, repeated: true } => {
                push::check_repetition(operation, items, effects, model)?;
            }
            Claim::Reused => push::check_reused(operation, effects, model)?,
            Claim::Failed { perhaps } => {
                let is_nothing = effects.is_empty() && !self.joins.contains_key(&key(operation));
                promise!(*perhaps || is_nothing, "{operation} failed, and happened");
                if !perhaps {
                    self.schedules.check_failed(operation)?;
                }
            }
            Claim::Done => {
                promise!(
                    self.is_done(operation, model),
                    "{operation}: told that it was done, and it was not"
                );
            }
            Claim::Swept { moved, occurrences, batches, whole } => {
                let did = self.swept.get(&key(operation)).copied().unwrap_or_default();
                let told =
                    [moved.leases, moved.promoted, moved.operations, moved.expired, moved.removed_dead];
                // What had an unknown outcome, and others have swept since, is not counted.
                let is_overtaken = self.overtaken.contains(&key(operation));
                let may_miss = !*whole || (operation.unknown.get() > 0 && is_overtaken);
                let at_most = told.iter().zip(did).all(|(told, did)| *told <= did);
                let is_right = if may_miss { at_most } else { told == did };
                promise!(is_right, "{operation}: told {moved:?}, and did {did:?}");
                self.schedules.check_swept(operation, occurrences, may_miss)?;
                let closed = self.closed.get(&key(operation)).map(Vec::as_slice).unwrap_or_default();
                batches::check_swept(operation, batches, closed, may_miss, model)?;
            }
            Claim::Schedule(claim) => self.schedules.check(operation, claim)?,
            Claim::Changed(change) => changes::check(operation, change, effects, model)?,
            Claim::CancelledSome(counts) => changes::check_many(operation, *counts, effects)?,
            Claim::Cancelled(items) => changes::check_given_up(operation, items, effects, model)?,
            Claim::Batch(BatchClaim::Joined(told)) => {
                let did = self.joins.get(&key(operation)).map(Vec::as_slice).unwrap_or_default();
                batches::check_joined(operation, told, did, model)?;
            }
            Claim::Batch(claim) => batches::check(operation, claim, effects, model)?,
            Claim::NoBatch(id) => {
                let is_open = model.batches().get(id).is_some_and(|batch| batch.committed.is_none());
                promise!(effects.is_empty(), "{operation}: refused, and did {effects:?}");
                // Of a queue with another home, nobody looks here.
                promise!(operation.at > 0 || !is_open, "{operation}: refused, and {id} is open");
            }
            Claim::LostLease => {
                let Intent::Settle { lease, .. } = &operation.intent else { return Ok(()) };
                promise!(!model.is_held(*lease), "{operation}: told that the lease was lost, and it is held");
                let may_have = operation.unknown.get() > 0 || effects.is_empty();
                promise!(may_have, "{operation}: told that the lease was lost, and settled it");
            }
            Claim::Leased(..) | Claim::Took { .. } | Claim::Nothing => {
                self.check_take(operation, claim, model)?;
            }
        }
        Ok(())
    }

    /// Whether what the operation was to settle is settled, and what was to be extended was.
    fn is_done(&self, operation: &Operation, model: &Model) -> bool {
        match &operation.intent {
            // Of a lease that turns out to be settled, there is nothing to extend.
            Intent::Settle { lease, settlements, .. } if settlements.is_empty() => {
                let items = model.handed_on(*lease).count();
                self.commits.contains_key(&key(operation))
                    || (0..items).all(|index| model.is_settled(*lease, index))
            }
            Intent::Settle { lease, settlements, .. } => {
                settlements.iter().all(|(index, _)| model.is_settled(*lease, *index))
            }
            _ => true,
        }
    }

    fn check_take(&mut self, operation: &Operation, claim: &Claim, model: &Model) -> Verdict {
        let Some(session) = operation.intent.session() else { return Ok(()) };
        let leases = self.leases.entry(session).or_default();
        let items = self.items.entry(session).or_default();
        let mut is_short = true;
        match claim {
            Claim::Leased(lease, got) => {
                promise!(leases.remove(lease), "{operation} was given {lease:?} twice, or it is not its own");
                model.check_handed(*lease, got)?;
            }
            Claim::Took { items: got, short } => {
                is_short = *short;
                for item in got {
                    promise!(
                        items.remove(&item.id),
                        "{operation} was given {} twice, or it is not its own",
                        item.id
                    );
                    model.check_content(item)?;
                }
            }
            Claim::Nothing => {
                promise!(
                    model.has_limits() || model.was_empty_since(operation.begun, operation.intent.crashes()),
                    "{operation} found nothing, and there was something"
                );
            }
            _ => {}
        }
        let stranded = leases.iter().find(|lease| model.is_held(**lease));
        promise!(stranded.is_none(), "{operation}: its session has {stranded:?} and was not told");
        promise!(!is_short || items.is_empty(), "{operation}: its session has {items:?} and was not told");
        promise!(!model.asks(session), "{operation}: its session still stands in the line");
        Ok(())
    }
}

fn key(operation: &Operation) -> (String, u64) {
    (operation.worker.clone(), operation.number)
}

/// Whether this is what the operation was for, and not a step on the way or something done for others.
fn is_effect(event: &Event, operation: &Operation) -> bool {
    match event {
        Event::Pushed { .. } | Event::Taken { .. } | Event::PickedUp(_) | Event::Deleted(_) => true,
        Event::ItemChanged { .. } | Event::CancelledAll(_) => true,
        Event::BatchMade { .. } | Event::BatchCommitted { .. } | Event::BatchCancelled(_) => {
            matches!(operation.intent, Intent::Batch { .. })
        }
        Event::Revived(_) | Event::Purged(_) => {
            matches!(operation.intent, Intent::Revive(Some(_)) | Intent::Purge(Some(_)) | Intent::Delete(_))
        }
        Event::Schedule { change, .. } => matches!(change, Change::ByHand(_)),
        // An extension may be repeated.
        Event::Settled { settlements, .. } => {
            matches!(operation.intent, Intent::Settle { .. }) && !settlements.is_empty()
        }
        _ => false,
    }
}
