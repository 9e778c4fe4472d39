//! What holders of leases may do.

use kvqueue_queue::{ItemId, ItemOutcome, LeaseId, Progress, millis};

use super::{At, Model, Place, Verdict, promise};

impl Model {
    /// Items that are settled already are passed over.
    pub(super) fn settled(
        &mut self,
        id: LeaseId,
        settlements: &[(usize, ItemOutcome)],
        with_effects: bool,
        at: At,
    ) -> Verdict {
        let Some(mut lease) = self.leases.remove(&id) else {
            return Err(format!("the holder of {id:?} had lost it, and settled all the same"));
        };
        for (index, settlement) in settlements {
            let (item, stored) = &mut lease.items[*index];
            if stored.take().is_some() {
                self.settle(item, settlement, with_effects)?;
            }
        }
        self.spared += u64::from(lease.deadline < at.read && at.time < self.believed_until(id));
        if lease.items.iter().any(|(_, stored)| stored.is_some()) {
            lease.deadline = at.read + lease.length;
            lease.served = false;
            self.leases.insert(id, lease);
        }
        Ok(())
    }

    /// Reports on acknowledged items change nothing.
    pub(super) fn progressed(&mut self, id: LeaseId, news: &[(usize, Progress)]) -> Verdict {
        let Some(lease) = self.leases.get_mut(&id) else {
            return Err(format!("{id:?} is over, and extended"));
        };
        let mut progress = lease.progress.clone().unwrap_or_default();
        progress.extend(news.iter().cloned());
        progress.retain(|index, _| lease.items[*index].1.is_some());
        if !progress.is_empty() {
            lease.progress = Some(progress);
        }
        Ok(())
    }

    fn settle(&mut self, id: &ItemId, settlement: &ItemOutcome, with_effects: bool) -> Verdict {
        match settlement {
            ItemOutcome::Done | ItemOutcome::DoneWith(_) => {
                let item = self.moved(id, Place::Done)?;
                item.effects += u64::from(with_effects);
                promise!(item.effects <= 1, "the effects of {id} happened twice");
                if let ItemOutcome::DoneWith(result) = settlement {
                    self.ends.with_result(id, result.len());
                }
            }
            // As it was: the attempt does not count.
            ItemOutcome::Release | ItemOutcome::Throttle { .. } => {
                self.moved(id, Place::Ready)?;
                self.expires_again(id);
            }
            ItemOutcome::Postpone { due } => {
                self.moved(id, Place::Later(millis(*due)))?;
                self.expires_again(id);
            }
            ItemOutcome::Retry { due: None, failure } => self.moved(id, Place::Ready)?.failed(failure),
            ItemOutcome::Retry { due: Some(due), failure } => {
                self.moved(id, Place::Later(millis(*due)))?.failed(failure);
            }
            ItemOutcome::Expired { at, on_expiry } => self.found_expired(id, millis(*at), *on_expiry)?,
            ItemOutcome::Dead(failure) => {
                let item = self.moved(id, Place::Dead)?;
                item.failed(failure);
                item.meta.death = Some(failure.clone());
            }
        }
        Ok(())
    }
}
