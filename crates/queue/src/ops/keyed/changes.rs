//! What the end of a lease, or of a wait, does to the index: slots become free, and keys get ready items.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use foundationdb::Transaction;
use foundationdb::future::FdbKeyValue;
use foundationdb::options::ConflictRangeType;
use futures::future::try_join_all;

use super::count_active;
use super::count_freed;
use super::count_running;
use super::holds;
use super::lanes;
use super::listing;
use super::pace;
use super::rules;
use super::suspects;
use crate::keys::keyed::{Cause, KeyedSpace, scopes, tenant};
use crate::keys::{Space, after};
use crate::model::error::QueueError;
use crate::model::holds::HoldCause;
use crate::model::id::ItemId;
use crate::model::limits::Scope;
use crate::model::rng::Rng;
use crate::model::session_id::SessionId;
use crate::ops::keyed::parked::Parked;
use crate::run::conflict;
use crate::run::range_read::RangeRead;
use mutant::mutant;

/// From how many parked keys an end of items chooses, at least. Two ends that choose the same key conflict.
const CHOICES: usize = 32;

/// Changes of the items of a transaction. For a queue without keys it notes and writes nothing.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// How many items of a key left their leases.
    freed: BTreeMap<Vec<u8>, usize>,
    /// How many items left the leases of a session.
    of_sessions: BTreeMap<SessionId, usize>,
    /// Made from the keys of these items and their numbers in their pushes, so that transactions that end other items choose other parked
    /// keys. A simulation can be repeated: stamps are not in it.
    seed: u64,
    /// Keys of items that became ready.
    ready: BTreeSet<Vec<u8>>,
    /// Keys of ready items that left the queue without a fetch.
    removed: BTreeSet<Vec<u8>>,
    /// Items that were scheduled or dead, and are not any more.
    back: BTreeSet<ItemId>,
    /// Items that were ready or on leases, and are scheduled or dead.
    away: Vec<(Vec<u8>, ItemId, HoldCause)>,
    /// Scopes of which nothing starts for a time.
    throttled: BTreeMap<Vec<u8>, Duration>,
}

impl Changes {
    /// An item has left its lease, which is this session's.
    pub(crate) fn left_lease(&mut self, space: &Space, id: &ItemId, session: SessionId) {
        if let Some(key) = key_of(space, id) {
            let number = id.as_bytes().last_chunk().map_or(0, |end| u16::from_be_bytes(*end));
            let mixed = |seed: u64, byte: &u8| (seed ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            self.seed = key.iter().fold(self.seed.rotate_left(1) ^ u64::from(number), mixed);
            *self.freed.entry(key).or_default() += 1;
            *self.of_sessions.entry(session).or_default() += 1;
        }
    }

    /// An item is ready.
    pub(crate) fn made_ready(&mut self, space: &Space, id: &ItemId) {
        if let Some(key) = key_of(space, id) {
            self.ready.insert(key);
        }
    }

    /// A ready item is not ready any more, and no fetch has taken it.
    pub(crate) fn removed_ready(&mut self, space: &Space, id: &ItemId) {
        if let Some(key) = key_of(space, id) {
            self.removed.insert(key);
        }
    }

    /// An item that was scheduled or dead is ready, or gone. A hold for it ends.
    pub(crate) fn came_back(&mut self, space: &Space, id: &ItemId) {
        if space.keyed.is_some() {
            self.back.insert(id.clone());
        }
    }

    /// An item that was ready or on a lease is scheduled or dead. If its key is ordered, this may hold the key.
    pub(crate) fn put_away(&mut self, space: &Space, id: &ItemId, cause: HoldCause) {
        if let Some(key) = key_of(space, id) {
            self.away.push((key, id.clone(), cause));
        }
    }

    /// Nothing of a scope of the item starts for this time. The empty key is no scope.
    pub(crate) fn throttled(&mut self, space: &Space, id: &ItemId, scope: Scope, wait: Duration) {
        let Some(key) = key_of(space, id) else { return };
        let name = match scope {
            Scope::Queue => Vec::new(),
            Scope::Tenant => tenant(&key).unwrap_or(&key).to_vec(),
            Scope::Key => key,
        };
        if scope == Scope::Queue || !name.is_empty() {
            let longest = self.throttled.entry(name).or_default();
            *longest = wait.max(*longest);
        }
    }

    /// Frees the slots, makes a parked key active for each, gives keys with new items a place, begins and ends holds, and throttles.
    pub(crate) async fn write(self, space: &Space, tr: &Transaction) -> Result<(), QueueError> {
        let Some(keyed) = &space.keyed else { return Ok(()) };
        let mut freed: BTreeMap<&[u8], usize> = BTreeMap::new();
        for (key, n) in &self.freed {
            scopes(key).for_each(|scope| *freed.entry(scope).or_default() += n);
        }
        let needs_rules = !freed.is_empty() || !self.away.is_empty();
        let book = if needs_rules { Some(rules::book(keyed, tr).await?) } else { None };
        let limits = |scope: &[u8]| book.as_ref().map(|book| book.limits(scope)).unwrap_or_default();
        let most_of_queue = limits(&[]).most_running().filter(|_| !freed.is_empty());
        let limited = freed.iter().filter(|(scope, _)| limits(scope).most_running().is_some());
        let limited: Vec<_> =
            limited.map(|(scope, n)| (*scope, *n)).filter(|(scope, _)| !scope.is_empty()).collect();
        let parked = next_parked(keyed, tr, &limited, Rng::seeded(self.seed)).await?;
        holds::end(keyed, tr, &self.back).await?;
        let other_first = self.ready.union(&self.removed).cloned().collect();
        suspects::unpark(keyed, tr, &other_first).await?;
        listing::unlisted(keyed, tr, self.ready).await?.list(keyed, tr);
        if let Some(most) = most_of_queue {
            freed.remove(&[][..]);
            for (session, n) in &self.of_sessions {
                lanes::count(keyed, tr, lanes::home(*session, u64::from(most)), minus(*n));
            }
            count_freed(keyed, tr);
        }
        for (scope, n) in &freed {
            count_running(keyed, tr, scope, minus(*n));
        }
        parked.iter().for_each(|parked| parked.unpark(keyed, tr));
        count_active(keyed, tr, parked.len());
        for (_, id, cause) in self.away.iter().filter(|(key, _, cause)| limits(key).holds_for(*cause)) {
            holds::begin(keyed, tr, id, *cause);
        }
        for (scope, wait) in &self.throttled {
            pace::throttle(keyed, tr, scope, *wait).await?;
        }
        Ok(())
    }
}

/// The parked keys that get the slots which become free: of each scope, so many. If no key of the queue is parked for a slot, it conflicts
/// with any transaction that parks one, since one range for all costs less than one for each scope.
async fn next_parked(
    keyed: &KeyedSpace,
    tr: &Transaction,
    freed: &[(&[u8], usize)],
    mut rng: Rng,
) -> Result<Vec<Parked>, QueueError> {
    let all = keyed.parked_for(Cause::Slot);
    if freed.len() > 1 && RangeRead::of(all.clone()).first_row_key(tr).await?.is_none() {
        exclude_parking(tr, &all, &keyed.free_range())?;
        return Ok(Vec::new());
    }
    let parked = freed.iter().map(|(scope, n)| choose_parked(keyed, tr, scope, *n, rng.split()));
    Ok(try_join_all(parked).await?.into_iter().flatten().collect())
}

/// `n` of the first keys that are parked under a scope for a slot, chosen at random: all ends of items of the scope would conflict if each
/// took the very first. It conflicts with a transaction that takes one of these; if there are fewer, with any that parks a key there.
///
/// Each of `n` slots then has a key that is made active for it, or no key is parked under the scope.
pub(crate) async fn choose_parked(
    keyed: &KeyedSpace,
    tr: &Transaction,
    scope: &[u8],
    n: usize,
    mut rng: Rng,
) -> Result<Vec<Parked>, QueueError> {
    let choices = if mutant("first-parked") { n } else { n.saturating_mul(4).max(CHOICES) };
    let range = keyed.parked_range(Cause::Slot, scope);
    let mut parked = read_parked(keyed, tr, range.clone(), choices).await?;
    if parked.len() < n {
        let free = keyed.free_key(scope);
        exclude_parking(tr, &range, &(free.clone(), after(&free)))?;
    } else {
        for at in 0..n {
            let other = at + rng.below(parked.len() - at);
            parked.swap(at, other);
        }
        parked.truncate(n);
    }
    for chosen in parked.iter().filter(|_| !mutant("chosen-without-conflict")) {
        conflict::as_reader(tr, &chosen.row)?;
    }
    Ok(parked)
}

/// Of this transaction, which has found too few parked keys, and one that parks a key, only the first commits. The one has a read
/// conflict on the parked keys, and the other one on a key that is never written, `free`.
fn exclude_parking(
    tr: &Transaction,
    parked: &(Vec<u8>, Vec<u8>),
    free: &(Vec<u8>, Vec<u8>),
) -> Result<(), QueueError> {
    if !mutant("parked-without-conflict") {
        tr.add_conflict_range(&parked.0, &parked.1, ConflictRangeType::Read)?;
    }
    Ok(tr.add_conflict_range(&free.0, &free.1, ConflictRangeType::Write)?)
}

/// The first `n` keys that wait for a scope for this cause. Read without a conflict.
pub(crate) async fn first_parked(
    keyed: &KeyedSpace,
    tr: &Transaction,
    (cause, scope): (Cause, &[u8]),
    n: usize,
) -> Result<Vec<Parked>, QueueError> {
    read_parked(keyed, tr, keyed.parked_range(cause, scope), n).await
}

/// After so many pages of parked keys none of which can be read, the others are left for another time.
const MOST_IN_VAIN: usize = 8;

/// The first `n` parked keys of a range; fewer if there are no more, or if very many rows before them cannot be read. Read without a conflict.
async fn read_parked(
    keyed: &KeyedSpace,
    tr: &Transaction,
    range: (Vec<u8>, Vec<u8>),
    n: usize,
) -> Result<Vec<Parked>, QueueError> {
    let decode = |row: &FdbKeyValue| Parked::decode(keyed, row.key()).map(|(_, parked)| parked);
    let mut pages = RangeRead::of(range).page_limit(n).pages(tr);
    let (mut parked, mut in_vain) = (Vec::new(), 0);
    while parked.len() < n
        && in_vain < MOST_IN_VAIN
        && let Some(page) = pages.next_page().await?
    {
        let before = parked.len();
        parked.extend(page.iter().filter_map(decode).take(n - before));
        in_vain += usize::from(parked.len() == before);
    }
    Ok(parked)
}

fn minus(n: usize) -> i64 {
    -i64::try_from(n).unwrap_or(i64::MAX)
}

fn key_of(space: &Space, id: &ItemId) -> Option<Vec<u8>> {
    space.keyed.as_ref()?;
    id.key()
}
