//! The model's answers.

use kvqueue_queue::{Item, ItemId, ItemState, Kind, LeaseId, Progress, SessionId};

use super::{Model, Place, Verdict, life, promise};
use crate::image::{Stored, essence};
use crate::world::Millis;

impl Model {
    /// Whether the queue is frozen.
    pub(crate) fn is_frozen(&self) -> bool {
        self.frozen.is_some()
    }

    /// Whether items may wait though nobody has passed them over: their key's scopes have limits.
    pub(crate) fn has_limits(&self) -> bool {
        self.kind == Kind::Keyed
    }

    /// Whether a lease is held.
    pub(crate) fn is_held(&self, lease: LeaseId) -> bool {
        self.leases.contains_key(&lease)
    }

    /// Whether a sweeper has taken a lease away.
    pub(crate) fn was_taken_away(&self, lease: LeaseId) -> bool {
        self.lost.contains_key(&lease)
    }

    /// Until when the holder of a lease counts on it.
    pub(crate) fn believed_until(&self, lease: LeaseId) -> u64 {
        self.beliefs.get(&lease).copied().unwrap_or(0)
    }

    /// The holder of a lease learned that it has the lease, or that a change of it succeeded, which began at this time.
    pub(crate) fn believes(&mut self, lease: LeaseId, since: u64) {
        if let Some(held) = self.leases.get(&lease) {
            let until = self.beliefs.entry(lease).or_default();
            *until = (*until).max(since + held.length);
        }
    }

    /// When the next lease ends, by its holder's clock.
    pub(crate) fn next_end(&self, now: u64) -> Option<u64> {
        let held = self.leases.keys().map(|lease| self.believed_until(*lease));
        held.filter(|until| *until > now).min()
    }

    /// Whether there was a moment since a version when nothing was ready that has not crashed more often than this.
    pub(crate) fn was_empty_since(&self, version: u64, crashes: u32) -> bool {
        let since = self.past.iter().rposition(|(commit, _)| *commit <= version).unwrap_or(0);
        self.past[since..]
            .iter()
            .any(|(_, seen)| seen.waiting.iter().all(|waiting| waiting.crashes > crashes))
    }

    /// The items that have not come to an end.
    pub(crate) fn open(&self) -> impl Iterator<Item = (&ItemId, &Place)> {
        let open = self.items.iter().filter(|(_, item)| !item.place.is_end());
        open.map(|(id, item)| (id, &item.place))
    }

    /// The items that have come to an end, but for dead letters.
    pub(crate) fn ended(&self) -> impl Iterator<Item = &ItemId> {
        let ended = |item: &life::Item| item.place.is_end() && item.place != Place::Dead;
        self.items.iter().filter(move |(_, item)| ended(item)).map(|(id, _)| id)
    }

    /// Whether a session stands in the line.
    pub(crate) fn asks(&self, session: SessionId) -> bool {
        self.line.values().any(|want| want.lease.session == session)
    }

    /// What an operation added that is remembered.
    pub(crate) fn operation(&self, name: &[u8]) -> Option<&[ItemId]> {
        self.operations.get(name).map(|(_, items)| items.as_slice())
    }

    /// What is known of an item that is there: its state, what is stored of it, when it becomes ready, and how far it is.
    pub(crate) fn view(&self, id: &ItemId) -> Option<(ItemState, Stored, Option<Millis>, Option<Progress>)> {
        let item = self.items.get(id)?;
        let due = if let Place::Later(due) = item.place { Some(due) } else { None };
        let progress = if let Place::Leased(lease) = item.place {
            let held = self.leases.get(&lease)?;
            let index = held.items.iter().position(|(other, _)| other == id)?;
            held.progress.as_ref().and_then(|progress| progress.get(&index).cloned())
        } else {
            None
        };
        Some((item.state()?, item.stored(), due, progress))
    }

    /// The running items whose holders have said how far they are.
    pub(crate) fn with_progress(&self) -> impl Iterator<Item = &ItemId> {
        let held = self.leases.values().filter_map(|lease| Some((lease, lease.progress.as_ref()?)));
        held.flat_map(|(lease, progress)| progress.keys().map(|index| &lease.items[*index].0))
    }

    /// The payload that an item was pushed with.
    pub(crate) fn payload(&self, id: &ItemId) -> Option<&[u8]> {
        Some(&self.items.get(id)?.original)
    }

    /// The unique key of an item.
    pub(crate) fn unique_key(&self, id: &ItemId) -> Option<&[u8]> {
        self.items.get(id)?.meta.unique.as_deref()
    }

    /// The dead letters.
    pub(crate) fn dead(&self) -> impl Iterator<Item = &ItemId> {
        self.items.iter().filter(|(_, item)| item.place == Place::Dead).map(|(id, _)| id)
    }

    /// Whether an item of a lease was settled by its holder.
    pub(crate) fn is_settled(&self, lease: LeaseId, index: usize) -> bool {
        match (self.leases.get(&lease), self.lost.get(&lease)) {
            (Some(held), _) => held.items[index].1.is_none(),
            (None, Some(settled)) => settled[index],
            (None, None) => self.handed.contains_key(&lease),
        }
    }

    /// Whether an item was in this state at the version of a commit, or at one since; `None`: it was gone.
    pub(crate) fn was_since(&self, version: u64, id: &ItemId, state: Option<ItemState>) -> bool {
        let past = self.items.get(id).map(|item| item.past.as_slice()).unwrap_or_default();
        let first = past.partition_point(|was| was.since <= version).saturating_sub(1);
        past[first..].iter().any(|was| was.state == state)
    }

    /// Whether an item of a lease was cancelled.
    pub(crate) fn was_cancelled(&self, lease: LeaseId, index: usize) -> bool {
        self.cancelled_on.get(&lease).is_some_and(|cancelled| cancelled.contains(&index))
    }

    /// The items that were handed out on a lease, without the cancelled ones.
    pub(crate) fn left_on(&self, lease: LeaseId) -> impl Iterator<Item = &ItemId> {
        let handed = self.handed.get(&lease).into_iter().flatten().enumerate();
        handed.filter(move |(index, _)| !self.was_cancelled(lease, *index)).map(|(_, (id, _))| id)
    }

    /// The items that were handed out on a lease.
    pub(crate) fn handed_on(&self, lease: LeaseId) -> impl Iterator<Item = &ItemId> {
        self.handed.get(&lease).into_iter().flatten().map(|(id, _)| id)
    }

    /// Whether a taker was given what its lease holds.
    pub(crate) fn check_handed(&self, lease: LeaseId, items: &[Item]) -> Verdict {
        let Some(handed) = self.handed.get(&lease) else { return Err(format!("{lease:?} was invented")) };
        promise!(
            handed.len() == items.len(),
            "{lease:?} has {} items, {} were given",
            handed.len(),
            items.len()
        );
        // A session that finds its lease later finds what items have joined meanwhile.
        handed.iter().zip(items).try_for_each(|((id, stored), item)| {
            let given = item.meta.as_ref().map_or(0, |meta| meta.batches.len());
            let more = given.saturating_sub(stored.meta.batches.len());
            let joined = self.joined_on.get(&(lease, id.clone())).into_iter().flatten();
            let mut stored = stored.clone();
            stored.meta.batches.extend(joined.take(more).cloned());
            check_item(id, &stored, item)
        })
    }

    /// Whether an item that was given to a taker is what was pushed.
    pub(crate) fn check_content(&self, item: &Item) -> Verdict {
        let Some(ours) = self.items.get(&item.id) else { return Err(format!("{} was invented", item.id)) };
        check_item(&item.id, &ours.stored(), item)
    }
}

fn check_item(id: &ItemId, stored: &Stored, item: &Item) -> Verdict {
    promise!(*id == item.id, "{} was given in place of {id}", item.id);
    promise!(item.payload[..] == stored.payload[..], "{id} has another payload: {:?}", item.payload);
    let meta = essence(item.meta.as_deref().cloned().unwrap_or_default());
    promise!(meta == stored.meta, "{id} has {:?}, and was given with {meta:?}", stored.meta);
    let attempt = stored.meta.attempts + 1;
    promise!(item.attempt == attempt, "{id} was given for attempt {}, and it is {attempt}", item.attempt);
    Ok(())
}
