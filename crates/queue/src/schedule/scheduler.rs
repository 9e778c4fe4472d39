//! Looks that fire what is due.

use std::collections::BTreeSet;

use foundationdb::{Database, Transaction};

use super::{Calendars, OccurrenceRecord};
use crate::error::QueueError;
use crate::id::ItemId;
use crate::marked::{Act, Body, Marked};
use crate::meta::Millis;
use crate::ops::schedule::change::{ByHandEffect, fire_by_hand};
use crate::ops::schedule::look::{self, LookAt};
use crate::ops::schedule::read;
use crate::queue::Queue;
use crate::retry::{RetryError, RetryPolicy, run};
use crate::rng::Rng;
use crate::session::SessionId;

/// The most transactions of one look.
const PAGES: usize = 100;

/// What became of a schedule in a look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Looked {
    /// The schedule's name.
    pub schedule: String,
    /// What became of its occurrences. Nothing, if one of them waits for the end of the last item.
    pub records: Vec<OccurrenceRecord>,
}

/// The result of a look.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Look {
    /// The schedules that were due. One may be in it several times, if it had more to fire than a transaction holds.
    pub looked: Vec<Looked>,
    /// Schedules that are due, and that this version or these calendars cannot read, or whose items a queue of this kind cannot have.
    /// They stay as they are.
    pub unreadable: BTreeSet<String>,
    /// When the next look is due, in milliseconds since 1970 by the clock of this one; `None` if no schedule has a next time.
    pub next: Option<Millis>,
    /// More is due now: look again at once.
    pub more: bool,
}

/// The effect of [`Scheduler::fire`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ByHand {
    /// The item was pushed.
    Fired {
        /// The item; `None` if its record is gone already.
        id: Option<ItemId>,
    },
    /// Nothing was pushed: the last item has not ended, and the schedule's items may not overlap.
    Overlaps,
    /// There is no schedule of this name.
    Gone,
}

/// Fires the schedules of one queue. Any number of processes may do so: each occurrence is fired by one of them.
///
/// It has a token slot in the queue, by which it finds out the outcome of a commit if it is unknown. [`Scheduler::close`] clears the slot.
/// A scheduler that is dropped leaves its slot for a day, as a [`Session`](crate::Session) does, so keep one and use it again.
#[derive(Debug)]
pub struct Scheduler {
    queue: Queue,
    marked: Marked,
    rng: Rng,
}

impl Scheduler {
    /// A scheduler with a new id.
    pub fn new(queue: Queue) -> Scheduler {
        Scheduler::with_id(queue, SessionId::new())
    }

    /// A scheduler with an id of the caller's; see [`SessionId`] for what that has to be.
    pub fn with_id(queue: Queue, id: SessionId) -> Scheduler {
        Scheduler { marked: Marked::new(queue.clone(), id), queue, rng: Rng::of(id) }
    }

    /// The queue.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Fires what is due at `now`, in milliseconds since 1970: at most 50 schedules and about 100 items or 1 MiB in a transaction, and at
    /// most 100 transactions. A queue without schedules costs two reads.
    ///
    /// `now` is the time of the process that looks. Every nominal time fires once at most: a look by a clock that is behind finds
    /// nothing to do. After a look by a clock that was more than an hour ahead, a look by a right one fires what the first one passed over
    /// (`docs/decisions/0040-schedules.md`). Looks that overlap conflict, and all but one find nothing left to do.
    ///
    /// # Errors
    /// [`QueueError::Frozen`] if something is due and the queue is frozen; [`QueueError::OtherKind`], and what a push fails with. What
    /// transactions before have fired stays fired. If the look is given up, or dropped, what its last transaction did is not returned, but
    /// it is in the history.
    pub async fn look(
        &mut self,
        db: &Database,
        policy: &RetryPolicy,
        now: Millis,
        calendars: &dyn Calendars,
    ) -> Result<Look, RetryError> {
        let mut look = Look::default();
        for _ in 0..PAGES {
            let passed_over = &look.unreadable;
            let body = LookBody {
                queue: &self.queue,
                look: LookAt { now, calendars, passed_over },
                rng: &mut self.rng,
            };
            let page = self.marked.run(db, policy, body).await?;
            look.looked.extend(page.looked);
            look.unreadable.extend(page.unreadable);
            (look.next, look.more) = (page.next_look, page.more);
            if !look.more {
                break;
            }
        }
        Ok(look)
    }

    /// Pushes an item of a schedule now, whether or not the schedule is due or paused. The nominal time of the item is `now`. The schedule
    /// goes on as if nothing had happened; but with an overlap other than `allow` the item counts as the last one.
    ///
    /// # Errors
    /// Those of [`Scheduler::look`], and [`QueueError::Unreadable`] if a later version has defined the schedule.
    pub async fn fire(
        &mut self,
        db: &Database,
        policy: &RetryPolicy,
        name: &str,
        now: Millis,
    ) -> Result<ByHand, RetryError> {
        let body = HandBody { queue: &self.queue, name, now, rng: &mut self.rng };
        let number = match self.marked.run(db, policy, body).await? {
            ByHandEffect::Fired(number) => number,
            ByHandEffect::Overlaps => return Ok(ByHand::Overlaps),
            ByHandEffect::Gone => return Ok(ByHand::Gone),
        };
        let keys = &self.queue.space().schedules();
        // The database has given the id when the item was committed.
        let record = run(db, policy, |tr| async move {
            let records = read::history(keys, &tr, name, Some(number + 1), 1).await;
            (tr, records)
        });
        let record = record.await?.value.pop().filter(|record| record.number == number);
        Ok(ByHand::Fired { id: record.and_then(|record| record.outcome.id().cloned()) })
    }

    /// Ends it. Without that, a mark of a few bytes is left to sweepers.
    pub async fn close(mut self, db: &Database, policy: &RetryPolicy) -> Result<(), RetryError> {
        self.marked.close(db, policy).await
    }
}

/// The transaction of a page of a look.
struct LookBody<'a> {
    queue: &'a Queue,
    look: LookAt<'a>,
    rng: &'a mut Rng,
}

impl Body for LookBody<'_> {
    type Output = look::Page;

    async fn fill(&mut self, tr: &Transaction) -> Result<Act<look::Page>, QueueError> {
        let page = look::page(self.queue.space(), tr, self.look, self.rng).await?;
        Ok(if page.has_written { Act::Write(page) } else { Act::Nothing(page) })
    }
}

/// The transaction of an item by hand.
struct HandBody<'a> {
    queue: &'a Queue,
    name: &'a str,
    now: Millis,
    rng: &'a mut Rng,
}

impl Body for HandBody<'_> {
    type Output = ByHandEffect;

    async fn fill(&mut self, tr: &Transaction) -> Result<Act<ByHandEffect>, QueueError> {
        let effect = fire_by_hand(self.queue.space(), tr, self.name, self.now, self.rng).await?;
        Ok(if matches!(effect, ByHandEffect::Fired(_)) { Act::Write(effect) } else { Act::Nothing(effect) })
    }
}
