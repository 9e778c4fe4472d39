//! What a worker asks of the layer, and what came of it when it committed.

mod batches;
mod changes;
mod reading;
mod schedules;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt;

use kvqueue_queue::item_batch::{BatchId, NewBatch};
use kvqueue_queue::{CancelFilter, ItemId, ItemOutcome, LeaseId, NewItem, Progress, Recording, SessionId};

use crate::image::Image;
use crate::image::schedules::Definition;
use crate::model::{Event, HistoryRule, Sweeping, Terms};
use crate::world::Millis;

/// An operation of a worker.
#[derive(Debug)]
pub(crate) struct Operation {
    /// The number of the queue that it is about.
    pub(crate) at: usize,
    /// The worker's name.
    pub(crate) worker: String,
    /// Counts up in each worker.
    pub(crate) number: u64,
    pub(crate) intent: Intent,
    /// The version of the last commit before it began.
    pub(crate) begun: u64,
    /// The true time when it began, and how much clocks on walls had been set until then.
    pub(crate) begun_at: u64,
    pub(crate) begun_turns: u64,
    /// How far its worker's clock is wrong.
    pub(crate) skew: i64,
    /// Whether the ends of items are recorded.
    pub(crate) recording: Recording,
    /// How many of its commits had an outcome that it was not told.
    pub(crate) unknown: Cell<u32>,
    /// How many of them fired schedules.
    pub(crate) unknown_fires: Cell<u32>,
}

/// What an operation is to do.
#[derive(Debug, Clone)]
pub(crate) enum Intent {
    Push {
        items: Vec<NewItem>,
        operation: Option<Vec<u8>>,
    },
    Lease {
        session: SessionId,
        terms: Terms,
    },
    Take {
        session: SessionId,
        terms: Terms,
    },
    Settle {
        lease: LeaseId,
        settlements: Vec<(usize, ItemOutcome)>,
        with_effects: bool,
        /// How far items are, if the lease is only extended.
        progress: Vec<(usize, Progress)>,
    },
    Close {
        session: SessionId,
    },
    Sweep(Sweeping),
    /// Dead letters are to become items again: this one, or all.
    Revive(Option<ItemId>),
    /// Dead letters are to be deleted: this one, or all.
    Purge(Option<ItemId>),
    /// An item is to be deleted, whatever it is doing, if nobody has it.
    Delete(ItemId),
    /// An item is to be changed, by its id.
    Change {
        id: ItemId,
        plan: ItemPlan,
    },
    /// All items are to be cancelled that match.
    CancelAll(CancelFilter),
    /// A holder looks which items of its lease were cancelled.
    Look {
        lease: LeaseId,
    },
    /// A batch is to be changed, by a clock that says `now`.
    Batch {
        id: BatchId,
        now: Millis,
        plan: BatchPlan,
    },
    /// Items that are in the queue, or were there, are to join a batch.
    Join {
        id: BatchId,
        items: Vec<ItemId>,
    },
    /// An item is to be pushed when these have ended: as the callback of a batch that they join.
    After {
        id: BatchId,
        now: Millis,
        new: Box<NewBatch>,
        /// Each with the number of its queue.
        items: Vec<(usize, ItemId)>,
    },
    /// An operator stores what is kept of ended items.
    KeepHistory(HistoryRule),
    /// The queue is to be frozen, or to go on.
    Freeze(bool),
    /// The rules of the queue's keys are to be changed.
    Limit,
    /// A held key is to go on.
    Unblock(Vec<u8>),
    /// The queue is to be divided into partitions.
    Divide,
    /// A schedule is to be changed, by a clock that says `now`.
    Schedule {
        name: String,
        now: Millis,
        plan: Plan,
    },
    /// The schedules of a configuration are to be removed, but for these.
    RemoveOthers {
        owner: String,
        keep: BTreeSet<String>,
    },
}

/// What is to be done to a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BatchPlan {
    Make(Box<NewBatch>),
    Commit,
    Cancel,
}

/// What is to be done to an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ItemPlan {
    Cancel,
    /// It is to be ready at this time, or now.
    Reschedule(Option<Millis>),
    /// It is to be ready now, also if it is a dead letter.
    Retry,
    /// It is to have this payload.
    Edit(Vec<u8>),
}

/// What is to be done to a schedule.
#[derive(Debug, Clone)]
pub(crate) enum Plan {
    Put(Box<Definition>),
    Remove,
    Pause,
    Resume,
    Restart,
    /// An item is to be pushed by hand.
    Fire,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{} {}", self.worker, self.number, self.intent.name())
    }
}

impl Intent {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Intent::Push { operation: None, .. } => "push",
            Intent::Push { operation: Some(_), .. } => "push under a name",
            Intent::Lease { .. } => "lease",
            Intent::Take { .. } => "take",
            Intent::Settle { settlements, .. } if settlements.is_empty() => "extend",
            Intent::Settle { with_effects: false, .. } => "settle",
            Intent::Settle { with_effects: true, .. } => "settle with effects",
            Intent::Close { .. } => "close",
            Intent::Sweep(_) => "sweep",
            Intent::Revive(_) => "revive",
            Intent::Purge(_) => "purge",
            Intent::Delete(_) => "delete",
            Intent::Change { plan: ItemPlan::Cancel, .. } => "cancel an item",
            Intent::Change { plan: ItemPlan::Reschedule(_), .. } => "reschedule an item",
            Intent::Change { plan: ItemPlan::Retry, .. } => "retry an item",
            Intent::Change { plan: ItemPlan::Edit(_), .. } => "edit an item",
            Intent::CancelAll(_) => "cancel all items",
            Intent::Look { .. } => "look for cancelled items",
            Intent::Batch { plan: BatchPlan::Make(_), .. } => "make a batch",
            Intent::Batch { plan: BatchPlan::Commit, .. } => "commit a batch",
            Intent::Batch { plan: BatchPlan::Cancel, .. } => "cancel a batch",
            Intent::Join { .. } => "join a batch",
            Intent::After { .. } => "push after others",
            Intent::KeepHistory(_) => "keep a history",
            Intent::Freeze(true) => "freeze",
            Intent::Freeze(false) => "resume",
            Intent::Limit => "limit",
            Intent::Unblock(_) => "unblock",
            Intent::Divide => "divide",
            Intent::Schedule { plan: Plan::Put(_), .. } => "put a schedule",
            Intent::Schedule { plan: Plan::Remove, .. } => "remove a schedule",
            Intent::Schedule { plan: Plan::Pause, .. } => "pause a schedule",
            Intent::Schedule { plan: Plan::Resume, .. } => "resume a schedule",
            Intent::Schedule { plan: Plan::Restart, .. } => "restart a schedule",
            Intent::Schedule { plan: Plan::Fire, .. } => "fire a schedule",
            Intent::RemoveOthers { .. } => "remove the other schedules",
        }
    }

    /// The session whose it is.
    pub(crate) fn session(&self) -> Option<SessionId> {
        match self {
            Intent::Lease { session, .. } | Intent::Take { session, .. } | Intent::Close { session } => {
                Some(*session)
            }
            _ => None,
        }
    }

    /// How often an item may have crashed that it takes.
    pub(crate) fn crashes(&self) -> u32 {
        match self {
            Intent::Lease { terms, .. } | Intent::Take { terms, .. } => terms.crashes,
            _ => u32::MAX,
        }
    }

    /// What a transaction of this intent did that made `after` of `before`: which choices it made. Whether it may have made them is
    /// for the model to say, and whether it did nothing else.
    pub(crate) fn events(&self, before: &Image, after: &Image) -> Result<Vec<Event>, String> {
        let mut events = self.own_events(before, after)?;
        events.extend(changes::forgotten(self.holder(), before, after));
        Ok(events)
    }

    /// Whose lease it is: that of one lease, or those of a session.
    fn holder(&self) -> (Option<LeaseId>, Option<SessionId>) {
        match self {
            Intent::Settle { lease, .. } | Intent::Look { lease } => (Some(*lease), None),
            _ => (None, self.session()),
        }
    }

    /// What a transaction of this intent did in another queue than its own, of which this is the number.
    pub(crate) fn event_elsewhere(&self, at: usize) -> Option<Event> {
        match self {
            Intent::After { id, items, .. } => Some(batches::joined(id, items, at)),
            _ => None,
        }
    }

    fn own_events(&self, before: &Image, after: &Image) -> Result<Vec<Event>, String> {
        match self {
            Intent::Push { items, operation } => reading::pushed(items, operation.as_deref(), before, after),
            Intent::Lease { session, terms } | Intent::Take { session, terms } => {
                Ok(reading::taking(*session, *terms, before, after))
            }
            Intent::Close { session } => {
                let terms = Terms { k: 0, length: 0, front: false, crashes: 0 };
                Ok(reading::taking(*session, terms, before, after))
            }
            // The holder has found out that what was left of the lease was cancelled.
            Intent::Settle { lease, .. }
                if !before.leases.contains_key(lease) && before.cancelled.contains_key(lease) =>
            {
                Ok(Vec::new())
            }
            Intent::Settle { lease, settlements, with_effects, progress } => {
                let (lease, with_effects) = (*lease, *with_effects);
                let settled = Event::Settled { lease, settlements: settlements.clone(), with_effects };
                let news = progress.clone();
                let progressed = (!news.is_empty()).then_some(Event::Progressed { lease, news });
                Ok([settled].into_iter().chain(progressed).collect())
            }
            Intent::Sweep(by) => reading::swept(*by, before, after),
            Intent::Schedule { name, now, plan } => schedules::changed(name, *now, plan, before, after),
            Intent::RemoveOthers { .. } => Ok(schedules::removed(before, after)),
            Intent::Revive(_) | Intent::Purge(_) => Ok(reading::letters(before, after)),
            Intent::Delete(id) => reading::deleted(id, before, after),
            Intent::Change { id, plan } => changes::changed(id, plan, before, after),
            Intent::CancelAll(filter) => changes::cancelled(filter, before, after),
            Intent::Batch { id, now, plan } => Ok(batches::changed(id, *now, plan, before, after)),
            // One that lets nothing join writes nothing.
            Intent::Join { id, items } => Ok(vec![Event::Joined { id: id.clone(), items: items.clone() }]),
            Intent::After { id, now, new, items } => Ok(vec![
                Event::BatchMade { id: id.clone(), new: new.clone(), now: *now },
                batches::joined(id, items, 0),
                Event::BatchCommitted { id: id.clone(), now: *now },
            ]),
            Intent::KeepHistory(rule) if before.kept != after.kept => {
                let indexed = after.kept.clone().unwrap_or_default().indexed;
                Ok(vec![Event::HistorySet { rule: rule.clone(), indexed }])
            }
            Intent::KeepHistory(_) => Ok(Vec::new()),
            Intent::Look { .. } | Intent::Limit | Intent::Unblock(_) => Ok(Vec::new()),
            Intent::Divide if before.division == after.division => Ok(Vec::new()),
            Intent::Divide => Ok(after.division.map(Event::Divided).into_iter().collect()),
            Intent::Freeze(_) if before.frozen == after.frozen => Ok(Vec::new()),
            Intent::Freeze(_) => Ok(vec![Event::Froze(after.frozen)]),
        }
    }
}
