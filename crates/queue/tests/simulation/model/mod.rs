//! The queue in memory: what every promise of the layer comes to, as a state that events move.
//!
//! An event says what a committed transaction wanted and what it chose; the model says whether that is legal, and what the
//! database must then hold. It knows nothing of keys, conflicts or retries.
//!
//! | file | what |
//! |---|---|
//! | `event` | what can happen |
//! | `life` | the life of an item, and its record |
//! | `take` | which items a take may have |
//! | `settle` | what holders of leases may do |
//! | `answers` | what it says to those who ask |

mod answers;
mod event;
mod life;
mod settle;
mod take;

use std::collections::BTreeMap;

use kvqueue_queue::{ItemId, Kind, LeaseId};

pub(crate) use event::{At, Event, NewItem, Terms};
pub(crate) use life::Place;

use crate::image::{Counters, Held, HeldItem, Image, Stored};
use life::Item;

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
    /// Those that are held.
    leases: BTreeMap<LeaseId, Lease>,
    /// What was handed out on every lease there ever was.
    handed: BTreeMap<LeaseId, Vec<(ItemId, Stored)>>,
    /// Which items of a lease were settled when it was taken away.
    lost: BTreeMap<LeaseId, Vec<bool>>,
    counters: Counters,
    /// The ready items after each commit, in the order in which they are taken, with the version of the commit.
    past: Vec<(u64, Vec<Waiting>)>,
}

/// A ready item, as takes see it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Waiting {
    id: ItemId,
    /// A worker may have died of it.
    suspect: bool,
}

/// A lease that is held.
#[derive(Debug)]
struct Lease {
    deadline: u64,
    length: u64,
    items: Vec<(ItemId, Option<Stored>)>,
}

impl Model {
    pub(crate) fn new(kind: Kind) -> Model {
        Model {
            kind,
            items: BTreeMap::new(),
            leases: BTreeMap::new(),
            handed: BTreeMap::new(),
            lost: BTreeMap::new(),
            counters: Counters::default(),
            past: vec![(0, Vec::new())],
        }
    }

    /// What an event makes of the queue; an error if it breaks a promise.
    pub(crate) fn on(&mut self, event: &Event, at: At) -> Verdict {
        match event {
            Event::Pushed(items) => self.pushed(items)?,
            Event::Leased { lease, items, terms } => self.leased(*lease, items, *terms, at)?,
            Event::Taken { items, terms } => self.taken(items, *terms, at)?,
            Event::Settled { lease, settlements, with_effects } => {
                self.settled(*lease, settlements, *with_effects, at)?;
            }
            Event::Nothing => {}
        }
        self.past.push((at.commit, self.waiting()));
        Ok(())
    }

    fn pushed(&mut self, items: &[(ItemId, NewItem)]) -> Verdict {
        for (id, new) in items {
            promise!(!self.items.contains_key(id), "{id} was pushed twice");
            let last = self.items.keys().next_back();
            promise!(
                self.kind != Kind::Fifo || last < Some(id),
                "{id} was pushed before {last:?}, which is older"
            );
            self.items.insert(id.clone(), Item::new(new));
            self.counters.npush += 1;
        }
        Ok(())
    }

    /// The ready items in the order in which they are taken.
    fn waiting(&self) -> Vec<Waiting> {
        let ready = self.items.iter().filter(|(_, item)| item.place == Place::Ready);
        ready.map(|(id, item)| Waiting { id: id.clone(), suspect: item.meta.crashes > 0 }).collect()
    }

    /// What the database must hold.
    pub(crate) fn image(&self) -> Image {
        let mut image = Image { counters: self.counters, ..Image::default() };
        for (id, item) in &self.items {
            let stored = || item.stored();
            match &item.place {
                Place::Ready => drop(image.ready.insert(id.clone(), stored())),
                Place::Later(due) => drop(image.later.insert((*due, id.clone()), stored())),
                Place::Dead => {
                    image.counters.ndead += 1;
                    image.dead.insert(id.clone(), stored());
                }
                Place::Leased(_) | Place::Done | Place::Taken => {}
            }
            if item.effects > 0 {
                image.effects.insert(id.clone(), item.effects);
            }
            if let Some(key) = item.meta.unique.as_ref().filter(|_| item.place.is_unique()) {
                image.unique.insert(key.clone(), id.clone());
            }
        }
        image.leases = self.leases.iter().map(|(id, lease)| (*id, lease.held())).collect();
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
        Held { deadline: self.deadline, length: self.length, items: self.items.iter().map(item).collect() }
    }
}
