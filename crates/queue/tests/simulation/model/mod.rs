//! The queue in memory: what every promise of the layer comes to, as a state that events move.
//!
//! An event says what a committed transaction wanted and what it chose; the model says whether that is legal, and what the
//! database must then hold. It knows nothing of keys, conflicts or retries.

mod answers;
mod batches;
mod change;
mod division;
mod ends;
mod event;
mod expiry;
mod joins;
mod life;
mod line;
mod push;
pub(crate) mod schedules;
mod settle;
mod sweep;
mod take;

use std::collections::{BTreeMap, BTreeSet};

use kvqueue_queue::item_batch::{BatchId, Join};
use kvqueue_queue::{ItemId, Kind, LeaseId, Progress, SessionId, Stamp};

pub(crate) use batches::counts as batch_counts;
pub(crate) use event::{At, Event, HistoryRule, ItemChanged, Sweeping, Terms};
pub(crate) use life::Place;
pub(crate) use line::PICK_UP;

use crate::image::schedules::Schedule;
use crate::image::{Cancelled, Counters, Division, Held, HeldItem, Image, Stored, Want};
use crate::world::Millis;
use batches::{Batches, Members};
use ends::Ends;
use life::{Item, Was};
use take::Waiting;

/// Whether a promise was kept; if not, which, and how.
pub(crate) type Verdict = Result<(), String>;

/// Says that a promise was broken, unless a condition holds.
macro_rules! promise {
    ($holds:expr, $($how:tt)*) => {
        if !$holds {
            return Err(format!($($how)*));
        }
    };
}
pub(crate) use promise;

/// The queue in memory.
#[derive(Debug)]
pub(crate) struct Model {
    kind: Kind,
    /// All items there ever were.
    items: BTreeMap<ItemId, Item>,
    /// The leases that are held.
    leases: BTreeMap<LeaseId, Lease>,
    /// What was handed out on every lease there ever was.
    handed: BTreeMap<LeaseId, Vec<(ItemId, Stored)>>,
    /// Which items of a lease were settled when it was taken away.
    lost: BTreeMap<LeaseId, Vec<bool>>,
    /// What is known of items that were cancelled on leases.
    cancelled: BTreeMap<LeaseId, Cancelled>,
    /// The indexes of all items that were ever cancelled on a lease.
    cancelled_on: BTreeMap<LeaseId, BTreeSet<usize>>,
    /// The items that the transaction whose events are coming has moved.
    touched: BTreeSet<ItemId>,
    /// All batches whose callbacks come here, gone ones included.
    batches: Batches,
    /// The members of batches that the transaction whose events are coming has pushed and ended.
    members: Members,
    /// The batches that each item of a lease has joined there, of every lease that there ever was.
    joined_on: BTreeMap<(LeaseId, ItemId), Vec<BatchId>>,
    /// What the transaction whose events are coming makes of items that are to join a batch.
    joins: BTreeMap<ItemId, Join>,
    /// The items that have ended, and how long they are kept.
    ends: Ends,
    /// The rows of what is over at a time.
    expiry: BTreeMap<(Millis, ItemId), Vec<u8>>,
    /// Which item there is under a unique key.
    unique: BTreeMap<Vec<u8>, ItemId>,
    /// Until when, in true time, the holder of a lease may rely on it, by its own clock and the answers that it got.
    beliefs: BTreeMap<LeaseId, u64>,
    /// Operations that are remembered, and when they were committed.
    operations: BTreeMap<Vec<u8>, (At, Vec<ItemId>)>,
    /// The requests to be served, in their order.
    line: BTreeMap<Stamp, Want>,
    /// The last attempt of each session that took or asked.
    attempts: BTreeMap<SessionId, u64>,
    counters: Counters,
    /// How the queue was divided, and from which version on.
    divisions: Vec<(u64, Division)>,
    schedules: BTreeMap<String, Schedule>,
    /// The nominal times that have fired of each schedule that is there.
    fired: BTreeMap<String, BTreeSet<Millis>>,
    /// Schedules of whose occurrences a sweeper has accounted for some.
    accounted: BTreeSet<String>,
    /// The version of the commit that froze the queue, while it is frozen.
    frozen: Option<u64>,
    /// What takes saw after each commit, with its version.
    past: Vec<(u64, Seen)>,
    /// The version of each commit, and the true time.
    times: Vec<(u64, u64)>,
    /// What the transaction took whose events are coming.
    taken: BTreeSet<ItemId>,
    /// How many takes passed items over.
    pub(crate) jumps: u64,
    /// How many takes had items of a partition from 1 on.
    pub(crate) parted: u64,
    /// How many unique keys were free after their time, and how many pushes took over the key of an item that ran or had ended.
    pub(crate) keys_freed: u64,
    pub(crate) keys_taken_over: u64,
    /// How many members of batches have ended here.
    pub(crate) member_ends: u64,
    /// How many items ended on the lease on which they had joined a batch, and how many came back from it.
    pub(crate) joined_ends: u64,
    pub(crate) joined_returns: u64,
    /// How often a holder kept a lease whose deadline was past, since it came in time by its own clock.
    pub(crate) spared: u64,
    /// How often an operator took the mark of a schedule back.
    pub(crate) taken_back: u64,
}

/// What takes see of a queue.
#[derive(Debug, Default)]
struct Seen {
    /// The ready items, in the order in which they are taken.
    waiting: Vec<Waiting>,
    /// The requests to be served.
    line: Vec<Stamp>,
}

/// A lease that is held.
#[derive(Debug)]
struct Lease {
    /// Written by one who served another, and that other has not been heard of since.
    served: bool,
    deadline: u64,
    length: u64,
    /// What is not settled yet is stored with the lease.
    items: Vec<(ItemId, Option<Stored>)>,
    /// What is stored of how far its items are.
    progress: Option<BTreeMap<usize, Progress>>,
}

impl Model {
    pub(crate) fn new(kind: Kind) -> Model {
        Model {
            kind,
            items: BTreeMap::new(),
            leases: BTreeMap::new(),
            handed: BTreeMap::new(),
            lost: BTreeMap::new(),
            cancelled: BTreeMap::new(),
            cancelled_on: BTreeMap::new(),
            touched: BTreeSet::new(),
            batches: Batches::default(),
            members: Members::default(),
            joined_on: BTreeMap::new(),
            joins: BTreeMap::new(),
            ends: Ends::default(),
            expiry: BTreeMap::new(),
            unique: BTreeMap::new(),
            beliefs: BTreeMap::new(),
            operations: BTreeMap::new(),
            line: BTreeMap::new(),
            attempts: BTreeMap::new(),
            counters: Counters::default(),
            divisions: Vec::new(),
            schedules: BTreeMap::new(),
            fired: BTreeMap::new(),
            accounted: BTreeSet::new(),
            frozen: None,
            past: vec![(0, Seen::default())],
            times: Vec::new(),
            taken: BTreeSet::new(),
            jumps: 0,
            parted: 0,
            keys_freed: 0,
            keys_taken_over: 0,
            member_ends: 0,
            joined_ends: 0,
            joined_returns: 0,
            spared: 0,
            taken_back: 0,
        }
    }

    /// What the events of a transaction make of the queue; an error if they break a promise.
    pub(crate) fn on(&mut self, events: &[Event], at: At) -> Verdict {
        self.taken.clear();
        events.iter().try_for_each(|event| self.apply(event, at))?;
        for id in std::mem::take(&mut self.touched) {
            if let Some(item) = self.items.get_mut(&id) {
                let (state, batches) = (item.state(), item.meta.batches.clone());
                item.past.push(Was { since: at.commit, state, batches });
            }
        }
        self.times.push((at.commit, at.time));
        self.past
            .push((at.commit, Seen { waiting: self.waiting(), line: self.line.keys().copied().collect() }));
        Ok(())
    }

    fn apply(&mut self, event: &Event, at: At) -> Verdict {
        match event {
            Event::Pushed { items, replaced, operation } => {
                replaced.iter().try_for_each(|(id, new)| self.replaced(id, new))?;
                self.pushed(items, operation.as_deref(), at)
            }
            Event::Leased { lease, items, terms, served } => self.leased(*lease, items, *terms, *served, at),
            Event::Taken { items, terms, served } => self.taken_for_good(items, *terms, *served, at),
            Event::Froze(frozen) => {
                self.frozen = frozen.then(|| self.frozen.unwrap_or(at.commit));
                Ok(())
            }
            Event::Divided(division) => self.divided(*division, at),
            Event::Asked(stamp, want) => self.asked(*stamp, *want, at),
            Event::Left(stamp) => self.left(*stamp),
            Event::Overdue(stamp) => self.overdue(*stamp, at),
            Event::PickedUp(lease) => self.picked_up(*lease),
            Event::TakenUp(lease) => self.taken_up(*lease, at),
            Event::Settled { lease, settlements, with_effects } => {
                self.settled(*lease, settlements, *with_effects, at)
            }
            Event::Progressed { lease, news } => self.progressed(*lease, news),
            Event::Expired { lease, due, by } => self.expired(*lease, due, *by, at),
            Event::Promoted { items, by } => self.promoted(items, *by),
            Event::Schedule { name, now, change, .. } => self.changed(name, *now, change, at),
            Event::Fired(sweep) => self.fired(sweep, at),
            Event::ItemsExpired { rows, gone, dead, by } => self.items_expired(rows, gone, dead, *by),
            Event::LettersRemoved { items, by } => self.letters_removed(items, *by),
            Event::Forgotten { operations, by } => self.forgotten(operations, *by, at),
            Event::Revived(items) => items.iter().try_for_each(|id| self.revived(id)),
            Event::Deleted(id) => self.deleted(id),
            Event::CancelledAll(items) => items
                .iter()
                .try_for_each(|(id, from)| self.item_changed(id, *from, &ItemChanged::Cancelled, at)),
            Event::ItemChanged { id, from, what } => self.item_changed(id, *from, what, at),
            Event::CancelledForgotten { lease, by_holder } => {
                self.cancelled_forgotten(*lease, *by_holder, at)
            }
            Event::BatchMade { id, new, now } => self.batch_made(id, new, *now),
            Event::BatchCommitted { id, now } => self.batch_committed(id, *now, at),
            Event::BatchCancelled(id) => self.batch_cancelled(id),
            Event::Joined { id, items } => self.joined(id, items, at),
            Event::BatchesSeen { closed, unmarked, by } => self.batches_seen(closed, unmarked, *by, at),
            Event::HistorySet { rule, indexed } => self.history_set(rule, indexed, at),
            Event::HistoryCleared { to, by } => self.history_cleared(*to, *by, at),
            Event::Purged(items) => items.iter().try_for_each(|id| self.moved(id, Place::Purged).map(drop)),
        }
    }

    /// Moves an item along the diagram of its life.
    fn moved(&mut self, id: &ItemId, next: Place) -> Result<&mut Item, String> {
        let item = self.items.get_mut(id).ok_or_else(|| format!("{id} was invented"))?;
        let from = item.place.clone();
        item.becomes(next).map_err(|how| format!("{id}: {how}"))?;
        self.touched.insert(id.clone());
        match (&from, &item.place) {
            (_, Place::Ready) => self.counters.npush += 1,
            (Place::Ready, _) => self.counters.npop += 1,
            _ => {}
        }
        if std::mem::take(&mut item.has_joined) {
            self.joined_ends += u64::from(item.place.is_end());
            self.joined_returns += u64::from(!item.place.is_end());
        }
        match item.place {
            Place::Done => self.counters.ndone += 1,
            Place::Later(_) => self.counters.nlater += 1,
            _ => {}
        }
        self.counters.ndue += u64::from(matches!(from, Place::Later(_)));
        let is_back =
            matches!((&from, &item.place), (Place::Leased(_) | Place::Dead, Place::Ready | Place::Later(_)));
        self.counters.nback += u64::from(is_back);
        // Once it is gone from there, the key is free, unless it is taken for a time and the item is done or was taken for good.
        let is_kept = item.meta.unique_until.is_some() && matches!(item.place, Place::Done | Place::Taken);
        if let Some(key) = item.meta.unique.as_ref().filter(|_| !item.place.is_unique() && !is_kept)
            && self.unique.get(key) == Some(id)
        {
            self.unique.remove(key);
        }
        if let Some(code) = batches::ending(&from, &item.place) {
            self.ends.note(id, code, item.place == Place::Purged);
            for batch in &item.meta.batches {
                self.members.end(batch, code);
                self.member_ends += 1;
            }
        }
        if item.place == Place::Dead {
            // If it is tried again, it does not end once more.
            item.meta.batches.clear();
        }
        if item.place.is_end() {
            let frees_key = !matches!(item.place, Place::Done | Place::Taken);
            expiry::cleared(&mut self.expiry, id, &item.meta, frees_key);
        }
        Ok(item)
    }

    /// What the database must hold.
    pub(crate) fn image(&self) -> Image {
        let mut image = Image { counters: self.counters, unique: self.unique.clone(), ..Image::default() };
        for (id, item) in &self.items {
            let stored = || item.stored();
            match &item.place {
                Place::Ready => drop(image.ready.insert(id.clone(), stored())),
                Place::Later(due) => drop(image.later.insert((*due, id.clone()), stored())),
                Place::Dead => {
                    image.counters.ndead += 1;
                    image.dead.insert(id.clone(), stored());
                }
                Place::Leased(_)
                | Place::Done
                | Place::Taken
                | Place::Purged
                | Place::Cancelled
                | Place::Expired => {}
            }
            if item.effects > 0 {
                image.effects.insert(id.clone(), item.effects);
            }
        }
        image.leases = self.leases.iter().map(|(id, lease)| (*id, lease.held())).collect();
        let added = |(name, (_, items)): (&Vec<u8>, &(At, Vec<ItemId>))| (name.clone(), items.len() as u32);
        image.operations = self.operations.iter().map(added).collect();
        image.line = self.line.clone();
        image.cancelled = self.cancelled.clone();
        image.kept = self.ends.kept().cloned();
        image.ended = self.ends.ended.clone();
        image.batches = self.batches.there.clone();
        image.expiry = self.expiry.clone();
        image.frozen = self.frozen.is_some();
        image.schedules = self.schedules.clone();
        image.division = self.divisions.last().map(|(_, division)| *division);
        image
    }
}

impl Lease {
    fn held(&self) -> Held {
        let item = |(id, stored): &(ItemId, Option<Stored>)| HeldItem {
            id: id.clone(),
            settled: stored.is_none(),
            stored: stored.clone(),
        };
        let items = self.items.iter().map(item).collect();
        let progress = self.progress.clone();
        Held { served: self.served, deadline: self.deadline, length: self.length, items, progress }
    }
}
