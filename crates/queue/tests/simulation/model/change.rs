//! What operators may do to single items.

use kvqueue_queue::{ItemId, ItemState, LeaseId};

use super::{At, ItemChanged, Model, Place, Verdict, promise};

/// How long it is known what was cancelled on a lease that is over, from its deadline on or from the cancellation on, in versions.
const KNOWN: u64 = 60_000_000;

impl Model {
    pub(super) fn item_changed(
        &mut self,
        id: &ItemId,
        from: ItemState,
        what: &ItemChanged,
        at: At,
    ) -> Verdict {
        let state = self.items.get(id).and_then(|item| item.state());
        promise!(state == Some(from), "{id} was {from:?} in the database, and is {state:?}");
        match what {
            ItemChanged::Cancelled => self.cancelled(id, at),
            ItemChanged::Rescheduled(due) => {
                let next = due.map_or(Place::Ready, Place::Later);
                self.moved(id, next)?;
                // It came back, though nobody has had it.
                self.counters.nback += u64::from(from == ItemState::Ready);
                Ok(())
            }
            ItemChanged::Retried => self.revived(id),
            ItemChanged::Edited(payload) => {
                promise!(from != ItemState::Running, "{id} got another payload while it ran");
                let item = self.items.get_mut(id).ok_or_else(|| format!("{id} was invented"))?;
                item.payload.clone_from(payload);
                Ok(())
            }
        }
    }

    /// A running item ends on its lease, which goes on for the others. One that waits counts as if its time had come, and it had been popped.
    fn cancelled(&mut self, id: &ItemId, at: At) -> Verdict {
        let place = self.items.get(id).map(|item| item.place.clone());
        self.moved(id, Place::Cancelled)?;
        match place {
            Some(Place::Later(_)) => {
                self.counters.npush += 1;
                self.counters.npop += 1;
            }
            Some(Place::Leased(lease)) => return self.cancelled_on_lease(id, lease, at),
            _ => {}
        }
        Ok(())
    }

    fn cancelled_on_lease(&mut self, id: &ItemId, lease: LeaseId, at: At) -> Verdict {
        let Some(held) = self.leases.get_mut(&lease) else {
            return Err(format!("{id} was cancelled on {lease:?}, which is over"));
        };
        let index = held.items.iter().position(|(item, _)| item == id);
        let index = index.ok_or_else(|| format!("{id} is not on {lease:?}"))?;
        held.items[index].1 = None;
        let until = held.deadline.max(at.read).saturating_add(KNOWN);
        if held.items.iter().all(|(_, stored)| stored.is_none()) {
            self.leases.remove(&lease);
        }
        let record = self.cancelled.entry(lease).or_default();
        record.until = record.until.max(until);
        record.items.insert(index, id.clone());
        self.cancelled_on.entry(lease).or_default().insert(index);
        self.counters.ncancel += 1;
        Ok(())
    }

    /// What was cancelled on a lease is known until its holder has got to know it, or for a while after the lease's deadline.
    pub(super) fn cancelled_forgotten(&mut self, lease: LeaseId, by_holder: bool, at: At) -> Verdict {
        let Some(record) = self.cancelled.remove(&lease) else {
            return Err(format!("what was cancelled on {lease:?} was forgotten twice"));
        };
        let is_over = !self.leases.contains_key(&lease);
        promise!(
            is_over && (by_holder || record.until < at.read),
            "at {} it was forgotten what was cancelled on {lease:?}: {record:?}",
            at.read
        );
        Ok(())
    }
}
