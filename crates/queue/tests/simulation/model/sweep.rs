//! What sweepers and operators may do.

use std::collections::BTreeMap;

use kvqueue_queue::{Failure, ItemId, LeaseId, from_millis, millis};

use super::{At, Model, Place, Sweeping, Verdict, promise};
use crate::desk::MAX_SKEW;
use crate::world::Millis;

impl Model {
    /// A lease is taken away once its deadline is past, and its holder's own clock has told it so. Its worker may have died of its items:
    /// that counts, unless nobody has picked it up.
    pub(super) fn expired(
        &mut self,
        id: LeaseId,
        due: &BTreeMap<ItemId, Millis>,
        by: Sweeping,
        at: At,
    ) -> Verdict {
        let Some(lease) = self.leases.remove(&id) else { return Err(format!("{id:?} was taken away twice")) };
        promise!(lease.deadline < at.read, "{id:?} was taken away at {}, before {}", at.read, lease.deadline);
        let held_until = self.believed_until(id);
        promise!(
            held_until <= at.time,
            "{id:?} was taken away at {} microseconds, and its holder counts on it until {held_until}",
            at.time
        );
        self.lost.insert(id, lease.items.iter().map(|(_, stored)| stored.is_none()).collect());
        for (item, _) in lease.items.into_iter().filter(|(_, stored)| stored.is_some()) {
            match lease.served {
                true => {
                    self.moved(&item, Place::Ready)?;
                    self.expires_again(&item);
                }
                false => self.crashed(&item, due.get(&item).copied(), by)?,
            }
        }
        Ok(())
    }

    /// A crash spends an attempt, and the item waits for the next one like one whose handler failed.
    fn crashed(&mut self, id: &ItemId, due: Option<Millis>, by: Sweeping) -> Verdict {
        let attempt = self.items.get(id).map_or(0, |item| item.meta.attempts + 1);
        let is_last = attempt >= by.max_attempts;
        // Words are not what this is about: in the image there are none of the sweeper's.
        let failure = Failure::new(from_millis(by.now), attempt, "");
        let pause = by.pause << attempt.saturating_sub(1).min(by.max_attempts);
        let next = match due {
            _ if is_last => Place::Dead,
            Some(due) => {
                let pauses = by.now + pause / 2..=by.now + pause;
                promise!(pauses.contains(&due), "{id} crashed at {}, and is to wait until {due}", by.now);
                Place::Later(due)
            }
            None => {
                promise!(pause == 0, "{id} crashed, and did not wait for its next attempt");
                Place::Ready
            }
        };
        let item = self.moved(id, next)?;
        item.meta.crashes += 1;
        item.failed(&failure);
        item.meta.death = is_last.then_some(failure);
        Ok(())
    }

    /// One that waits for its time counts as if that had come, and the item had been popped.
    pub(super) fn deleted(&mut self, id: &ItemId) -> Verdict {
        let waits = matches!(self.items.get(id).map(|item| &item.place), Some(Place::Later(_)));
        self.moved(id, Place::Purged)?;
        self.counters.npush += u64::from(waits);
        self.counters.npop += u64::from(waits);
        Ok(())
    }

    /// An item does not become ready before its time.
    pub(super) fn promoted(&mut self, items: &[(Millis, ItemId)], by: Sweeping) -> Verdict {
        for (due, id) in items {
            promise!(*due <= by.now, "{id} was made ready at {}, before {due}", by.now);
            self.moved(id, Place::Ready)?;
        }
        Ok(())
    }

    /// A dead letter is kept for the retention, by the clocks of the process in which its item died, and of the sweeper.
    pub(super) fn letters_removed(&mut self, items: &[ItemId], by: Sweeping) -> Verdict {
        let kept = by.letters_kept.ok_or_else(|| format!("{items:?} were removed, and are to be kept"))?;
        for id in items {
            let death = self.items.get(id).and_then(|item| item.meta.death.as_ref());
            let died = death.map(|death| millis(death.at));
            let is_old = died.is_some_and(|died| died.saturating_add(kept) <= by.now);
            promise!(
                is_old,
                "{id} died at {died:?}, and was removed at {}, before {kept} ms had passed",
                by.now
            );
            self.moved(id, Place::Purged)?;
        }
        Ok(())
    }

    /// An operation is remembered for its window, however versions jump. Clocks on walls may have been set since, and those of
    /// two sweepers differ.
    pub(super) fn forgotten(&mut self, operations: &[Vec<u8>], by: Sweeping, at: At) -> Verdict {
        for name in operations {
            let Some((done, _)) = self.operations.remove(name) else {
                return Err("forgotten twice".to_owned());
            };
            promise!(
                done.commit + by.kept < at.read,
                "operation {} was forgotten early",
                name.escape_ascii()
            );
            let age = at.clock.saturating_sub(done.clock);
            let perhaps = age + (at.turns - done.turns) + 2 * MAX_SKEW;
            promise!(
                perhaps >= by.kept / 1_000,
                "operation {} was forgotten after {age} ms, perhaps {perhaps}",
                name.escape_ascii()
            );
        }
        Ok(())
    }

    /// A dead letter begins again; how its attempts ended stays known.
    pub(super) fn revived(&mut self, id: &ItemId) -> Verdict {
        let item = self.moved(id, Place::Ready)?;
        (item.meta.attempts, item.meta.crashes, item.meta.death) = (0, 0, None);
        // It did not wait for its first attempt, so it never expires. Its unique key is its own until it ends.
        (item.meta.expires, item.meta.unique_until) = (None, None);
        if let Some(key) = item.meta.unique.clone() {
            let holder = self.unique.insert(key, id.clone());
            promise!(holder.is_none(), "{id} was revived, and there is {holder:?} under its unique key");
        }
        Ok(())
    }
}
