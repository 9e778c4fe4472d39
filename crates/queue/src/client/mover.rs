//! Moving items from one queue to another, each in the transaction that removes and adds it.

use std::num::NonZeroUsize;

use foundationdb::{Database, Transaction};

use crate::client::queue::Queue;
use crate::keys::range;
use crate::model::error::{MoveError, QueueError};
use crate::model::id::ItemId;
use crate::model::kind::Kind;
use crate::model::pushed::PushEffect;
use crate::model::retry_error::RetryError;
use crate::model::rng::Rng;
use crate::model::session_id::SessionId;
use crate::ops::find::last_key;
use crate::ops::peek::last_id;
use crate::ops::push::{Entry, Pusher};
use crate::ops::relocate;
use crate::ops::relocate::{Found, Movable, PAGE, Stretch};
use crate::run::exactly_once::{Act, Body, Marked};
use crate::run::retry::{RetryPolicy, run};

/// Moves items, a page of them at a time.
///
/// At every moment an item is in one of the queues, whatever becomes of the mover. It gets a new id, and a place behind the others there;
/// what is known of it goes with it. What comes into the queue after the first page is left there.
#[derive(Debug)]
pub struct Mover {
    from: Queue,
    to: Queue,
    what: Movable,
    marked: Marked,
    rng: Rng,
    /// The last item looked at.
    behind: Option<ItemId>,
    /// The last item to look at; `None` until that is known.
    until: Option<ItemId>,
}

/// How many items of a page were moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MoveCounts {
    /// Items that were moved.
    pub moved: usize,
    /// Items that stay: another item has their unique key there; or they are members of batches, and the other queue lies behind another prefix, where their ends would not count.
    pub refused: usize,
    /// Dead letters that stay, because their records cannot be read.
    pub unreadable: usize,
}

impl Mover {
    /// A mover between queues of one database.
    ///
    /// # Errors
    /// If both are the same queue.
    pub fn new(from: Queue, to: Queue, what: Movable) -> Result<Mover, MoveError> {
        if from.space().queue == to.space().queue {
            return Err(MoveError::SameQueue { name: from.name().escape_ascii().to_string() });
        }
        let id = SessionId::new();
        let marked = Marked::new(from.space(), id);
        Ok(Mover { from, to, what, marked, rng: Rng::of(id), behind: None, until: None })
    }

    /// Moves the next items, at most `limit`, in one transaction; `None` if there are no more.
    pub async fn page(
        &mut self,
        db: &Database,
        policy: &RetryPolicy,
        limit: NonZeroUsize,
    ) -> Result<Option<MoveCounts>, RetryError> {
        if self.until.is_none() {
            let (from, what) = (&self.from, self.what);
            let last = run(db, policy, |tr| async move {
                let last = last_of(from, &tr, what).await;
                (tr, last)
            });
            self.until = last.await?.value;
        }
        let Some(until) = &self.until else { return Ok(None) };
        let stretch = Stretch { behind: self.behind.as_ref(), until, k: limit.min(PAGE) };
        let (from, to, what, rng) = (&self.from, &self.to, self.what, &mut self.rng);
        let (page, last) = self.marked.run(db, policy, PageOf { from, to, what, stretch, rng }).await?;
        let over = last.is_none();
        self.behind = last.or(self.behind.take());
        Ok((!over).then_some(page))
    }

    /// Ends it. Without that, a mark of a few bytes is left to sweepers.
    pub async fn close(mut self, db: &Database, policy: &RetryPolicy) -> Result<(), RetryError> {
        self.marked.close(db, policy).await
    }
}

/// The last item there is to move.
async fn last_of(from: &Queue, tr: &Transaction, what: Movable) -> Result<Option<ItemId>, QueueError> {
    let space = from.space();
    match what {
        Movable::Ready => last_id(space, tr).await,
        Movable::Dead => {
            let key = last_key(tr, &range(&space.dead)).await?;
            Ok(key.map(|key| ItemId::new(key[space.dead.len()..].to_vec().into())))
        }
    }
}

/// The transaction of one page.
struct PageOf<'a> {
    from: &'a Queue,
    to: &'a Queue,
    what: Movable,
    stretch: Stretch<'a>,
    rng: &'a mut Rng,
}

impl Body for PageOf<'_> {
    /// The counts, and the last item that was read.
    type Output = (MoveCounts, Option<ItemId>);

    async fn fill(&mut self, tr: &Transaction) -> Result<Act<Self::Output>, QueueError> {
        let (from, what) = (self.from, self.what);
        let Found { rows, items, unreadable, last } =
            relocate::find(from.space(), tr, what, self.stretch).await?;
        let (found, shares_prefix) = (rows.len(), from.space().prefix() == self.to.space().prefix());
        let (rows, mut items): (Vec<_>, Vec<_>) = rows
            .into_iter()
            .zip(items)
            .filter(|(_, item)| shares_prefix || item.meta.batches.is_empty())
            .unzip();
        if matches!(self.to.kind(), Kind::Priority(..)) {
            rows.iter().zip(&mut items).for_each(|(row, item)| item.priority = from.priority(&row.id));
        }
        let entries: Vec<Entry<'_>> = items.iter().map(Entry::moved).collect();
        let mut pusher = Pusher::alone(self.to.space().clone(), tr).with_rng(self.rng.split());
        let placed = pusher.place(&entries, None).await?;
        let effects = placed.items(None).map(|item| item.effect);
        let added: Vec<_> = rows
            .iter()
            .zip(effects)
            .filter(|(_, effect)| *effect == PushEffect::Added)
            .map(|(row, _)| row)
            .collect();
        relocate::remove(from.space(), tr, what, &added).await?;
        let page = MoveCounts { moved: added.len(), refused: found - added.len(), unreadable };
        Ok(if page.moved > 0 { Act::Write((page, last)) } else { Act::Nothing((page, last)) })
    }
}
