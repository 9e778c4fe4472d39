//! What must hold of the rows of an index at one version.

use std::collections::{BTreeMap, BTreeSet};

use crate::keys::counters;
use crate::keys::keyed::{Cause, KeyedSpace, decode_listed, scopes};
use crate::model::id::ItemId;
use crate::model::recount::IndexFaults;

/// The rows of an index, and the running items that it counts.
#[derive(Debug, Default)]
pub(crate) struct IndexRows {
    /// Listed keys, and where those are parked that are parked because of a suspect, as `listed` says.
    listed: BTreeMap<Vec<u8>, Option<(Cause, u64)>>,
    /// The same as the rows of parked keys say.
    suspects: BTreeMap<Vec<u8>, (Cause, u64)>,
    /// How many places a key has.
    places: BTreeMap<Vec<u8>, usize>,
    /// Keys that are parked until their scope may start something.
    for_start: BTreeSet<(Vec<u8>, Vec<u8>)>,
    /// Scopes with a timer, at which keys parked for a start are looked at again.
    timers: BTreeSet<Vec<u8>>,
    on_hold: BTreeSet<Vec<u8>>,
    /// Keys with holds, whose ends give keys on hold a place again.
    held: BTreeSet<Vec<u8>>,
    /// Keys with ready items.
    with_items: BTreeSet<Vec<u8>>,
    /// How many items of a scope run, as its counter says.
    counted: BTreeMap<Vec<u8>, u64>,
    /// The same as the leases say.
    running: BTreeMap<Vec<u8>, u64>,
}

/// What is wrong.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// Keys that have ready items, are listed or have a place, and are not listed with exactly one place.
    pub(crate) keys: BTreeSet<Vec<u8>>,
    /// What the counters of scopes lack.
    pub(crate) scopes: BTreeMap<Vec<u8>, i64>,
}

impl Faults {
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.scopes.is_empty()
    }

    pub(crate) fn counts(&self) -> IndexFaults {
        IndexFaults { lost_keys: self.keys.len() as u64, wrong_scopes: self.scopes.len() as u64 }
    }
}

impl IndexRows {
    /// Notes a row of the index; any other is passed over.
    pub(crate) fn show(&mut self, keyed: &KeyedSpace, key: &[u8], value: &[u8]) {
        if let Some(key) = keyed.decode_listed(key) {
            self.listed.insert(key, decode_listed(value));
        } else if let Some((_, key)) = keyed.decode_active(key) {
            *self.places.entry(key).or_default() += 1;
        } else if let Some(row) = keyed.decode_parked(key) {
            if row.cause == Cause::Rate {
                self.for_start.insert((row.scope, row.key.clone()));
            }
            if row.cause.is_suspect() {
                self.suspects.insert(row.key.clone(), (row.cause, row.position));
            }
            *self.places.entry(row.key).or_default() += 1;
        } else if let Some(key) = keyed.decode_on_hold(key) {
            *self.places.entry(key.clone()).or_default() += 1;
            self.on_hold.insert(key);
        } else if let Some((_, scope)) = keyed.decode_timer(key) {
            self.timers.insert(scope);
        } else if let Some(key) = keyed.decode_hold(key).and_then(|item| item.key()) {
            self.held.insert(key);
        } else if let Some((scope, _)) = keyed.decode_running(key) {
            // Each lane of the whole queue has a row, and may be below zero.
            let before = self.counted.remove(&scope).unwrap_or_default();
            let counted = before.wrapping_add(counters::decode(Some(value)));
            if counted != 0 {
                self.counted.insert(scope, counted);
            }
        }
    }

    /// Notes a ready item.
    pub(crate) fn has_item(&mut self, key: Vec<u8>) {
        self.with_items.insert(key);
    }

    /// Notes an item on a lease that is not acknowledged.
    pub(crate) fn is_running(&mut self, id: &ItemId) {
        let Some(key) = id.key() else { return };
        for scope in scopes(&key) {
            *self.running.entry(scope.to_vec()).or_default() += 1;
        }
    }

    /// About how many rows it has noted.
    pub(crate) fn len(&self) -> usize {
        let keys = self.listed.len() + self.places.len() + self.with_items.len() + self.held.len();
        keys + self.for_start.len() + self.on_hold.len() + self.timers.len() + self.counted.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn faults(&self) -> Faults {
        let all = self.listed.keys().chain(self.places.keys()).chain(&self.with_items);
        let has_place = |key: &Vec<u8>| {
            self.places.get(key) == Some(&1)
                && self.listed.get(key).is_some_and(|parked| parked.as_ref() == self.suspects.get(key))
        };
        let mut keys: BTreeSet<_> = all.filter(|key| !has_place(key)).cloned().collect();
        // Nothing gives these a place again.
        let waits = self.for_start.iter().filter(|(scope, _)| !self.timers.contains(scope));
        keys.extend(waits.map(|(_, key)| key.clone()));
        keys.extend(self.on_hold.difference(&self.held).cloned());
        let number = |of: &BTreeMap<Vec<u8>, u64>, scope: &Vec<u8>| of.get(scope).copied().unwrap_or(0);
        let scopes = self.counted.keys().chain(self.running.keys());
        let lacks = |scope: &Vec<u8>| {
            let lacks = number(&self.running, scope).wrapping_sub(number(&self.counted, scope));
            (lacks != 0).then(|| (scope.clone(), lacks.cast_signed()))
        };
        Faults { keys, scopes: scopes.filter_map(lacks).collect() }
    }
}
