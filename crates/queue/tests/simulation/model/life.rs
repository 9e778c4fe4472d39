//! The life of an item, as docs/guarantees/life.md draws it.
//!
//! ```text
//!        push                            push for later
//!          │                                   │
//!          ▼          its time comes           ▼
//!   ┌──► ready ◄─────────────────────────── later
//!   │      │  └────── take for good ──► taken  ▲
//!   │      │ take on a lease              ▲    │
//!   │      ▼                              │    │
//!   ├── leased ──── for one who asked ────┘    │
//!   │      │ ├──────── retry at a time ────────┘
//!   │      │ └──────── finish ──► done
//!   │      │ dead
//!   │      ▼
//!   └─── dead ──── purge ──► purged
//! ```
//! From leased to ready lead a release, a retry at once, and the end of the lease; from dead to ready an operator. An
//! operator also deletes what is ready or waits: it is purged then. And an operator cancels all but dead letters, puts off what is ready,
//! and gives what waits another time. What waits, and
//! was not begun, expires.

use kvqueue_queue::item_batch::BatchId;
use kvqueue_queue::{Failure, ItemState, LeaseId, MAX_FAILURES, Meta, NewItem, from_millis, millis};

use super::{Verdict, promise};
use crate::image::Stored;
use crate::world::Millis;

/// Where an item is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    Ready,
    Leased(LeaseId),
    Later(Millis),
    Dead,
    /// Finished, for ever.
    Done,
    /// Handed to a taker that owes nobody an answer.
    Taken,
    /// Deleted by an operator.
    Purged,
    /// Cancelled by an operator.
    Cancelled,
    /// No attempt had begun by the time at which it expired.
    Expired,
}

impl Place {
    /// Whether nothing more becomes of it by itself.
    pub(crate) fn is_end(&self) -> bool {
        matches!(
            self,
            Place::Done | Place::Taken | Place::Purged | Place::Cancelled | Place::Expired | Place::Dead
        )
    }

    /// Whether an item there is the only one of its unique key.
    pub(super) fn is_unique(&self) -> bool {
        matches!(self, Place::Ready | Place::Leased(_) | Place::Later(_))
    }

    fn leads_to(&self, next: &Place) -> bool {
        match self {
            Place::Ready => !matches!(next, Place::Ready | Place::Done),
            Place::Leased(_) => !matches!(next, Place::Leased(_) | Place::Purged),
            Place::Later(_) => !matches!(next, Place::Leased(_) | Place::Taken | Place::Done),
            Place::Dead => matches!(next, Place::Ready | Place::Purged),
            Place::Done | Place::Taken | Place::Purged | Place::Cancelled | Place::Expired => false,
        }
    }
}

/// An item, with all that is known of it.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) payload: Vec<u8>,
    /// The payload that it was pushed with.
    pub(super) original: Vec<u8>,
    pub(super) place: Place,
    pub(super) meta: Meta,
    /// How often its effect was written by handlers whose delivery is exactly-once.
    pub(super) effects: u64,
    /// What it was, in the order of versions.
    pub(super) past: Vec<Was>,
    /// Whether it has joined a batch on the lease that it is on.
    pub(super) has_joined: bool,
}

/// What an item was from a version on.
#[derive(Debug)]
pub(super) struct Was {
    pub(super) since: u64,
    /// `None`: it was gone.
    pub(super) state: Option<ItemState>,
    pub(super) batches: Vec<BatchId>,
}

impl Item {
    pub(super) fn new(new: &NewItem) -> Item {
        let mut meta = Meta::default();
        meta.attributes.clone_from(&new.attributes);
        meta.content_type.clone_from(&new.content_type);
        meta.trace_parent.clone_from(&new.trace_parent);
        meta.enqueued_at = new.enqueued_at;
        meta.unique.clone_from(&new.unique);
        meta.expires = new.expires;
        meta.batches = new.batch.iter().cloned().collect();
        meta.unique_until = new.unique_until;
        let place = new.due.map_or(Place::Ready, |due| Place::Later(millis(due)));
        let payload = new.payload.to_vec();
        Item {
            original: payload.clone(),
            payload,
            place,
            meta,
            effects: 0,
            past: Vec::new(),
            has_joined: false,
        }
    }

    /// What it was at a version, if it was pushed by then.
    pub(super) fn then(&self, version: u64) -> Option<&Was> {
        let last = self.past.partition_point(|was| was.since <= version).checked_sub(1)?;
        self.past.get(last)
    }

    /// Moves it along the diagram.
    pub(super) fn becomes(&mut self, next: Place) -> Verdict {
        promise!(self.place.leads_to(&next), "what is {:?} became {next:?}", self.place);
        self.place = next;
        Ok(())
    }

    /// Its attempt failed: that is spent.
    pub(super) fn failed(&mut self, failure: &Failure) {
        self.meta.attempts += 1;
        self.note(failure);
    }

    fn note(&mut self, failure: &Failure) {
        self.meta.failures.push(failure.clone());
        if self.meta.failures.len() > MAX_FAILURES {
            self.meta.failures.remove(0);
        }
    }

    /// It expired before its first attempt, and is a dead letter.
    pub(super) fn expired(&mut self, at: Millis) {
        // Words are not what this is about: in the image there are none of the layer's.
        let failure = Failure::new(from_millis(at), 0, "");
        self.note(&failure);
        self.meta.death = Some(failure);
    }

    /// Its state, as people name it.
    pub(super) fn state(&self) -> Option<ItemState> {
        match self.place {
            Place::Ready => Some(ItemState::Ready),
            Place::Leased(_) => Some(ItemState::Running),
            Place::Later(_) if self.meta.attempts > 0 => Some(ItemState::Retrying),
            Place::Later(_) => Some(ItemState::Scheduled),
            Place::Dead => Some(ItemState::Dead),
            Place::Done | Place::Taken | Place::Purged | Place::Cancelled | Place::Expired => None,
        }
    }

    /// What is stored of it.
    pub(super) fn stored(&self) -> Stored {
        Stored { payload: self.payload.clone(), meta: self.meta.clone() }
    }
}
