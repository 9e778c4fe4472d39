//! What producers may do.

use std::collections::BTreeMap;

use kvqueue_queue::{ItemId, Kind, NewItem};

use super::{At, Model, Verdict, promise};
use crate::image::{integers, key_of};
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
                promise!(holder.is_none(), "{id} was pushed, and there is {holder:?} under its unique key");
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
        }
        if let Some(name) = operation {
            let ids = items.iter().map(|(id, _)| id.clone()).collect();
            let earlier = self.operations.insert(name.to_vec(), (at, ids));
            promise!(earlier.is_none(), "operation {} was done twice", name.escape_ascii());
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
