//! What the end of a lease, or of a wait, does to the index: slots become free, and keys get ready items.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use foundationdb::options::{ConflictRangeType, StreamingMode};
use foundationdb::{RangeOption, Transaction};
use futures::future::try_join_all;
use mutant::mutant;

use super::{activate, count_active, count_running, holds, listing, pace, rules};
use crate::error::QueueError;
use crate::id::ItemId;
use crate::keys::Space;
use crate::keys::keyed::{Cause, HoldCause, KeyedSpace, ParkedRow, scopes, tenant};
use crate::limits::Scope;

/// Changes of the items of a transaction. For a queue without keys it notes and writes nothing.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// How many items of a key left their leases.
    freed: BTreeMap<Vec<u8>, usize>,
    /// Keys of items that became ready.
    ready: BTreeSet<Vec<u8>>,
    /// Items that were scheduled or dead, and are not any more.
    back: BTreeSet<ItemId>,
    /// Items that were ready or on leases, and are scheduled or dead.
    away: Vec<(Vec<u8>, ItemId, HoldCause)>,
    /// Scopes of which nothing starts for a time.
    throttled: BTreeMap<Vec<u8>, Duration>,
}

impl Changes {
    /// An item has left its lease.
    pub(crate) fn left_lease(&mut self, space: &Space, id: &ItemId) {
        if let Some(key) = key_of(space, id) {
            *self.freed.entry(key).or_default() += 1;
        }
    }

    /// An item is ready.
    pub(crate) fn made_ready(&mut self, space: &Space, id: &ItemId) {
        if let Some(key) = key_of(space, id) {
            self.ready.insert(key);
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
        let limited = freed.iter().filter(|(scope, _)| limits(scope).most_running().is_some());
        let limited: Vec<_> = limited.map(|(scope, n)| (*scope, *n)).collect();
        let parked = next_parked(keyed, tr, &limited).await?;
        holds::end(keyed, tr, &self.back).await?;
        listing::unlisted(keyed, tr, self.ready).await?.list(keyed, tr);
        for (scope, n) in &freed {
            count_running(keyed, tr, scope, -i64::try_from(*n).unwrap_or(i64::MAX));
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

/// A key that waits for a scope.
#[derive(Debug)]
pub(crate) struct Parked {
    pub(crate) row: Vec<u8>,
    pub(crate) position: u64,
    pub(crate) key: Vec<u8>,
}

impl Parked {
    /// Reads a row of parked keys.
    pub(crate) fn decode(keyed: &KeyedSpace, row: &[u8]) -> Option<(Cause, Vec<u8>, Parked)> {
        let ParkedRow { cause, scope, position, key } = keyed.decode_parked(row)?;
        Some((cause, scope, Parked { row: row.to_vec(), position, key }))
    }

    /// Makes the key active.
    pub(crate) fn unpark(&self, keyed: &KeyedSpace, tr: &Transaction) {
        tr.clear(&self.row);
        activate(keyed, tr, self.position, &self.key);
    }
}

/// The parked keys that get the slots which become free: of each scope, so many. Conflicts with a transaction that parks a key there; if no key of the queue is parked for a slot,
/// with any that parks one, since one range for all costs less than one for each scope.
async fn next_parked(
    keyed: &KeyedSpace,
    tr: &Transaction,
    freed: &[(&[u8], usize)],
) -> Result<Vec<Parked>, QueueError> {
    let snapshot = mutant("parked-without-conflict");
    let (begin, end) = keyed.parked_for(Cause::Slot);
    if freed.len() > 1 && holds::first_row(tr, (begin.clone(), end.clone()), true).await?.is_none() {
        if !snapshot {
            tr.add_conflict_range(&begin, &end, ConflictRangeType::Read)?;
        }
        return Ok(Vec::new());
    }
    let parked = freed.iter().map(|(scope, n)| first_parked(keyed, tr, (Cause::Slot, scope), *n, snapshot));
    Ok(try_join_all(parked).await?.into_iter().flatten().collect())
}

/// The first `n` keys that wait for a scope for this cause. Without `snapshot` it conflicts with a transaction that parks a key there, if there are
/// fewer.
pub(crate) async fn first_parked(
    keyed: &KeyedSpace,
    tr: &Transaction,
    (cause, scope): (Cause, &[u8]),
    n: usize,
    snapshot: bool,
) -> Result<Vec<Parked>, QueueError> {
    let option = RangeOption {
        limit: Some(n),
        mode: StreamingMode::WantAll,
        ..RangeOption::from(keyed.parked_range(cause, scope))
    };
    let rows = tr.get_range(&option, 1, snapshot).await?;
    Ok(rows.iter().filter_map(|row| Parked::decode(keyed, row.key())).map(|(_, _, parked)| parked).collect())
}

fn key_of(space: &Space, id: &ItemId) -> Option<Vec<u8>> {
    space.keyed.as_ref()?;
    id.key()
}
