//! Adding items.
//!
//! A push reads everything before it writes anything. So a push that fails leaves the transaction as it was.

mod answers;
mod contents;
mod deal;
mod entry;
mod fate;
mod first;
mod once;
mod open;
mod put;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use foundationdb::Transaction;
use foundationdb::options::MutationType;
use futures::future::try_join_all;

use crate::keys::partitions::Deal;
use crate::keys::{Space, items, operations};
use crate::model::error::{PushError, QueueError};
use crate::model::history::Ending;
use crate::model::id::ItemId;
use crate::model::id_layout::key_element;
use crate::model::kind::Kind;
use crate::model::new_item::{NewItem, PushOptions, check_payload};
use crate::model::pushed::{PendingPush, PushEffect, Spot};
use crate::model::rng::Rng;
use crate::model::session_id::SessionId;
use crate::model::sizes::{MAX_PAYLOAD, MAX_PUSHES};
use crate::model::stored::{State, StoredItem};
use crate::model::time::millis;
use crate::ops::batches::ends::{BatchEnds, Counted};
use crate::ops::batches::members::Members;
use crate::ops::counting::{Becomes, Was, count};
use crate::ops::edit::Editable;
use crate::ops::keyed::{listing, suspects};
use crate::ops::recipe::Numbers;
use crate::ops::transition::Transitions;
use contents::Digests;
pub(crate) use entry::Entry;
use fate::{Fate, Fates};
use once::Holder;
use open::Checked;
pub(crate) use put::{StoredValue, stored_value};

/// Pushes to one queue in one transaction, and numbers the pushes.
#[derive(Debug)]
pub struct Pusher<'t> {
    space: Arc<Space>,
    tr: &'t Transaction,
    /// For the random bytes in the keys of recipes.
    rng: Option<Rng>,
    pushed: usize,
    numbers: Numbers,
    /// Items of this transaction by their unique key, where the database cannot yet tell.
    unique: HashMap<Vec<u8>, Spot>,
    /// The operations of this transaction, and the digests of their contents.
    operations: HashMap<Vec<u8>, (PendingPush, Digests)>,
    /// The checks of the queue and the transaction that were made.
    checked: Checked,
    /// Keys of a keyed queue for which no other pusher has added items in the transaction.
    checked_keys: BTreeSet<Vec<u8>>,
    /// Which of the transactions of its session this is, if it has one.
    turn: Option<u64>,
    /// Where its items go; `None`: the database has to say.
    deal: Option<Deal>,
}

impl<'t> Pusher<'t> {
    /// A pusher in a transaction of the caller's, in which another may have pushed already.
    pub(crate) fn shared(space: Arc<Space>, tr: &'t Transaction) -> Pusher<'t> {
        Pusher { checked: Checked::default(), ..Pusher::alone(space, tr) }
    }

    /// The only pusher to its queue in a transaction of the layer's own.
    pub(crate) fn alone(space: Arc<Space>, tr: &'t Transaction) -> Pusher<'t> {
        Pusher {
            space,
            tr,
            rng: None,
            pushed: 0,
            numbers: Numbers::default(),
            unique: HashMap::new(),
            operations: HashMap::new(),
            checked: Checked::ALONE,
            checked_keys: BTreeSet::new(),
            turn: None,
            deal: None,
        }
    }

    /// Takes it for known whether the queue is not frozen.
    pub(crate) fn with_unfrozen(mut self, unfrozen: bool) -> Pusher<'t> {
        self.checked.unfrozen = unfrozen;
        self
    }

    /// Says which of its session's transactions this is, and whether the queue is known to have no partitions.
    pub(crate) fn with_turn(mut self, turn: u64, is_plain: bool) -> Pusher<'t> {
        self.turn = Some(turn);
        self.deal = is_plain.then_some(Deal::PLAIN);
        self
    }

    /// How it deals its items out, once that is known.
    pub(crate) fn deal(&self) -> Option<Deal> {
        self.deal
    }

    /// Gives it random bytes to begin with, which a pusher to a recipe's queue needs: 16 that no other pusher to the queue has, in
    /// another attempt of the transaction neither, such as a UUID's.
    pub fn seeded(self, seed: [u8; 16]) -> Pusher<'t> {
        self.with_rng(Rng::of(SessionId(seed)))
    }

    pub(crate) fn with_rng(self, rng: Rng) -> Pusher<'t> {
        Pusher { rng: Some(rng), ..self }
    }

    /// Adds an item with this payload to a FIFO queue, behind all others, when the transaction commits.
    ///
    /// The first push of a pusher reads whether the queue is frozen and how it is divided, and conflicts with a change of either; pushes
    /// conflict with nothing else. Until the commit the item has no stamp: reading the queue's items in the same transaction fails with 1036.
    ///
    /// # Errors
    /// [`PushError::PayloadTooLarge`], [`PushError::TooManyItems`], [`PushError::NotSeeded`] for the queues of recipes, whose pushes
    /// have to read more, and a frozen queue's [`QueueError::Frozen`]; the transaction is as it was before.
    /// [`QueueError::SecondPusher`] if another pusher has pushed to the queue in this transaction; the transaction cannot commit then.
    pub async fn push(&mut self, payload: &[u8]) -> Result<(), PushError> {
        check_payload(payload.len(), MAX_PAYLOAD)?;
        match self.space.kind {
            Kind::Fifo => {}
            Kind::Keyed => {
                return self
                    .push_items(&[NewItem::new(payload.to_vec())], &PushOptions::default())
                    .await
                    .map(drop);
            }
            Kind::Recipe(_) | Kind::Priority(..) => return Err(PushError::NotSeeded),
        }
        self.check_room(1)?;
        self.open(false, &[]).await?;
        self.add(&payload.into());
        count(&self.space, self.tr, Was::New, Becomes::Ready, 1);
        Ok(())
    }

    /// Adds items, in this order, when the transaction commits.
    ///
    /// Reads only what it has to: unique keys and the idempotency key, which conflict with pushes of the same; and in the queue of a recipe,
    /// the last index or count, which conflicts with nothing. What comes of each item is known once the transaction has committed;
    /// see [`PendingPush::items`]. Without items nothing happens, and the idempotency key is not used.
    ///
    /// # Errors
    /// The database's are in [`PushError::database`]. The transaction is as it was before, whatever the error; but after
    /// [`QueueError::SecondPusher`] it cannot commit.
    pub async fn push_items(
        &mut self,
        items: &[NewItem],
        options: &PushOptions,
    ) -> Result<PendingPush, PushError> {
        options.check()?;
        items.iter().try_for_each(|item| item.check_new(self.space.kind, options.max_payload))?;
        self.place_all(items, options).await
    }

    /// As [`Pusher::push_items`], with items that have a history: their attempts and failures go with them, delayed ones are delayed, and
    /// dead letters are dead letters. These take no unique key; they remember theirs.
    ///
    /// # Errors
    /// As those, and [`PushError::RecordTooLarge`].
    pub async fn restore(
        &mut self,
        items: &[StoredItem],
        options: &PushOptions,
    ) -> Result<PendingPush, PushError> {
        options.check()?;
        items.iter().try_for_each(|item| item.check(self.space.kind, options.max_payload))?;
        self.place_all(items, options).await
    }

    async fn place_all<'a, I>(
        &mut self,
        items: &'a [I],
        options: &PushOptions,
    ) -> Result<PendingPush, PushError>
    where
        Entry<'a>: From<&'a I>,
    {
        if items.is_empty() {
            return Ok(PendingPush::default());
        }
        self.check_room(items.len())?;
        if !self.space.kind.is_stamped() && self.rng.is_none() {
            return Err(PushError::NotSeeded);
        }
        let entries: Vec<Entry<'_>> = items.iter().map(Entry::from).collect();
        Ok(self.place(&entries, options.idempotency_key.as_deref()).await?)
    }

    /// How many items this pusher added.
    pub fn pushed(&self) -> usize {
        self.pushed
    }

    /// Whether the transaction has room for this many more.
    fn check_room(&self, more: usize) -> Result<(), PushError> {
        // Operations have numbers of their own, and may add nothing.
        if self.pushed + more > MAX_PUSHES || self.operations.len() >= MAX_PUSHES {
            return Err(PushError::TooManyItems { limit: MAX_PUSHES });
        }
        Ok(())
    }

    /// Adds what has been checked. An operation that was done before is answered at a frozen queue too: nothing is written.
    pub(crate) async fn place(
        &mut self,
        entries: &[Entry<'_>],
        operation: Option<&[u8]>,
    ) -> Result<PendingPush, QueueError> {
        let operation = operation.map(|id| (id, Digests::of(entries)));
        if let Some((id, digests)) = &operation
            && let Some(earlier) = self.earlier(id, digests, entries).await?
        {
            return Ok(earlier);
        }
        self.open(operation.is_some(), entries).await?;
        let batches = entries.iter().filter_map(Entry::batch);
        // What is rare is boxed: other pushes do not carry it along.
        let mut members = match batches.clone().next() {
            None => Members::default(),
            Some(_) => Box::pin(Members::check(&self.space, self.tr, batches)).await?,
        };
        let Running { items: mut running, orphans, replaceable } =
            match entries.iter().all(|entry| entry.unique().is_none()) {
                true => Running::default(),
                false => Box::pin(self.running(entries)).await?,
            };
        let taken = if orphans.is_empty() { None } else { Box::pin(self.taken(&orphans)).await? };
        let fates = Fates::of(entries, |key| running.contains_key(key) || replaceable.contains_key(key));
        if !self.space.kind.is_stamped() {
            let priorities = entries.iter().map(Entry::priority).collect();
            self.numbers.read(&self.space, self.tr, priorities).await?;
        }
        if self.space.kind == Kind::Keyed {
            self.list(entries, &fates, &replaceable).await?;
        }
        // From here on nothing is read, and nothing fails: an item that is replaced gets the read conflict of its search once more.
        if let Some(taken) = taken {
            taken.write(self.tr);
        }
        orphans.iter().for_each(|(id, meta)| once::clear_orphan(&self.space, self.tr, id, meta));
        let (first, mut replaceable) = (self.pushed, replaceable);
        let (mut ready, mut later, mut dead) = (0, 0, 0);
        let mut replaced: Option<Transitions<'_>> = None;
        let space = Arc::clone(&self.space);
        let mut places = Vec::with_capacity(entries.len());
        for (entry, fate) in entries.iter().zip(fates.iter()) {
            let effect = match fate {
                Fate::Skipped => PushEffect::Duplicate,
                Fate::Superseded => PushEffect::Replaced,
                Fate::Replacing => {
                    let found = entry.unique().and_then(|key| Some((key, replaceable.remove(key)?)));
                    if let Some((key, found)) = found {
                        running.insert(key, Spot::Id(found.id().clone()));
                        let replaced = replaced.get_or_insert_with(|| Transitions::of_push(&space));
                        let due = match entry.state() {
                            State::Later(due) => Some(millis(due)),
                            State::Ready | State::Dead => None,
                        };
                        let meta = entry.meta().unwrap_or_default();
                        found.replace(replaced, self.tr, entry.payload, meta, due)?;
                    }
                    PushEffect::Replaced
                }
                Fate::Added => {
                    let spot = self.add(entry);
                    if let Some(batch) = entry.batch() {
                        members.add(batch);
                    }
                    match entry.state() {
                        State::Ready => ready += 1,
                        State::Later(_) => later += 1,
                        State::Dead => dead += 1,
                    }
                    if let Some(key) = entry.unique() {
                        running.insert(key, spot.clone());
                    }
                    places.push((PushEffect::Added, Some(spot)));
                    continue;
                }
            };
            places.push((effect, None));
        }
        // An item that was not added is the one that has its key now, which may come behind it.
        for (entry, (_, spot)) in entries.iter().zip(&mut places).filter(|(_, (_, spot))| spot.is_none()) {
            *spot = entry.unique().and_then(|key| running.get(key)).cloned();
        }
        if let Some(replaced) = replaced {
            replaced.count(self.tr);
        }
        for (becomes, n) in [(Becomes::Ready, ready), (Becomes::Scheduled, later), (Becomes::Dead, dead)] {
            count(&self.space, self.tr, Was::New, becomes, n);
        }
        members.write(self.tr);
        let placed = PendingPush::new(places);
        if let Some((id, digests)) = operation {
            self.note_operation(id, digests, first, &placed);
        }
        Ok(placed)
    }

    /// The result of an operation, if it was done before.
    async fn earlier(
        &self,
        id: &[u8],
        digests: &Digests,
        entries: &[Entry<'_>],
    ) -> Result<Option<PendingPush>, QueueError> {
        match self.operations.get(id) {
            Some((_, of)) if of.digest != digests.digest => Err(QueueError::key_reused(&self.space.name, id)),
            Some((placed, _)) => Ok(Some(placed.repeated())),
            None => once::earlier(&self.space, self.tr, id, digests, entries).await,
        }
    }

    fn note_operation(&mut self, id: &[u8], digests: Digests, first: usize, placed: &PendingPush) {
        let number = user_version(self.operations.len());
        let added = u32::try_from(placed.added()).expect("a push is bounded far below 2^32 items");
        let deal = self.deal.unwrap_or(Deal::PLAIN);
        let value = operations::pending(
            user_version(first),
            added,
            &digests.digest,
            deal,
            &answers::encode(placed.places()),
        );
        self.tr.atomic_op(&self.space.operation_key(id), &value, MutationType::SetVersionstampedValue);
        let log = items::pending_record(&self.space.oplog, number, &[]);
        self.tr.atomic_op(&log, id, MutationType::SetVersionstampedKey);
        self.operations.insert(id.to_vec(), (placed.clone(), digests));
    }

    /// The items that there are already, by the unique keys of those to be pushed.
    async fn running<'a>(&self, entries: &[Entry<'a>]) -> Result<Running<'a>, QueueError> {
        let mut running = Running::default();
        let mut asked = Vec::new();
        let replacing: BTreeSet<_> =
            entries.iter().filter(|entry| entry.replaces()).filter_map(Entry::unique).collect();
        // What this transaction has pushed may be nowhere yet, and the database could not tell.
        if let Some(key) = replacing.first().filter(|_| self.pushed > 0 && self.space.kind.is_stamped()) {
            return Err(QueueError::replaces_uncommitted(&self.space.name, key));
        }
        for key in entries.iter().filter_map(Entry::unique) {
            match self.unique.get(key) {
                Some(spot) => drop(running.items.insert(key, spot.clone())),
                None => asked.push(key),
            }
        }
        if asked.is_empty() {
            return Ok(running);
        }
        asked.sort_unstable();
        asked.dedup();
        let has_pushed = self.pushed > 0;
        let found = asked.iter().map(|key| once::holder(&self.space, self.tr, key, has_pushed));
        let mut to_replace = Vec::new();
        for (key, holder) in asked.iter().zip(try_join_all(found).await?) {
            match holder {
                Some(Holder::Item(id)) if replacing.contains(key) => to_replace.push((*key, id)),
                Some(Holder::Item(id)) => drop(running.items.insert(key, Spot::Id(id))),
                Some(Holder::Orphan(id, meta)) => running.orphans.push((id, meta)),
                None => {}
            }
        }
        let found = to_replace.iter().map(|(_, id)| Editable::find(&self.space, self.tr, id));
        let found = try_join_all(found).await?;
        let keys = to_replace.iter().map(|(key, _)| *key);
        running.replaceable = keys.zip(found).filter_map(|(key, found)| Some((key, found?))).collect();
        Ok(running)
    }

    /// The ends of items that foreign programs took, for their batches.
    async fn taken(&self, orphans: &[(ItemId, Bytes)]) -> Result<Option<Counted>, QueueError> {
        let mut ends = BatchEnds::default();
        orphans.iter().for_each(|(_, meta)| ends.add_record(meta, Ending::Taken));
        if ends.is_empty() { Ok(None) } else { ends.read(&self.space, self.tr).await.map(Some) }
    }

    /// Gives the keys of a keyed queue that get ready items a place in the index, if they have none, and those of ready items that it puts off another one, if they
    /// are parked because of these.
    async fn list(
        &self,
        entries: &[Entry<'_>],
        fates: &Fates,
        replaceable: &HashMap<&[u8], Editable>,
    ) -> Result<(), QueueError> {
        let Some(keyed) = &self.space.keyed else { return Ok(()) };
        let replacing = entries.iter().zip(fates.iter()).filter(|(_, fate)| *fate == Fate::Replacing);
        let put_off = replacing.filter(|(entry, _)| matches!(entry.state(), State::Later(_)));
        let put_off = put_off.filter_map(|(entry, _)| replaceable.get(entry.unique()?)?.id().key());
        suspects::unpark(keyed, self.tr, &put_off.collect()).await?;
        let added = entries.iter().zip(fates.iter()).filter(|(_, fate)| *fate == Fate::Added);
        let ready = added.map(|(entry, _)| entry).filter(|entry| entry.state() == State::Ready);
        let keys = ready.map(|entry| entry.key().to_vec()).collect();
        listing::unlisted(keyed, self.tr, keys).await?.list(keyed, self.tr);
        Ok(())
    }

    /// Writes an item, for which there is room, without counting it.
    fn add(&mut self, entry: &Entry<'_>) -> Spot {
        let spot = match self.space.kind {
            Kind::Fifo => deal::spot(self.deal.unwrap_or(Deal::PLAIN), user_version(self.pushed)),
            Kind::Keyed => Spot::Behind(key_element(entry.key()).into(), user_version(self.pushed)),
            Kind::Recipe(_) | Kind::Priority(..) => {
                let random =
                    self.rng.as_mut().map(Rng::bytes).expect("pushers to a recipe's queue are seeded");
                Spot::Id(self.numbers.next_id(&self.space, entry.priority(), &random))
            }
        };
        put::put(&self.space, self.tr, &spot, entry);
        if let (Some(key), Spot::User(_) | Spot::Behind(..)) = (entry.unique(), &spot) {
            self.unique.insert(key.to_vec(), spot.clone());
        }
        self.pushed += 1;
        spot
    }
}

/// The records that items to push already have.
#[derive(Default)]
struct Running<'a> {
    /// Items by their unique keys, which stay as they are.
    items: HashMap<&'a [u8], Spot>,
    /// Items that wait, by their unique keys, to be replaced. One that is running or has ended is in neither.
    replaceable: HashMap<&'a [u8], Editable>,
    /// The side records, by id, of items that foreign programs took.
    orphans: Vec<(ItemId, Bytes)>,
}

/// A number below [`MAX_PUSHES`].
fn user_version(number: usize) -> u16 {
    u16::try_from(number).expect("pushes of a transaction are bounded by the user versions")
}
