//! Writing the lease of a fetch.

use std::num::NonZeroUsize;

use foundationdb::Transaction;
use foundationdb::options::TransactionOption;
use futures::future::try_join_all;

use super::Session;
use crate::client::lease::Lease;
use crate::client::session::unresolved::Unsure;
use crate::client::suspects::Ward;
use crate::keys::Space;
use crate::keys::leases::{Header, Held};
use crate::model::error::QueueError;
use crate::model::item::Item;
use crate::model::lease_id::LeaseId;
use crate::model::suspicion::Suspicion;
use crate::ops::lease::row;
use crate::ops::scan::Row;
use crate::ops::{lease, scan};
use crate::run::version::now;

/// How many leases of unknown outcome are remembered. Each attempt looks for the earlier ones, all
/// at once. It has to look for every one: an attempt that was not found may still commit, and then
/// the attempt that looked fails.
const MAX_UNSURE: usize = 256;

/// A lease that a transaction makes if it commits.
struct Made {
    id: LeaseId,
    header: Header,
    items: Vec<Item>,
    held: Vec<Held>,
}

impl Session {
    /// Writes the leases of rows that the transaction removes: of each share the most items, and
    /// the length. `began` is a time before it, by the session's history.
    pub(super) async fn put_leases(
        &mut self,
        tr: &Transaction,
        shares: &[(NonZeroUsize, u64)],
        rows: Vec<Row>,
        began: Option<u64>,
    ) -> Result<Vec<Lease>, QueueError> {
        let space = self.queue.space().clone();
        let mut items = scan::items(&space, tr, &rows).await?;
        let mut held = lease::hold(rows);
        let version = now(tr).await?;
        let mut made = Vec::new();
        for (k, length) in shares {
            if held.is_empty() {
                break;
            }
            let n = k.get().min(held.len());
            let (more_items, more_held) = (items.split_off(n), held.split_off(n));
            let id = LeaseId { session: self.id, number: self.next_attempt() };
            let header = lease::put(&space, tr, id, (version.saturating_add(*length), *length), &held);
            made.push(Made { id, header, items, held });
            (items, held) = (more_items, more_held);
        }
        self.hold(tr, made, began)
    }

    /// Takes over a lease that another session has written for this one. Its time begins now, and
    /// so does the attempt.
    pub(super) async fn take_up(
        &mut self,
        tr: &Transaction,
        id: LeaseId,
        header: Header,
        held: Vec<Held>,
        began: Option<u64>,
    ) -> Result<Vec<Lease>, QueueError> {
        let space = self.queue.space().clone();
        let items = served_items(&space, tr, &header, &held).await?;
        let deadline = now(tr).await?.saturating_add(header.length);
        let header = Header { served: false, deadline, ..header };
        lease::update(&space, tr, id, &header);
        self.hold(tr, vec![Made { id, header, items, held }], began)
    }

    /// The leases that a transaction makes if it commits.
    fn hold(
        &mut self,
        tr: &Transaction,
        made: Vec<Made>,
        began: Option<u64>,
    ) -> Result<Vec<Lease>, QueueError> {
        let space = self.queue.space().clone();
        // If a power failure undoes the lease, its items are ready, as after its end. So it need
        // not be on the disk before they are handled; their outcomes are written after it. A
        // cluster ignores the option.
        tr.set_option(TransactionOption::DurabilityRisky)?;
        lease::fence(&space, tr, self.id)?;
        let attempt = made.first().map_or(0, |made| made.id.number);
        for Made { id, items, held, .. } in &made {
            if self.unsure.len() == MAX_UNSURE {
                self.unsure.pop_front();
            }
            let (items, held) = (items.clone(), held.clone());
            self.unsure.push_back(Unsure { id: *id, items, held, attempt });
        }
        let leases = made.into_iter().map(|Made { id, header, items, held }| {
            let ward = self.ward.take().or_else(|| self.enter(&items));
            Lease::new(space.clone(), id, &header, items, held, ward)
                .never_held()
                .with_history(self.history.as_ref())
                .changed_since(began)
        });
        Ok(leases.collect())
    }

    /// The attempt that was prepared last has not committed. An earlier attempt to take up the same lease may have, so it stays.
    pub(super) fn forget_last_attempt(&mut self) {
        let Some(last) = self.unsure.back().map(|unsure| unsure.attempt) else { return };
        let mut forgotten = Vec::new();
        while let Some(unsure) =
            self.unsure.pop_back_if(|it| it.attempt == last && !forgotten.contains(&it.id))
        {
            forgotten.push(unsure.id);
        }
    }

    /// Enters the suspects among the items into the quarantine, if it is empty.
    fn enter(&self, items: &[Item]) -> Option<Ward> {
        let crashes = items.iter().filter_map(|item| item.meta.as_ref()).map(|meta| meta.crashes).max();
        let suspicion = Suspicion::of(crashes.unwrap_or(0));
        (suspicion > Suspicion::None).then(|| self.quarantine.enter(&self.queue.space().ready, suspicion))?
    }

    /// A lease of an earlier fetch of unknown outcome, if that has committed and the lease is not
    /// lost. The other leases of that fetch are found later.
    pub(super) async fn find_unsure(&mut self, tr: &Transaction) -> Result<Option<Lease>, QueueError> {
        let space = self.queue.space().clone();
        let headers =
            try_join_all(self.unsure.iter().map(|unsure| lease::header(&space, tr, unsure.id))).await?;
        // A lease that another session wrote for this one is not taken up yet.
        let mut found =
            (0..).zip(headers).filter_map(|(at, header)| Some((at, header.filter(|it| !it.served)?)));
        let Some((at, header)) = found.next() else { return Ok(None) };
        let Some(Unsure { id, items, held, attempt }) = self.unsure.remove(at) else { return Ok(None) };
        self.unsure.retain(|unsure| unsure.attempt == attempt && unsure.id != id);
        self.asked.clear();
        let ward = self.enter(&items);
        let lease = Lease::new(space, id, &header, items, held, ward);
        Ok(Some(lease.never_held().with_history(self.history.as_ref())))
    }
}

/// The items of a lease that another session wrote. A cancelled one has no more of its payload than the lease has.
async fn served_items(
    space: &Space,
    tr: &Transaction,
    header: &Header,
    held: &[Held],
) -> Result<Vec<Item>, QueueError> {
    let rows: Vec<Row> = held.iter().map(row).collect();
    if header.acknowledged.is_empty() {
        return scan::items(space, tr, &rows).await;
    }
    let mut items = scan::beginnings(space, &rows)?;
    let open: Vec<usize> = header.acknowledged.open().collect();
    let open_rows: Vec<Row> = open.iter().map(|index| rows[*index].clone()).collect();
    for (index, item) in open.into_iter().zip(scan::items(space, tr, &open_rows).await?) {
        items[index] = item;
    }
    Ok(items)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::queue::Queue;
    use crate::model::session_id::SessionId;

    /// What remains of these leases, each with its attempt, after the last attempt has failed.
    fn remaining(unsure: &[(u64, u64)]) -> Vec<u64> {
        let mut session = Session::new(Queue::new(b"", b"q").unwrap());
        let id = |number| LeaseId { session: SessionId([1; 16]), number };
        let unsure = unsure.iter().map(|(number, attempt)| Unsure {
            id: id(*number),
            items: Vec::new(),
            held: Vec::new(),
            attempt: *attempt,
        });
        session.unsure.extend(unsure);
        session.forget_last_attempt();
        session.unsure.iter().map(|unsure| unsure.id.number).collect()
    }

    #[test]
    fn a_failed_attempt_is_forgotten_and_an_earlier_one_for_the_same_lease_is_not() {
        assert_eq!(remaining(&[]), [] as [u64; 0]);
        assert_eq!(remaining(&[(1, 1), (2, 2)]), [1]);
        // An attempt that made three leases.
        assert_eq!(remaining(&[(1, 1), (2, 2), (3, 2), (4, 2)]), [1]);
        // Two attempts to take up the lease that another session wrote. The first may have committed.
        assert_eq!(remaining(&[(1, 1), (2, 2), (2, 2)]), [1, 2]);
    }
}
