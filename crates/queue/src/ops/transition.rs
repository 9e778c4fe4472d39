//! A transition of an item, from one state to another, and everything that follows from it.
//!
//! A caller names the state before, the state after, and the side record. The rows of the item, the read conflict by which
//! only one transaction moves it, the counters ([`counting`](crate::ops::counting)), the unique key, the row of its expiry,
//! the index of keys with slots and holds, the history and the item's batches follow here.
//!
//! Of items that become ready together, the caller has cleared the rows, each or many in one range, after the conflict ([`Before::Cleared`]).
//! New items have no transition; a push writes them. A fetch or a pop removes its items in ranges, which `claim` does.

use std::borrow::Cow;
use std::time::Duration;

use foundationdb::Transaction;

use crate::keys::{Space, later, meta};
use crate::model::error::QueueError;
use crate::model::history::Ending;
use crate::model::holds::HoldCause;
use crate::model::id::ItemId;
use crate::model::limits::Scope;
use crate::model::meta::Meta;
use crate::model::recorder::Holding;
use crate::model::session_id::SessionId;
use crate::model::time::Millis;
use crate::ops::claim::{forget, forget_undone};
use crate::ops::counting::{Becomes, Counting, Was};
use crate::ops::ended::{self, Endings};
use crate::ops::keyed::changes::Changes;
use crate::ops::scan::decode_record;
use crate::ops::{dead, item_times, place};
use crate::run::conflict;

/// The state of an item before a transition.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Before<'a> {
    Ready,
    /// Scheduled or retrying, by this key of its record.
    Scheduled(&'a [u8]),
    /// Was scheduled or retrying. The caller has cleared its rows, with a conflict.
    Cleared,
    /// On a lease of this session. The caller changes the header of the lease, which it has read with a conflict.
    Leased(SessionId),
    /// A dead letter.
    Dead,
}

/// The state of an item after a transition.
#[derive(Debug, Clone, Copy)]
pub(crate) enum After<'a> {
    /// Ready, at its own place.
    Ready,
    /// Scheduled for this time.
    Scheduled(Millis),
    /// A dead letter. Its side record says why.
    Dead,
    /// It has left the queue: its handler has finished it, perhaps with a result.
    Done(Option<&'a [u8]>),
    /// It has left the queue otherwise; why, for people.
    Ended(Ending, Option<&'a str>),
    /// It has left the queue, and the history has nothing of it: it goes to another queue, or was a dead letter, which had ended before.
    Gone,
}

/// An item that changes its state.
#[derive(Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) id: &'a ItemId,
    /// Its value. Not needed where the item leaves the queue, or stays scheduled with the side record that it had.
    pub(crate) value: &'a [u8],
    pub(crate) record: Record<'a>,
}

/// The side record of an item.
#[derive(Debug)]
pub(crate) enum Record<'a> {
    /// As it is stored.
    Same(&'a [u8]),
    /// Changed by the transition. Boxed, so that the many items whose record stays do not carry it along.
    Changed(Box<Meta>),
}

impl<'a> Subject<'a> {
    /// An item with its side record as it is stored.
    pub(crate) fn new(id: &'a ItemId, value: &'a [u8], record: &'a [u8]) -> Subject<'a> {
        Subject { id, value, record: Record::Same(record) }
    }

    /// An item with a changed side record.
    pub(crate) fn changed(id: &'a ItemId, value: &'a [u8], meta: Meta) -> Subject<'a> {
        Subject { id, value, record: Record::Changed(Box::new(meta)) }
    }
}

impl Record<'_> {
    fn stored(&self) -> Cow<'_, [u8]> {
        match self {
            Record::Same(record) => Cow::Borrowed(record),
            Record::Changed(meta) => Cow::Owned(meta::encode(meta)),
        }
    }

    fn into_meta(self, space: &Space, id: &ItemId) -> Result<Meta, QueueError> {
        match self {
            Record::Changed(meta) => Ok(*meta),
            Record::Same(record) => decode_record(space, id, record),
        }
    }
}

/// The transitions of a transaction. Nothing is counted, and no index, history or batch is changed, before
/// [`write`](Transitions::write).
#[derive(Debug)]
#[must_use = "what follows from the transitions is not written"]
pub(crate) struct Transitions<'a> {
    space: &'a Space,
    counting: Counting,
    /// Queues without keys are not to pay for this.
    changes: Option<Changes>,
    /// `None`: no item ends.
    endings: Option<Endings<'a>>,
}

impl<'a> Transitions<'a> {
    /// For items that may end.
    pub(crate) async fn begin(space: &'a Space, tr: &Transaction) -> Result<Transitions<'a>, QueueError> {
        let endings = ended::begin(space, tr).await?;
        Ok(Transitions { endings: Some(endings), ..Transitions::without_ends(space) })
    }

    /// For items none of which ends. It needs nothing of the history.
    pub(crate) fn without_ends(space: &'a Space) -> Transitions<'a> {
        let changes = space.keyed.is_some().then(Changes::default);
        Transitions { space, counting: Counting::default(), changes, endings: None }
    }

    /// For items that a push replaces. It has seen to the index of keys before, and reads nothing any more.
    pub(crate) fn of_push(space: &'a Space) -> Transitions<'a> {
        Transitions { space, counting: Counting::default(), changes: None, endings: None }
    }

    pub(crate) fn space(&self) -> &'a Space {
        self.space
    }

    /// Writes the item in its new state; fails at commit if another has moved it.
    #[inline]
    pub(crate) fn add(
        &mut self,
        tr: &Transaction,
        before: Before<'_>,
        after: After<'_>,
        item: Subject<'_>,
    ) -> Result<(), QueueError> {
        let id = item.id;
        self.leave(tr, before, after, id)?;
        self.enter(tr, before, after, item)?;
        self.counting.add(before.counted(), after.counted(before));
        if self.changes.is_some() {
            self.note_change(before, after, id);
        }
        Ok(())
    }

    /// As [`add`](Transitions::add) of an item without a side record that is done without a result: most items of most
    /// acknowledgements are such ones, and only the counter and the history have anything of them. `false`, and nothing has
    /// happened: the queue is keyed.
    #[inline]
    pub(crate) fn add_plain_done(&mut self, id: &ItemId) -> bool {
        if self.changes.is_some() {
            return false;
        }
        self.counting.add(Was::Leased, Becomes::Done);
        self.endings().add_done(id, &[]);
        true
    }

    /// Clears what the item has in the state that it leaves.
    fn leave(
        &self,
        tr: &Transaction,
        before: Before<'_>,
        after: After<'_>,
        id: &ItemId,
    ) -> Result<(), QueueError> {
        let space = self.space;
        if let Some(key) = before.key(space, id) {
            // The conflict comes before the clear: a transaction does not conflict on what it has itself overwritten.
            conflict::as_reader(tr, &key)?;
            tr.clear(&key);
        }
        match before {
            Before::Ready => tr.clear(&space.meta_key(id)),
            Before::Scheduled(_) if !matches!(after, After::Scheduled(_)) => {
                place::clear_aside(space, tr, id);
            }
            // The rest of a dead letter is cleared by what becomes of it.
            Before::Scheduled(_) | Before::Cleared | Before::Leased(_) | Before::Dead => {}
        }
        Ok(())
    }

    /// Writes what the item has in its new state, and ends it for the history and its batches.
    fn enter(
        &mut self,
        tr: &Transaction,
        before: Before<'_>,
        after: After<'_>,
        Subject { id, value, record }: Subject<'_>,
    ) -> Result<(), QueueError> {
        let space = self.space;
        match (after, before) {
            (After::Ready, Before::Dead) => {
                dead::revive(space, tr, id, value, record.into_meta(space, id)?);
            }
            (After::Ready, _) => {
                place::ready(space, tr, id, value, &record.stored());
                self.may_expire_again(tr, before, id, &record);
            }
            (After::Scheduled(due), Before::Scheduled(_)) if matches!(record, Record::Same(_)) => {
                tr.set(&space.later.key(due, id.as_bytes()), &record.stored());
                tr.set(&space.due_key(id), &later::encode_due(due));
            }
            (After::Scheduled(due), _) => {
                self.may_expire_again(tr, before, id, &record);
                place::later(space, tr, id, due, value, &record.into_meta(space, id)?);
            }
            (After::Dead, _) => {
                let meta = record.into_meta(space, id)?;
                place::dead(space, tr, id, value, &meta);
                self.endings().add_dead(id, &meta);
            }
            (After::Done(result), _) => {
                let record = record.stored();
                forget(space, tr, id, &record)?;
                match result {
                    Some(result) => self.endings().add_done_with(tr, id, &record, result),
                    None => self.endings().add_done(id, &record),
                }
            }
            (After::Ended(ending, reason), _) => {
                let record = record.stored();
                forget_undone(space, tr, id, &record)?;
                self.endings().add(id, &record, ending, reason);
            }
            (After::Gone, Before::Dead) => dead::bury(space, tr, id, &record.stored()),
            (After::Gone, _) => forget_undone(space, tr, id, &record.stored())?,
        }
        Ok(())
    }

    /// An item that leaves its lease without having spent an attempt expires as before. A fetch leaves the row of its expiry, but
    /// the sweeper may have removed it meanwhile, since running items do not expire.
    fn may_expire_again(&self, tr: &Transaction, before: Before<'_>, id: &ItemId, record: &Record<'_>) {
        if let (Before::Leased(_), Record::Same(record)) = (before, record) {
            item_times::note_expiry(self.space, tr, id, record);
        }
    }

    /// Notes what the index of a keyed queue has of it.
    fn note_change(&mut self, before: Before<'_>, after: After<'_>, id: &ItemId) {
        let (space, Some(changes)) = (self.space, &mut self.changes) else { return };
        match (before, after) {
            // A hold for it stays.
            (Before::Scheduled(_), After::Scheduled(_)) => {}
            (Before::Scheduled(_) | Before::Cleared | Before::Dead, _) => changes.came_back(space, id),
            (Before::Ready, _) => changes.removed_ready(space, id),
            (Before::Leased(session), _) => changes.left_lease(space, id, session),
        }
        match (before, after) {
            (_, After::Ready) => changes.made_ready(space, id),
            (_, After::Dead) => changes.put_away(space, id, HoldCause::Dead),
            // A ready item that gets a time begins no hold: that would stop items of an ordered key that are before it, too.
            (Before::Leased(_), After::Scheduled(_)) => changes.put_away(space, id, HoldCause::Scheduled),
            _ => {}
        }
    }

    /// Nothing of a scope of the item starts for this time.
    pub(crate) fn throttle(&mut self, id: &ItemId, scope: Scope, wait: Duration) {
        if let Some(changes) = &mut self.changes {
            changes.throttled(self.space, id, scope, wait);
        }
    }

    /// Adds to the counters, which is all that is left to do after [`of_push`](Transitions::of_push).
    pub(crate) fn count(self, tr: &Transaction) {
        self.counting.write(self.space, tr);
    }

    fn endings(&mut self) -> &mut Endings<'a> {
        self.endings.as_mut().expect("transitions without ends end no item")
    }

    /// Counts, and writes what the transaction changes besides its items: indexes, history and batches. `holding`: what the
    /// history has of the lease that the items leave.
    pub(crate) async fn write(self, tr: &Transaction, holding: Option<&Holding>) -> Result<(), QueueError> {
        let Transitions { space, counting, changes, endings } = self;
        counting.write(space, tr);
        if let Some(endings) = endings {
            endings.write(tr, holding).await?;
        }
        if let Some(changes) = changes {
            changes.write(space, tr).await?;
        }
        Ok(())
    }
}

impl<'a> Before<'a> {
    /// The row whose change means that the item has moved. `None`: the caller sees to the conflict.
    pub(crate) fn key(self, space: &Space, id: &ItemId) -> Option<Cow<'a, [u8]>> {
        match self {
            Before::Ready => Some(space.ready_key(id).into()),
            Before::Scheduled(key) => Some(key.into()),
            Before::Cleared | Before::Leased(_) => None,
            Before::Dead => Some(space.dead_key(id).into()),
        }
    }

    fn counted(self) -> Was {
        match self {
            Before::Ready => Was::Ready,
            Before::Scheduled(_) | Before::Cleared => Was::Scheduled,
            Before::Leased(_) => Was::Leased,
            Before::Dead => Was::Dead,
        }
    }
}

impl After<'_> {
    fn counted(self, before: Before<'_>) -> Becomes {
        match (self, before) {
            (After::Ready, _) => Becomes::Ready,
            (After::Scheduled(_), _) => Becomes::Scheduled,
            (After::Dead, _) => Becomes::Dead,
            (After::Done(_), _) => Becomes::Done,
            (After::Ended(Ending::Cancelled, _), Before::Leased(_)) => Becomes::Cancelled,
            (After::Ended(..) | After::Gone, _) => Becomes::Gone,
        }
    }
}
