//! A queue's name in a key space, and the operations a caller runs inside its own transaction.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;

use foundationdb::{Database, Transaction};

use crate::client::lease::Lease;
use crate::keys::Space;
use crate::keys::recipes::leading_integer;
use crate::model::counts::{Counts, Unfinished};
use crate::model::error::{NameError, QueueError};
use crate::model::id::ItemId;
use crate::model::item::Item;
use crate::model::kind::{End, Kind};
use crate::model::lease_id::LeaseId;
use crate::model::limits::{LimitError, Limits, Pattern};
use crate::model::pause::Pause;
use crate::model::recorder::Recorder;
use crate::model::retry_error::RetryError;
use crate::ops;
use crate::ops::pop::Popped;
use crate::ops::push::Pusher;
use crate::ops::queues::queues_page;
use crate::run::pause;
use crate::run::retry::{RetryPolicy, run};
use crate::run::watch::Watch;

/// A queue under a name and a prefix. Cheap to clone; holds no connection.
///
/// The operations are those of the Erlang KvQueue. They put reads and writes into the caller's transaction and
/// leave committing and retrying to it; [`Session`](crate::Session) does both.
#[derive(Clone, PartialEq, Eq)]
pub struct Queue {
    space: Arc<Space>,
}

impl Queue {
    /// The queue `name` (1 to [`MAX_NAME`](crate::model::sizes::MAX_NAME) bytes, any bytes) behind the raw bytes `prefix` (which may
    /// be empty). Nothing is read or written: a queue exists when something was pushed to it.
    pub fn new(prefix: &[u8], name: &[u8]) -> Result<Queue, NameError> {
        Queue::of_kind(prefix, name, Kind::Fifo)
    }

    /// The same for a queue of any kind.
    pub fn of_kind(prefix: &[u8], name: &[u8], kind: Kind) -> Result<Queue, NameError> {
        Ok(Queue { space: Arc::new(Space::new(prefix, name, kind)?) })
    }

    /// Makes sure that the database's versions are ahead of the queue's items: they are not after a restore into a new cluster. A
    /// [`Session`](crate::Session) does this before its first push. One key of a FIFO queue, a snapshot read.
    ///
    /// # Errors
    /// [`QueueError::VersionsWentBack`] says what to do.
    pub async fn check_versions(&self, tr: &Transaction) -> Result<(), QueueError> {
        ops::went_back::check(&self.space, tr).await
    }

    /// The same queue, whose sessions, leases, sweepers and changes of items record the ends of items.
    #[must_use]
    pub fn with_recorder(mut self, recorder: &Recorder) -> Queue {
        Arc::make_mut(&mut self.space).recorder = Some(recorder.clone());
        self
    }

    /// Its kind.
    pub fn kind(&self) -> Kind {
        self.space.kind
    }

    /// The same queue with its items in the order of their keys: a priority queue whose greatest items are taken first, from its other end.
    pub fn in_order_of_keys(&self) -> Queue {
        match self.kind() {
            Kind::Priority(End::Max, packing) => {
                let kind = Kind::Priority(End::Min, packing);
                Queue { space: Arc::new(Space { kind, ..(*self.space).clone() }) }
            }
            _ => self.clone(),
        }
    }

    /// The queue in the order in which all of its items have to be moved to keep their order in another one. A queue whose greatest items
    /// are taken first gives each item of a priority a place before later ones, so they are moved there from the other end.
    pub fn in_order_for(&self, to: &Queue) -> Queue {
        match to.kind() {
            Kind::Priority(End::Max, _) => self.in_order_of_keys(),
            _ => self.clone(),
        }
    }

    /// The name, as it was given.
    pub fn name(&self) -> &[u8] {
        &self.space.name
    }

    /// What stands before its keys.
    pub fn prefix(&self) -> &[u8] {
        self.space.prefix()
    }

    /// The priority of an item of a priority queue; 0 in any other, and where its place is none that an integer of 64 bits tells.
    pub fn priority(&self, id: &ItemId) -> i64 {
        match self.kind() {
            Kind::Priority(..) => leading_integer(id.as_bytes()).unwrap_or(0),
            Kind::Fifo | Kind::Recipe(_) | Kind::Keyed => 0,
        }
    }

    /// The keys of the queue, begin and end: everything that is stored for it, now and in later versions, but the items of a recipe's
    /// queue, which lie where the recipe has them.
    pub fn range(&self) -> (Vec<u8>, Vec<u8>) {
        self.space.queue_range()
    }

    /// Deletes the queue: items, counters and everything else.
    ///
    /// A session in the middle of finding out whether its last push committed no longer can, and pushes again.
    pub fn delete(&self, tr: &Transaction) {
        ops::delete::delete(&self.space, tr);
    }

    /// Deletes the queue as [`Queue::delete`] does, and returns how many items it had.
    ///
    /// If this kind of queue has no ready items, and a queue of the same name and another kind has, that
    /// is an error ([`QueueError::OtherKind`]), and nothing is deleted: the items of the other kind would
    /// stay, without counters. Counters that cannot be read count as zero.
    pub async fn delete_counted(&self, tr: &Transaction) -> Result<Counts, QueueError> {
        self.check_used(tr).await?;
        let counts = match self.counts(tr).await {
            Err(error @ QueueError::Database(_)) => return Err(error),
            counts => counts.unwrap_or_default(),
        };
        self.delete(tr);
        Ok(counts)
    }

    /// Makes sure that this is not an empty handle on a queue of another kind: that it has ready items, or
    /// that no queue of its name and another kind has ([`QueueError::OtherKind`]). Snapshot reads of a key
    /// each.
    pub async fn check_used(&self, tr: &Transaction) -> Result<(), QueueError> {
        match self.oldest(tr).await? {
            Some(_) => Ok(()),
            None => self.check_kind(tr).await,
        }
    }

    /// Pushes to this queue in a transaction.
    ///
    /// Use one pusher for each queue in a transaction, and pass it on to other functions that push in that transaction: each pusher numbers its
    /// pushes from 0. The first push of a second pusher is refused with [`QueueError::SecondPusher`], and the transaction cannot commit then.
    /// The option `ReadYourWritesDisable` turns this check off.
    pub fn pusher<'t>(&self, tr: &'t Transaction) -> Pusher<'t> {
        Pusher::shared(self.space.clone(), tr)
    }

    /// Removes and returns the first item, `None` if there is none.
    pub async fn pop(&self, tr: &Transaction) -> Result<Option<Item>, QueueError> {
        Ok(self.pop_k(tr, NonZeroUsize::MIN).await?.items.pop())
    }

    /// Removes and returns the first `k` items, or as many as there are, and fewer where [`MAX_TAKE_BYTES`](crate::model::sizes::MAX_TAKE_BYTES) of payloads and side
    /// records are reached, but one at least if there is one. [`Popped::short`] tells whether there were fewer.
    ///
    /// Conflicts with whatever else removes one of these items before `tr` commits, and with nothing that is pushed meanwhile. Fails
    /// with 1036 after a push in the same transaction: those items have no stamp yet. Of a keyed queue the first items are those of the key
    /// that sorts first; a [`Session`](crate::Session) takes by turns.
    ///
    /// # Errors
    /// [`QueueError::UnreadableItem`] if one of them cannot be read; nothing was written. A session's take puts it aside.
    pub async fn pop_k(&self, tr: &Transaction, k: NonZeroUsize) -> Result<Popped, QueueError> {
        ops::pop::pop_k(&self.space, tr, k).await
    }

    /// As [`Queue::pop_k`], with a watch where there were fewer than `k`. The watch works if `tr` commits.
    pub async fn consume_k(
        &self,
        tr: &Transaction,
        k: NonZeroUsize,
    ) -> Result<(Vec<Item>, Option<Watch>), QueueError> {
        let popped = self.pop_k(tr, k).await?;
        let watch = popped.short.then(|| self.watch(tr));
        Ok((popped.items, watch))
    }

    /// How many items are ready.
    ///
    /// In a FIFO queue pushes less pops: two reads, negative only if something else wrote to the counters. A recipe's queue may be
    /// used by programs that count nothing, so there its keys are counted: a snapshot read for every 8,192, without values. Of a queue of more than 50 MB the
    /// length is an estimate, by its size and the length of its first rows.
    pub async fn len(&self, tr: &Transaction) -> Result<i64, QueueError> {
        ops::len::len(&self.space, tr).await
    }

    /// Whether the database has the queue: an item in any state, a counter, or a record of a producer. A queue that was used
    /// and is empty exists. A pause alone does not make one. Conflicts with a transaction that creates the queue.
    pub async fn exists(&self, tr: &Transaction) -> Result<bool, QueueError> {
        ops::exists::exists(&self.space, tr).await
    }

    /// Whether there are items that are ready, held, or waiting for their time. Four snapshot reads of a key each: they conflict
    /// with nothing.
    pub async fn unfinished(&self, tr: &Transaction) -> Result<Unfinished, QueueError> {
        ops::counts::rest(&self.space, tr).await
    }

    /// How many items there are in each state. Reads the counters, up to 4 MB of the headers of leases, and what [`Queue::len`] reads.
    /// If there are more of them, the number of leased items is an estimate.
    pub async fn counts(&self, tr: &Transaction) -> Result<Counts, QueueError> {
        ops::counts::counts(&self.space, tr).await
    }

    /// The first `k` items, left where they are; fewer where [`MAX_TAKE_BYTES`](crate::model::sizes::MAX_TAKE_BYTES) are reached, and then
    /// [`Queue::peek_after`] goes on behind the last. A snapshot read: it conflicts with nothing.
    pub async fn peek_k(&self, tr: &Transaction, k: NonZeroUsize) -> Result<Vec<Item>, QueueError> {
        self.peek_after(tr, None, k).await
    }

    /// The items behind `after`, or the first: up to `k` of them, left where they are, and fewer where [`MAX_TAKE_BYTES`](crate::model::sizes::MAX_TAKE_BYTES)
    /// of payloads and side records are reached. None only if there are none behind it; `after` itself need not be there any more. Pages from
    /// different transactions are of different moments. A snapshot read: it conflicts with nothing.
    pub async fn peek_after(
        &self,
        tr: &Transaction,
        after: Option<&ItemId>,
        k: NonZeroUsize,
    ) -> Result<Vec<Item>, QueueError> {
        ops::peek::after(&self.space, tr, after, k).await
    }

    /// The ready item of this id; `None` if none is ready under it. A snapshot read.
    pub async fn item(&self, tr: &Transaction, id: &ItemId) -> Result<Option<Item>, QueueError> {
        ops::peek::one(&self.space, tr, id).await
    }

    /// The id of the item that would be taken first: the oldest, where there are no priorities. A snapshot read of one key.
    pub async fn oldest(&self, tr: &Transaction) -> Result<Option<ItemId>, QueueError> {
        ops::peek::first_id(&self.space, tr).await
    }

    /// All items, left where they are. They are all held in memory, and a long queue does not fit into the five
    /// seconds of a transaction: use [`Queue::peek_after`] where the length is unknown.
    pub async fn list(&self, tr: &Transaction) -> Result<Vec<Item>, QueueError> {
        ops::list::list(&self.space, tr).await
    }

    /// A lease by its id, also one that another process has made; `None` if it is over: acknowledged, or expired and swept. It can be
    /// extended and acknowledged like that of a fetch. Its items have at most the first 100,000 bytes of their payloads.
    ///
    /// Two processes that acknowledge one item of it differently conflict, and the first one wins.
    pub async fn lease(&self, tr: &Transaction, id: LeaseId) -> Result<Option<Lease>, QueueError> {
        let Some(header) = ops::lease::header(&self.space, tr, id).await? else { return Ok(None) };
        if header.served {
            return Ok(None);
        }
        let held = ops::lease::body(&self.space, tr, id, &header, true).await?;
        let rows: Vec<_> = held.iter().map(ops::lease::row).collect();
        let items = ops::scan::beginnings(&self.space, &rows)?;
        let record = match header.acknowledged.is_empty() {
            true => None,
            false => ops::cancel::read(&self.space, tr, id).await?,
        };
        let lease = Lease::new(self.space.clone(), id, &header, items, held, None);
        Ok(Some(lease.with_cancelled(record.as_ref())))
    }

    /// The items that were cancelled on a lease, as long as that is known: until its holder has found it out, and otherwise for a minute after its
    /// deadline.
    pub async fn cancelled_items(&self, tr: &Transaction, id: LeaseId) -> Result<Vec<ItemId>, QueueError> {
        let record = ops::cancel::read(&self.space, tr, id).await?;
        Ok(record.map_or_else(Vec::new, |record| record.items.into_iter().map(|(_, id)| id).collect()))
    }

    /// The rules of a keyed queue, by pattern; none for a queue of another kind. A snapshot read.
    pub async fn rules(&self, tr: &Transaction) -> Result<Vec<(Pattern, Limits)>, QueueError> {
        match &self.space.keyed {
            Some(keyed) => ops::keyed::rules::read(keyed, tr).await,
            None => Ok(Vec::new()),
        }
    }

    /// Sets the rule of a pattern; one that limits nothing removes it. Takes effect with the commit of `tr`: a fetch that has not seen
    /// the rule fails and begins again. A lower limit ends no running items: fetches wait until there are few enough.
    ///
    /// # Errors
    /// [`LimitError::NoKeys`], [`LimitError::ForKeys`], [`LimitError::TooManyRules`]; [`LimitError::Queue`], if the queue is frozen. Nothing was written.
    pub async fn set_rule(
        &self,
        tr: &Transaction,
        pattern: &Pattern,
        limits: &Limits,
    ) -> Result<(), LimitError> {
        let Some(keyed) = &self.space.keyed else { return Err(LimitError::NoKeys { kind: self.kind() }) };
        if pattern.is_queue() && limits.is_for_keys() {
            return Err(LimitError::ForKeys);
        }
        self.check_unfrozen(tr).await?;
        ops::keyed::rules::set(keyed, tr, pattern, limits).await
    }

    /// Watches for pushes, from the moment that `tr` reads at. Works if `tr` commits, which it can do without having
    /// written anything.
    pub fn watch(&self, tr: &Transaction) -> Watch {
        ops::watch::watch(&self.space, tr)
    }

    /// Pauses the queue, for all who take from it and heed that: the daemon's consumers, of every process. Sessions take all the same.
    /// A pause that there is already becomes this one.
    pub fn pause(&self, tr: &Transaction, pause: &Pause) {
        pause::pause(&self.space, tr, pause);
    }

    /// Ends a pause, if there is one.
    pub fn resume(&self, tr: &Transaction) {
        pause::resume(&self.space, tr);
    }

    /// Makes sure that the queue is not frozen ([`QueueError::Frozen`]), and that the transaction
    /// fails if it is frozen before the commit.
    pub async fn check_unfrozen(&self, tr: &Transaction) -> Result<(), QueueError> {
        pause::check_unfrozen(&self.space, tr).await
    }

    /// The pause there is; one that a later version wrote, and that cannot be read, is frozen and has no reason.
    pub async fn paused(&self, tr: &Transaction) -> Result<Option<Pause>, QueueError> {
        pause::paused(&self.space, tr).await
    }

    /// Watches for a pause and for its end, from the moment that `tr` reads at. Works if `tr` commits, which it can do without having
    /// written anything.
    pub fn watch_pause(&self, tr: &Transaction) -> Watch {
        pause::watch(&self.space, tr)
    }

    /// The packed keys, for the operations.
    pub(crate) fn space(&self) -> &Arc<Space> {
        &self.space
    }
}

/// The names of all queues behind a prefix, sorted, as [`queues`](crate::queues) finds them: in as many transactions as it takes, so that each page is
/// of another moment.
pub async fn all_queues(
    db: &Database,
    prefix: &[u8],
    policy: &RetryPolicy,
) -> Result<Vec<Vec<u8>>, RetryError> {
    let (mut names, mut from) = (Vec::new(), None);
    loop {
        let begin: &Option<Vec<u8>> = &from;
        let page = run(db, policy, |tr| async move {
            let page = queues_page(&tr, prefix, begin.as_deref()).await;
            (tr, page)
        });
        let page = page.await?.value;
        names.extend(page.names);
        from = page.next;
        if from.is_none() {
            return Ok(names);
        }
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Queue({})", self.space.name.escape_ascii())
    }
}
