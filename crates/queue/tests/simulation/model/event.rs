//! What can happen to a queue.

use std::collections::BTreeMap;

use kvqueue_queue::item_batch::{BatchId, NewBatch};
use kvqueue_queue::{ItemId, ItemOutcome, ItemState, LeaseId, NewItem, OnExpiry, Progress, Stamp};

use super::schedules::{Change, Sweep};
use crate::image::schedules::Record;
use crate::image::{Division, Want};
use crate::world::Millis;

/// When it happened, in database versions, and in true time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct At {
    /// What the transaction has read is of this version.
    pub(crate) read: u64,
    /// It committed at this one.
    pub(crate) commit: u64,
    /// The true time, in microseconds.
    pub(crate) time: u64,
    /// What a clock on a wall said, and how much such clocks had been set until then, in milliseconds.
    pub(crate) clock: Millis,
    pub(crate) turns: u64,
}

/// What is to be kept of ended items.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HistoryRule {
    /// For how many milliseconds.
    pub(crate) kept: Millis,
    /// By which attributes they are to be indexed.
    pub(crate) names: Vec<String>,
    /// The time by the worker's clock when the operation begins, and how much clocks on walls had been set until then.
    pub(crate) now: Millis,
    pub(crate) turns: u64,
}

/// What a committed transaction did; one may have done several of these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// Items came, perhaps none, and others that waited were replaced; under the name of an operation, if they have one.
    Pushed { items: Vec<(ItemId, NewItem)>, replaced: Vec<(ItemId, NewItem)>, operation: Option<Vec<u8>> },
    /// Items were taken on a lease, perhaps to serve a request.
    Leased { lease: LeaseId, items: Vec<ItemId>, terms: Terms, served: Option<Stamp> },
    /// Items were taken for good, perhaps to serve a request.
    Taken { items: Vec<ItemId>, terms: Terms, served: Option<Stamp> },
    /// Somebody asked to be served.
    Asked(Stamp, Want),
    /// A request left the line without being served.
    Left(Stamp),
    /// A request was cleared that nobody had served in time.
    Overdue(Stamp),
    /// What somebody was served with, who takes for good, has reached it.
    PickedUp(LeaseId),
    /// What somebody was served with, who takes on a lease, has reached it.
    TakenUp(LeaseId),
    /// A holder settled items of its lease, by their index, or only extended it.
    Settled { lease: LeaseId, settlements: Vec<(usize, ItemOutcome)>, with_effects: bool },
    /// With an extension the holder said how far items are, by their indexes.
    Progressed { lease: LeaseId, news: Vec<(usize, Progress)> },
    /// A lease was taken away.
    /// Those of its items that are to wait come with the time that they wait for.
    Expired { lease: LeaseId, due: BTreeMap<ItemId, Millis>, by: Sweeping },
    /// Items whose time had come were made ready.
    Promoted { items: Vec<(Millis, ItemId)>, by: Sweeping },
    /// The time of these rows had come, and their items expired: some left the queue, others became dead letters. The rest of the rows meant nothing any more.
    ItemsExpired { rows: Vec<(Millis, ItemId)>, gone: Vec<ItemId>, dead: Vec<ItemId>, by: Sweeping },
    /// Dead letters were removed that were old.
    LettersRemoved { items: Vec<ItemId>, by: Sweeping },
    /// Operations were forgotten.
    Forgotten { operations: Vec<Vec<u8>>, by: Sweeping },
    /// Dead letters became items again.
    Revived(Vec<ItemId>),
    /// Dead letters were deleted.
    Purged(Vec<ItemId>),
    /// An item was deleted that was ready, or waited for its time.
    Deleted(ItemId),
    /// Items of these states were cancelled together, by what was asked for.
    CancelledAll(Vec<(ItemId, ItemState)>),
    /// An operator changed an item of this state.
    ItemChanged { id: ItemId, from: ItemState, what: ItemChanged },
    /// What was cancelled on a lease is not known any more; its holder has seen to that.
    CancelledForgotten { lease: LeaseId, by_holder: bool },
    /// A batch was made, by a clock that said `now`.
    BatchMade { id: BatchId, new: Box<NewBatch>, now: Millis },
    /// A batch gets no more members, since a clock said `now`.
    BatchCommitted { id: BatchId, now: Millis },
    /// A batch was removed without calling back.
    BatchCancelled(BatchId),
    /// Items that are in the queue, or were there, joined a batch.
    Joined { id: BatchId, items: Vec<ItemId> },
    /// A sweeper looked at batches. Some called back with these items, of others the marks were cleared.
    BatchesSeen { closed: Vec<(BatchId, ItemId)>, unmarked: Vec<BatchId>, by: Sweeping },
    /// A new rule for ended items was stored, with `indexed` as its attributes.
    HistorySet { rule: HistoryRule, indexed: BTreeMap<String, u64> },
    /// A sweeper cleared what had ended before this minute; or all of it, and the setting.
    HistoryCleared { to: Option<u64>, by: Sweeping },
    /// The queue was frozen, or goes on.
    Froze(bool),
    /// The queue was divided into partitions, or into another number of them.
    Divided(Division),
    /// An operator changed a schedule, by a clock that said `now`, and recorded this.
    Schedule { name: String, now: Millis, change: Change, records: Vec<Record> },
    /// A sweeper fired schedules, or found that they have nothing to fire.
    Fired(Sweep),
}

/// What an operator does to an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ItemChanged {
    Cancelled,
    /// It is to be ready at this time, or now.
    Rescheduled(Option<Millis>),
    /// It is a dead letter no more.
    Retried,
    /// It has this payload.
    Edited(Vec<u8>),
}

impl ItemChanged {
    /// What it is called where events are counted.
    fn name(&self, from: ItemState) -> &'static str {
        match (self, from) {
            (ItemChanged::Cancelled, ItemState::Ready) => "a ready item is cancelled",
            (ItemChanged::Cancelled, ItemState::Running) => "a running item is cancelled",
            (ItemChanged::Cancelled, _) => "a waiting item is cancelled",
            (ItemChanged::Rescheduled(None), _) => "a waiting item is made ready",
            (ItemChanged::Rescheduled(Some(_)), ItemState::Ready) => "a ready item is put off",
            (ItemChanged::Rescheduled(Some(_)), _) => "a waiting item gets another time",
            (ItemChanged::Retried, _) => "a dead letter is retried by its id",
            (ItemChanged::Edited(_), ItemState::Ready) => "a ready item gets another payload",
            (ItemChanged::Edited(_), ItemState::Dead) => "a dead letter gets another payload",
            (ItemChanged::Edited(_), _) => "a waiting item gets another payload",
        }
    }
}

impl Event {
    /// What it is called where events are counted.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Event::Pushed { .. } => "items are pushed",
            Event::Leased { served: None, .. } => "items are leased",
            Event::Leased { served: Some(_), .. } => "a request is served with a lease",
            Event::Taken { served: None, .. } => "items are taken for good",
            Event::Taken { served: Some(_), .. } => "a session serves its own request for good",
            Event::Asked(..) => "a request is made",
            Event::Left(_) => "a request leaves the line",
            Event::Overdue(_) => "a request is cleared that nobody served",
            Event::PickedUp(_) => "a session picks up what it was served with for good",
            Event::TakenUp(_) => "a session takes up the lease that it was served with",
            Event::Settled { settlements, .. } => match settlements.first() {
                None => "a lease is extended",
                Some((_, ItemOutcome::Done | ItemOutcome::DoneWith(_))) => "an item is finished",
                Some((_, ItemOutcome::Release)) => "an item is released",
                Some((_, ItemOutcome::Throttle { .. })) => "a handler throttles",
                Some((_, ItemOutcome::Postpone { .. })) => "an item is postponed",
                Some((_, ItemOutcome::Retry { due: None, .. })) => "an item is retried at once",
                Some((_, ItemOutcome::Retry { due: Some(_), .. })) => "an item is retried later",
                Some((_, ItemOutcome::Dead(_))) => "an item is declared dead",
                Some((_, ItemOutcome::Expired { .. })) => "a holder finds an item expired",
            },
            Event::Progressed { .. } => "a holder says how far items are",
            Event::Expired { .. } => "a lease runs out",
            Event::Promoted { .. } => "items become due",
            Event::ItemsExpired { dead, .. } if !dead.is_empty() => "expired items become dead letters",
            Event::ItemsExpired { gone, .. } if !gone.is_empty() => "items expire",
            Event::ItemsExpired { .. } => "rows of expiries are cleared whose items do not expire",
            Event::LettersRemoved { .. } => "old dead letters are removed",
            Event::Forgotten { .. } => "operations are forgotten",
            Event::Revived(_) => "dead letters are revived",
            Event::Purged(_) => "dead letters are purged",
            Event::Deleted(_) => "an item is deleted",
            Event::CancelledAll(_) => "items are cancelled together",
            Event::ItemChanged { from, what, .. } => what.name(*from),
            Event::CancelledForgotten { by_holder: true, .. } => {
                "a holder clears what was cancelled on its lease"
            }
            Event::CancelledForgotten { .. } => "an old record of cancelled items is cleared",
            Event::BatchMade { .. } => "a batch is made",
            Event::BatchCommitted { .. } => "a batch is committed",
            Event::BatchCancelled(_) => "a batch is cancelled",
            Event::Joined { .. } => "items join a batch",
            Event::BatchesSeen { closed, .. } if !closed.is_empty() => "batches call back",
            Event::BatchesSeen { .. } => "a mark is cleared of a batch that goes on",
            Event::HistorySet { rule, .. } if rule.kept == 0 => "a history is turned off",
            Event::HistorySet { .. } => "a history is turned on, or gets another time",

            Event::HistoryCleared { to: Some(_), .. } => "old ended items are cleared",
            Event::HistoryCleared { to: None, .. } => "a history is cleared",
            Event::Froze(true) => "the queue is frozen",
            Event::Froze(false) => "the queue goes on",
            Event::Divided(_) => "the queue is divided",
            Event::Schedule { change, .. } => change.name(),
            Event::Fired(_) => "a sweep fires schedules",
        }
    }
}

/// What a taker asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Terms {
    /// The most items.
    pub(crate) k: usize,
    /// The lease's length in versions.
    pub(crate) length: u64,
    /// Whether the first items are wanted, and no others.
    pub(crate) front: bool,
    /// How often an item may have crashed.
    pub(crate) crashes: u32,
}

/// By what rules, and at what time, a sweeper works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sweeping {
    /// What its clock says.
    pub(crate) now: Millis,
    pub(crate) max_attempts: u32,
    /// How long an item waits after the first crash, in milliseconds, or up to half as long. Each further attempt doubles it.
    pub(crate) pause: Millis,
    /// How long operations are kept, in versions.
    pub(crate) kept: u64,
    /// How long dead letters are kept, in milliseconds; `None`: until somebody decides about them.
    pub(crate) letters_kept: Option<Millis>,
    /// What becomes of items that expire.
    pub(crate) on_expiry: OnExpiry,
    /// The true time when the clock said that, in microseconds.
    pub(crate) since: u64,
}
