//! What producers may do.

use std::collections::BTreeMap;

use kvqueue_queue::{IfTaken, ItemId, ItemState, Kind, Meta, NewItem, from_millis};

use super::{At, Model, Verdict, promise};
use crate::image::{integers, key_of};
use crate::model::expiry;
use crate::model::life::{Item, Place};

/// A session that has seen the queue unfrozen pushes on for this many versions.
const FREEZE_KNOWN: u64 = 100_000;

impl Model {
    pub(super) fn pushed(
        &mut self,
        items: &[(ItemId, NewItem)],
        operation: Option<&[u8]>,
        at: At,
    ) -> Verdict {
        self.check_places(items, at)?;
        let refused_from = self.frozen.map(|version| version + FREEZE_KNOWN);
        promise!(
            items.is_empty() || refused_from.is_none_or(|version| at.read < version),
            "{items:?} were pushed to a queue that was frozen at {:?}, and the push read {}",
            self.frozen,
            at.read
        );
        for (id, new) in items {
            promise!(!self.items.contains_key(id), "{id} was pushed twice");
            if let Some(key) = &new.unique {
                let holder = self.unique.insert(key.clone(), id.clone());
                // One that is to replace another takes over the key of what runs or has ended.
                // It may have come back since, as if the push had been before that.
                let waited = holder.as_ref().is_some_and(|holder| self.waited(holder, at.read));
                let may_be = holder.is_none() || (new.if_taken == IfTaken::Replace && !waited);
                self.keys_taken_over += u64::from(holder.is_some());
                promise!(may_be, "{id} was pushed, and there is {holder:?} under its unique key");
            }
            let item = Item::new(new);
            match item.place {
                Place::Ready => self.counters.npush += 1,
                _ => self.counters.nlater += 1,
            }
            self.items.insert(id.clone(), item);
            self.touched.insert(id.clone());
            if let Some(batch) = &new.batch {
                self.members.push(batch);
            }
            self.expires_again(id);
            self.keeps_key(id);
        }
        if let Some(name) = operation {
            let ids = items.iter().map(|(id, _)| id.clone()).collect();
            let earlier = self.operations.insert(name.to_vec(), (at, ids));
            promise!(earlier.is_none(), "operation {} was done twice", name.escape_ascii());
        }
        Ok(())
    }

    fn waits(&self, id: &ItemId) -> bool {
        self.items.get(id).is_some_and(|item| matches!(item.place, Place::Ready | Place::Later(_)))
    }

    /// Whether an item waited at a version.
    fn waited(&self, id: &ItemId, version: u64) -> bool {
        let state = self.items.get(id).and_then(|item| item.then(version)?.state);
        matches!(state, Some(ItemState::Ready | ItemState::Scheduled | ItemState::Retrying))
    }

    /// An item that waits gets what a new one of its key brings, and keeps its place and its attempts.
    pub(super) fn replaced(&mut self, id: &ItemId, new: &NewItem) -> Verdict {
        promise!(self.waits(id), "{id} was replaced, and did not wait");
        let holder = new.unique.as_ref().and_then(|key| self.unique.get(key));
        promise!(holder == Some(id), "{id} was replaced, and {holder:?} has the key");
        let item = self.items.get_mut(id).ok_or_else(|| format!("{id} was invented"))?;
        expiry::cleared(&mut self.expiry, id, &item.meta, false);
        let (from, fresh) = (item.place.clone(), Item::new(new));
        // It keeps its time, and does not expire before that.
        let waits_until = if let (Place::Later(due), None) = (&from, new.due) { Some(*due) } else { None };
        let is_too_early =
            waits_until.zip(fresh.meta.expires).is_some_and(|(due, expires)| expires <= from_millis(due));
        let expires = if is_too_early { item.meta.expires } else { fresh.meta.expires };
        let Meta { attributes, content_type, trace_parent, enqueued_at, .. } = fresh.meta;
        (item.meta.attributes, item.meta.content_type) = (attributes, content_type);
        (item.meta.trace_parent, item.meta.enqueued_at) = (trace_parent, enqueued_at);
        (item.meta.expires, item.payload) = (expires, fresh.payload);
        self.expires_again(id);
        if let Place::Later(due) = fresh.place {
            self.moved(id, Place::Later(due))?;
            self.counters.nback += u64::from(from == Place::Ready);
        }
        Ok(())
    }

    /// Items come behind all others: in a FIFO queue behind all that ever were, in the recipes' queues behind the ready ones.
    fn check_places(&self, items: &[(ItemId, NewItem)], at: At) -> Verdict {
        match self.kind {
            Kind::Fifo => {}
            Kind::Keyed => return self.check_stamps(items),
            _ => return self.check_numbers(items, at),
        }
        self.check_partitions(items.iter().map(|(id, _)| id))?;
        let last = self.items.keys().max_by_key(|id| id.stamp());
        let ids: Vec<&ItemId> = last.into_iter().chain(items.iter().map(|(id, _)| id)).collect();
        promise!(ids.is_sorted_by(|a, b| a.stamp() < b.stamp()), "items were pushed in the order {ids:?}");
        Ok(())
    }

    /// In a keyed queue items come behind all others of their key.
    fn check_stamps(&self, items: &[(ItemId, NewItem)]) -> Verdict {
        let mut last: BTreeMap<Vec<u8>, &ItemId> = BTreeMap::new();
        for (id, is_new) in
            self.items.keys().map(|id| (id, false)).chain(items.iter().map(|(id, _)| (id, true)))
        {
            let before = last.insert(key_of(id)?, id);
            promise!(!is_new || before.is_none_or(|before| before < id), "{id} was pushed before {before:?}");
        }
        for (id, new) in items {
            let key = new.key.as_deref().unwrap_or_default();
            promise!(key_of(id)? == key, "{id} was pushed with the key {}", key.escape_ascii());
        }
        Ok(())
    }

    /// In a recipe's queue the index counts on; in a priority queue, the count of each priority.
    fn check_numbers(&self, items: &[(ItemId, NewItem)], at: At) -> Verdict {
        let there: Vec<Vec<i64>> =
            self.seen_at(at.read).waiting.iter().map(|waiting| integers(&waiting.id)).collect();
        for (nth, (id, new)) in items.iter().enumerate() {
            let is_like =
                |other: &NewItem| !matches!(self.kind, Kind::Priority(..)) || other.priority == new.priority;
            let before = items[..nth].iter().filter(|(_, other)| is_like(other)).count() as i64;
            let expected = match self.kind {
                Kind::Priority(..) => {
                    let same = there.iter().filter(|numbers| numbers[0] == new.priority);
                    vec![new.priority, same.map(|numbers| numbers[1] + 1).max().unwrap_or(0) + before]
                }
                _ => vec![there.iter().map(|numbers| numbers[0] + 1).max().unwrap_or(1) + before],
            };
            promise!(
                integers(id) == expected,
                "{id} was pushed to {:?}, where {expected:?} is next",
                integers(id)
            );
        }
        Ok(())
    }
}
