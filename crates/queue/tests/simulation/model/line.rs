//! The requests to be served, and the sessions that serve them.

use kvqueue_queue::{LeaseId, Stamp};

use super::{At, Model, Place, Verdict, promise};
use crate::image::Want;

/// How long a lease lasts, in versions, with which somebody is served who has yet to take it up.
pub(crate) const PICK_UP: u64 = 5_000_000;

impl Model {
    pub(super) fn asked(&mut self, stamp: Stamp, want: Want, at: At) -> Verdict {
        promise!(self.line.last_key_value().is_none_or(|(last, _)| *last < stamp), "{want:?} has pushed in");
        promise!(want.deadline > at.read, "{want:?} ran out before it was made");
        self.next_attempt(want.lease)?;
        self.line.insert(stamp, want);
        Ok(())
    }

    pub(super) fn left(&mut self, stamp: Stamp) -> Verdict {
        promise!(self.line.remove(&stamp).is_some(), "a request left the line twice");
        Ok(())
    }

    /// Only what nobody may serve any more is cleared by others.
    pub(super) fn overdue(&mut self, stamp: Stamp, at: At) -> Verdict {
        let Some(want) = self.line.remove(&stamp) else {
            return Err("a request was cleared twice".to_owned());
        };
        promise!(want.deadline < at.read, "{want:?} was cleared at {}, before its time", at.read);
        Ok(())
    }

    /// A request is served once, in its turn; with a lease under its own name, or, by its own session, under a new one or for good.
    pub(super) fn served(&mut self, stamp: Stamp, lease: Option<LeaseId>, at: At) -> Verdict {
        let Some(want) = self.line.remove(&stamp) else {
            return Err(format!("{lease:?} serves nobody who asked"));
        };
        if let Some(lease) = lease.filter(|lease| *lease != want.lease) {
            promise!(lease.session == want.lease.session, "{want:?} was served with {lease:?}");
            self.next_attempt(lease)?;
        }
        let first = self.seen_at(at.read).line.iter().find_map(|stamp| Some((stamp, self.line.get(stamp)?)));
        // One that has run out is passed over.
        let is_first = first.is_none_or(|(first, other)| *first > stamp || other.deadline < at.read);
        promise!(is_first, "{want:?} was served before {first:?}");
        Ok(())
    }

    /// What a request on a lease was served with has reached it: from then on the lease is as long as was asked for.
    pub(super) fn taken_up(&mut self, id: LeaseId, at: At) -> Verdict {
        promise!(self.leases.get(&id).is_some_and(|lease| lease.served), "{id:?} was taken up twice");
        self.settled(id, &[], false, at)
    }

    /// What a request for good was served with has reached it.
    pub(super) fn picked_up(&mut self, id: LeaseId) -> Verdict {
        let Some(lease) = self.leases.remove(&id) else {
            return Err(format!("{id:?} was picked up, and was lost"));
        };
        for (index, (item, stored)) in lease.items.into_iter().enumerate() {
            if self.was_cancelled(id, index) {
                continue;
            }
            promise!(stored.is_some(), "{item} was picked up after it was settled");
            self.moved(&item, Place::Taken)?;
        }
        Ok(())
    }
}
