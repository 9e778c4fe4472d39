//! Items that are in the queue, or were there, and join batches.

use std::collections::{BTreeMap, BTreeSet};

use kvqueue_queue::item_batch::{BatchId, Join};
use kvqueue_queue::{Ending, ItemId, ItemState};

use super::{At, Model, Place, Verdict, promise};

impl Model {
    /// Each of these items becomes a member, unless it is one. One that has ended counts as a member that has.
    pub(super) fn joined(&mut self, batch: &BatchId, items: &[ItemId], at: At) -> Verdict {
        promise!(self.frozen.is_none(), "{items:?} joined {batch} while the queue was frozen");
        for id in items.iter().collect::<BTreeSet<_>>() {
            let join = self.join_of(batch, id, at.read);
            match join {
                Join::Joined(state) => self.becomes_member(batch, id, state)?,
                Join::Ended(ending) => self.members.join_ended(batch, ending),
                Join::WasMember | Join::Gone => {}
            }
            self.joins.insert(id.clone(), join);
        }
        Ok(())
    }

    /// What a join makes of an item, by what that was at a version. An end that the history has lost is not known.
    pub(crate) fn join_of(&self, batch: &BatchId, id: &ItemId, version: u64) -> Join {
        let then = self.items.get(id).and_then(|item| item.then(version));
        match then.and_then(|was| Some((was.state?, &was.batches))) {
            Some((ItemState::Dead, _)) => Join::Ended(Ending::Dead),
            Some((_, batches)) if batches.contains(batch) => Join::WasMember,
            Some((state, _)) => Join::Joined(state),
            None => self.ends.last_of(id, version).map_or(Join::Gone, Join::Ended),
        }
    }

    /// Nothing has moved the item since the transaction looked.
    fn becomes_member(&mut self, batch: &BatchId, id: &ItemId, state: ItemState) -> Verdict {
        let item = self.items.get_mut(id).ok_or_else(|| format!("{id} was invented"))?;
        promise!(
            item.state() == Some(state) && !item.meta.batches.contains(batch),
            "{id} was {state:?} when it was to join {batch}, and then another moved it: {item:?}"
        );
        item.meta.batches.push(batch.clone());
        self.touched.insert(id.clone());
        self.members.push(batch);
        let Place::Leased(lease) = item.place else { return Ok(()) };
        item.has_joined = true;
        let held = self.leases.get_mut(&lease).into_iter().flat_map(|held| &mut held.items);
        let mut stored = held.filter(|(item, _)| item == id).filter_map(|(_, stored)| stored.as_mut());
        let stored = stored.next().ok_or_else(|| format!("{id} is not on {lease:?}"))?;
        stored.meta.batches.push(batch.clone());
        self.joined_on.entry((lease, id.clone())).or_default().push(batch.clone());
        Ok(())
    }

    /// What the last transaction made of items that were to join a batch.
    pub(crate) fn take_joins(&mut self) -> BTreeMap<ItemId, Join> {
        std::mem::take(&mut self.joins)
    }
}
