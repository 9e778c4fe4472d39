//! Items that expire, if no attempt has begun by a time.

use std::collections::BTreeMap;

use kvqueue_queue::{ItemId, Meta, OnExpiry, from_millis, millis};

use super::{Model, Place, Sweeping, Verdict, promise};
use crate::world::Millis;

type Rows = BTreeMap<(Millis, ItemId), Vec<u8>>;

/// Whether no attempt has begun, and the item was no dead letter.
fn is_untried(meta: &Meta) -> bool {
    meta.attempts == 0 && meta.failures.is_empty()
}

/// An item has ended, or is a dead letter. The row that says until when its unique key is taken stays, unless it `frees_key`.
pub(super) fn cleared(rows: &mut Rows, id: &ItemId, meta: &Meta, frees_key: bool) {
    let mut times = vec![meta.expires.filter(|expires| frees_key || Some(*expires) != meta.unique_until)];
    if frees_key {
        times.push(meta.unique_until);
    }
    for time in times.into_iter().flatten() {
        rows.remove(&(millis(time), id.clone()));
    }
}

/// The key that is free at a time, if it is; otherwise nothing.
fn value(meta: &Meta, time: Millis) -> Vec<u8> {
    match &meta.unique {
        Some(key) if meta.unique_until == Some(from_millis(time)) => key.clone(),
        _ => Vec::new(),
    }
}

impl Model {
    /// Whether something is left of expiries.
    pub(crate) fn has_expiries(&self) -> bool {
        !self.expiry.is_empty()
    }

    /// An item waits, as it did before: it expires at its time.
    pub(super) fn expires_again(&mut self, id: &ItemId) {
        let Some(item) = self.items.get(id) else { return };
        if let Some(expires) = item.meta.expires.filter(|_| is_untried(&item.meta)) {
            self.expiry.insert((millis(expires), id.clone()), value(&item.meta, millis(expires)));
        }
    }

    /// A new item has its unique key for a time.
    pub(super) fn keeps_key(&mut self, id: &ItemId) {
        let Some(item) = self.items.get(id) else { return };
        if let Some(until) = item.meta.unique_until {
            self.expiry.insert((millis(until), id.clone()), value(&item.meta, millis(until)));
        }
    }

    /// By the sweeper's clock the time had come. Of the items that wait, those and no others expire that no attempt has begun with. What goes on
    /// running, or was tried before, does not. Unique keys are free whose time is over.
    pub(super) fn items_expired(
        &mut self,
        rows: &[(Millis, ItemId)],
        gone: &[ItemId],
        dead: &[ItemId],
        by: Sweeping,
    ) -> Verdict {
        let is_right = if by.on_expiry == OnExpiry::Dead { gone.is_empty() } else { dead.is_empty() };
        promise!(
            is_right,
            "{gone:?} left the queue and {dead:?} died, and expired items are to {:?}",
            by.on_expiry
        );
        let mut due = Vec::new();
        for (time, id) in rows {
            promise!(*time <= by.now, "the row of {id} was cleared at {}, before {time}", by.now);
            let key = self.expiry.remove(&(*time, id.clone()));
            let key = key.ok_or_else(|| format!("a row of {id} was cleared twice"))?;
            // It may be another item's by now.
            if !key.is_empty() {
                let is_own = self.unique.get(&key) == Some(id);
                is_own.then(|| self.unique.remove(&key));
                self.keys_freed += u64::from(is_own);
            }
            let item = self.items.get(id).ok_or_else(|| format!("{id} was invented"))?;
            let waits = matches!(item.place, Place::Ready | Place::Later(_));
            if waits && is_untried(&item.meta) && item.meta.expires == Some(from_millis(*time)) {
                due.push(id.clone());
            }
        }
        let mut ended = [gone, dead].concat();
        due.sort();
        ended.sort();
        promise!(due == ended, "{ended:?} expired at {}, and {due:?} should have", by.now);
        for id in ended {
            // One that waits for its time counts as if that had come, and the item had been popped.
            let waits = matches!(self.items.get(&id).map(|item| &item.place), Some(Place::Later(_)));
            self.counters.npush += u64::from(waits);
            self.counters.npop += u64::from(waits);
            self.ends_expired(&id, by.now, by.on_expiry)?;
        }
        Ok(())
    }

    /// A holder finds, by its own clock, that an item had expired, and does not begin with it.
    pub(super) fn found_expired(&mut self, id: &ItemId, at: Millis, on_expiry: OnExpiry) -> Verdict {
        let meta = &self.items.get(id).ok_or_else(|| format!("{id} was invented"))?.meta;
        let has_expired = is_untried(meta) && meta.expires.is_some_and(|expires| expires <= from_millis(at));
        promise!(has_expired, "{id} expired at {at}, and has {meta:?}");
        self.ends_expired(id, at, on_expiry)
    }

    fn ends_expired(&mut self, id: &ItemId, at: Millis, on_expiry: OnExpiry) -> Verdict {
        match on_expiry {
            OnExpiry::Drop => self.moved(id, Place::Expired).map(drop),
            OnExpiry::Dead => {
                self.moved(id, Place::Dead)?.expired(at);
                Ok(())
            }
        }
    }
}
