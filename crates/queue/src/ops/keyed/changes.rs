//! What the end of a lease, or of a wait, does to the index: slots become free, and keys get ready items.

use std::collections::{BTreeMap, BTreeSet};

use foundationdb::options::StreamingMode;
use foundationdb::{RangeOption, Transaction};
use futures::future::try_join_all;
use mutant::mutant;

use super::{activate, count_active, count_running, listing, rules};
use crate::error::QueueError;
use crate::id::ItemId;
use crate::keys::Space;
use crate::keys::keyed::{KeyedSpace, scopes};

/// Changes of the items of a transaction. For a queue without keys it notes and writes nothing.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// How many items of a key left their leases.
    freed: BTreeMap<Vec<u8>, usize>,
    /// Keys of items that became ready.
    ready: BTreeSet<Vec<u8>>,
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

    /// Frees the slots, makes a parked key active for each, and gives keys with new items a place.
    pub(crate) async fn write(self, space: &Space, tr: &Transaction) -> Result<(), QueueError> {
        let Some(keyed) = &space.keyed else { return Ok(()) };
        let mut freed: BTreeMap<&[u8], usize> = BTreeMap::new();
        for (key, n) in &self.freed {
            scopes(key).for_each(|scope| *freed.entry(scope).or_default() += n);
        }
        let book = if freed.is_empty() { None } else { Some(rules::book(keyed, tr).await?) };
        let is_limited =
            |scope: &[u8]| book.as_ref().is_some_and(|book| book.limits(scope).most_running().is_some());
        let limited = freed.iter().filter(|(scope, _)| is_limited(scope));
        let parked = try_join_all(
            limited.map(|(scope, n)| first_parked(keyed, tr, scope, *n, mutant("parked-without-conflict"))),
        )
        .await?;
        listing::unlisted(keyed, tr, self.ready).await?.list(keyed, tr);
        for (scope, n) in &freed {
            count_running(keyed, tr, scope, -i64::try_from(*n).unwrap_or(i64::MAX));
        }
        let parked: Vec<_> = parked.into_iter().flatten().collect();
        parked.iter().for_each(|parked| parked.unpark(keyed, tr));
        count_active(keyed, tr, parked.len());
        Ok(())
    }
}

/// A key that waits for a scope.
#[derive(Debug)]
pub(crate) struct Parked {
    pub(crate) row: Vec<u8>,
    position: u64,
    key: Vec<u8>,
}

impl Parked {
    /// Reads a row of parked keys.
    pub(crate) fn decode(keyed: &KeyedSpace, row: &[u8]) -> Option<(Vec<u8>, Parked)> {
        let (scope, position, key) = keyed.decode_parked(row)?;
        Some((scope, Parked { row: row.to_vec(), position, key }))
    }

    /// Makes the key active.
    pub(crate) fn unpark(&self, keyed: &KeyedSpace, tr: &Transaction) {
        tr.clear(&self.row);
        activate(keyed, tr, self.position, &self.key);
    }
}

/// The first `n` keys that wait for a scope. Without `snapshot` it conflicts with a transaction that parks a key there, if there are
/// fewer.
pub(crate) async fn first_parked(
    keyed: &KeyedSpace,
    tr: &Transaction,
    scope: &[u8],
    n: usize,
    snapshot: bool,
) -> Result<Vec<Parked>, QueueError> {
    let option = RangeOption {
        limit: Some(n),
        mode: StreamingMode::WantAll,
        ..RangeOption::from(keyed.parked_range(scope))
    };
    let rows = tr.get_range(&option, 1, snapshot).await?;
    Ok(rows.iter().filter_map(|row| Parked::decode(keyed, row.key())).map(|(_, parked)| parked).collect())
}

fn key_of(space: &Space, id: &ItemId) -> Option<Vec<u8>> {
    space.keyed.as_ref()?;
    id.key()
}
