//! The index of a keyed queue, read by hand, and what must hold of it after every commit.

use std::collections::{BTreeMap, BTreeSet};

use kvqueue_queue::ItemId;

use super::element::{split_bytes, split_number};
use super::{Image, Row};

type Key = Vec<u8>;

/// The index, and the rules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Index {
    listed: BTreeSet<Key>,
    active: BTreeSet<(u64, Key)>,
    /// The scope, the position and the key.
    parked: BTreeSet<(Key, u64, Key)>,
    running: BTreeMap<Key, u64>,
    /// The most running items of scopes that match a pattern.
    rules: BTreeMap<Key, Option<u64>>,
    /// Whether parked keys are to be looked at again, after a change of the rules.
    pending: bool,
    /// How often a key became active.
    pub(crate) nactive: u64,
}

impl Index {
    /// Reads the index from the records of a queue.
    pub(crate) fn read(records: &[Row]) -> Result<Index, String> {
        let mut index = Index::default();
        for (key, value) in records {
            index
                .record(key, value)
                .ok_or_else(|| format!("row {} is not understood", key.escape_ascii()))?;
        }
        Ok(index)
    }

    fn record(&mut self, key: &[u8], value: &[u8]) -> Option<()> {
        let (name, rest) = split_bytes(key)?;
        let number = || value.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
        match name.as_slice() {
            b"listed" => drop(self.listed.insert(alone(rest)?)),
            b"active" => {
                let (position, rest) = split_number(rest)?;
                self.active.insert((position, alone(rest)?));
            }
            b"parked" => {
                let (scope, rest) = split_bytes(rest)?;
                let (position, rest) = split_number(rest)?;
                self.parked.insert((scope, position, alone(rest)?));
            }
            b"running" => drop(self.running.insert(alone(rest)?, number())),
            b"rule" => {
                // The limit is the only field that the simulation sets.
                let limit = value.strip_prefix(&[1, 4, 0, 0, 0]);
                let limit =
                    limit.map(|limit| limit.iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte)));
                self.rules.insert(alone(rest)?, limit);
            }
            b"rules" => self.pending = value.len() > 10,
            b"nactive" => self.nactive = number(),
            _ => {}
        }
        Some(())
    }

    /// The most running items of a scope. The simulation's patterns are whole levels, or `*` for a level.
    fn limit(&self, scope: &[u8]) -> Option<u64> {
        let matches = |pattern: &[u8]| {
            let mut levels = pattern.split(|byte| *byte == b'/').zip(scope.split(|byte| *byte == b'/'));
            let count = |key: &[u8]| key.split(|byte| *byte == b'/').count();
            pattern.is_empty() == scope.is_empty()
                && count(pattern) == count(scope)
                && levels.all(|(pattern, level)| pattern == b"*" || pattern == level)
        };
        let precision = |pattern: &&Key| pattern.iter().filter(|byte| **byte != b'*').count();
        let set = self.rules.iter().filter(|(pattern, limit)| limit.is_some() && matches(pattern));
        // Of equals the one that sorts first.
        let best = set.map(|(pattern, _)| pattern).rev().max_by_key(precision)?;
        self.rules[best]
    }

    /// What must hold after a commit that found the index `before`.
    pub(crate) fn check(&self, before: &Index, image: &Image) -> Result<(), String> {
        let held = image.leases.values().flat_map(|lease| &lease.items).filter(|item| !item.settled);
        let mut running: BTreeMap<Key, u64> = BTreeMap::new();
        for item in held {
            scopes(&key_of(&item.id)?).for_each(|scope| *running.entry(scope).or_default() += 1);
        }
        if running != self.running {
            return Err(format!("{:?} are counted as running, and {running:?} are", self.running));
        }
        for (scope, running) in &self.running {
            let limit = self.limit(scope).unwrap_or(u64::MAX);
            let before = before.running.get(scope).copied().unwrap_or(0);
            if *running > limit.max(before) {
                return Err(format!("{running} items of {} run, and {limit} may", scope.escape_ascii()));
            }
        }
        let active = self.active.iter().map(|(_, key)| key);
        let mut places: Vec<&Key> = active.chain(self.parked.iter().map(|(_, _, key)| key)).collect();
        places.sort_unstable();
        if !places.iter().copied().eq(&self.listed) {
            return Err(format!("keys {places:?} have places, and {:?} are listed", self.listed));
        }
        for id in image.ready.keys() {
            let key = key_of(id)?;
            if !self.listed.contains(&key) {
                return Err(format!("key {} has an item and no place", key.escape_ascii()));
            }
        }
        for (scope, _, key) in &self.parked {
            let running = self.running.get(scope).copied().unwrap_or(0);
            let is_full = self.limit(scope).is_some_and(|limit| running >= limit);
            let mut active = self.active.iter().map(|(_, key)| key);
            let mut is_looked_at = || active.any(|key| scopes(key).any(|of| of == *scope));
            if !self.pending && !is_full && !is_looked_at() {
                return Err(format!(
                    "key {} waits for {}, of which {running} items run",
                    key.escape_ascii(),
                    scope.escape_ascii()
                ));
            }
        }
        Ok(())
    }

    /// Whether a key is parked.
    pub(crate) fn parks(&self) -> bool {
        !self.parked.is_empty()
    }
}

/// The only element of a key.
fn alone(rest: &[u8]) -> Option<Key> {
    let (key, rest) = split_bytes(rest)?;
    rest.is_empty().then_some(key)
}

/// The key of an item.
pub(crate) fn key_of(id: &ItemId) -> Result<Key, String> {
    split_bytes(id.as_bytes()).map(|(key, _)| key).ok_or_else(|| format!("{id} has no key"))
}

/// The queue, what stands before the first slash, and the key.
fn scopes(key: &[u8]) -> impl Iterator<Item = Key> + use<> {
    let mut scopes = BTreeSet::from([Vec::new(), key.to_vec()]);
    scopes.extend(key.split(|byte| *byte == b'/').next().map(<[u8]>::to_vec));
    scopes.into_iter()
}
