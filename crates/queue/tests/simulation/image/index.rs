//! The index of a keyed queue, read by hand, and what must hold of it after every commit.

use std::collections::{BTreeMap, BTreeSet};

use kvqueue_queue::ItemId;

use super::element::{Ids, split_bytes, split_number};
use super::holds::{self, Hold};
use super::rates::Rates;
use super::rules::Rules;
use super::{Image, Row};

type Key = Vec<u8>;

/// The index, and the rules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Index {
    /// Listed keys; with the cause and the position, if the key is parked because of a suspect.
    listed: BTreeMap<Key, Option<(u64, u64)>>,
    active: BTreeSet<(u64, Key)>,
    /// The cause, the scope, the position and the key.
    parked: BTreeSet<(u64, Key, u64, Key)>,
    pub(super) rates: Rates,
    running: BTreeMap<Key, u64>,
    /// What keys wait for.
    pub(super) holds: BTreeMap<ItemId, Hold>,
    /// Held keys that have left the index.
    pub(super) on_hold: BTreeSet<Key>,
    /// How many holds are counted as those of dead letters.
    pub(super) nblocked: u64,
    pub(super) rules: Rules,
    /// Whether holds and parked keys are to be looked at again, after a change of the rules.
    pub(super) pending: bool,
    /// How often a key became active.
    pub(crate) nactive: u64,
    /// How often a slot of the queue became free.
    pub(crate) nfreed: u64,
}

impl Index {
    /// Reads the index from the records of a queue.
    pub(crate) fn read(ids: &mut Ids, records: &[Row]) -> Result<Index, String> {
        let mut index = Index::default();
        for (key, value) in records {
            index
                .record(ids, key, value)
                .ok_or_else(|| format!("row {} is not understood", key.escape_ascii()))?;
        }
        Ok(index)
    }

    fn record(&mut self, ids: &mut Ids, key: &[u8], value: &[u8]) -> Option<()> {
        let (name, rest) = split_bytes(key)?;
        let number = || value.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
        match name.as_slice() {
            b"listed" => drop(self.listed.insert(alone(rest)?, read_listed(value)?)),
            b"active" => {
                let (position, rest) = split_number(rest)?;
                self.active.insert((position, alone(rest)?));
            }
            b"parked" => {
                let (cause, rest) = split_number(rest)?;
                let (scope, rest) = split_bytes(rest)?;
                let (position, rest) = split_number(rest)?;
                self.parked.insert((cause, scope, position, alone(rest)?));
            }
            b"rate" => self.rates.read_paid(rest, value)?,
            b"timer" => self.rates.read_timer(rest, value)?,
            // Of the whole queue there are several rows, some of them below zero.
            b"running" => {
                let (scope, lane) = split_bytes(rest)?;
                if !lane.is_empty() && !scope.is_empty() {
                    return None;
                }
                let before = self.running.remove(&scope).unwrap_or(0);
                let counted = before.wrapping_add(number());
                if counted != 0 {
                    self.running.insert(scope, counted);
                }
            }
            b"hold" => drop(self.holds.insert(ids.get(rest)?, Hold::read(value)?)),
            b"onhold" => drop(self.on_hold.insert(alone(rest)?)),
            b"nblocked" => self.nblocked = number(),
            b"rule" => self.rules.read(alone(rest)?, value)?,
            b"rules" if value.len() != 10 => return None,
            b"rules-pending" => self.pending = true,
            b"nactive" => self.nactive = number(),
            b"nfreed" => self.nfreed = number(),
            _ => {}
        }
        Some(())
    }

    /// What must hold after a commit that found the index `before`, and the image that comes with it.
    pub(crate) fn check(
        &self,
        image: &Image,
        (before, image_before): (&Index, &Image),
        unblocked: Option<&[u8]>,
    ) -> Result<(), String> {
        let held = image.leases.values().flat_map(|lease| &lease.items).filter(|item| !item.settled);
        let mut running: BTreeMap<Key, u64> = BTreeMap::new();
        for item in held {
            scopes(&key_of(&item.id)?).for_each(|scope| *running.entry(scope).or_default() += 1);
        }
        if running != self.running {
            return Err(format!("{:?} are counted as running, and {running:?} are", self.running));
        }
        for (scope, running) in &self.running {
            let limit = self.rules.limit(scope).unwrap_or(u64::MAX);
            let before = before.running.get(scope).copied().unwrap_or(0);
            if *running > limit.max(before) {
                return Err(format!("{running} items of {} run, and {limit} may", scope.escape_ascii()));
            }
        }
        let active = self.active.iter().map(|(_, key)| key);
        let parked = self.parked.iter().map(|(.., key)| key);
        let mut places: Vec<&Key> = active.chain(parked).chain(&self.on_hold).collect();
        places.sort_unstable();
        if !places.iter().copied().eq(self.listed.keys()) {
            return Err(format!("keys {places:?} have places, and {:?} are listed", self.listed));
        }
        for id in image.ready.keys() {
            let key = key_of(id)?;
            if !self.listed.contains_key(&key) {
                return Err(format!("key {} has an item and no place", key.escape_ascii()));
            }
        }
        self.rates.check()?;
        self.check_suspects(image)?;
        for (cause, scope, _, key) in &self.parked {
            if *cause == 1 {
                if !self.rates.has_timer(scope) {
                    return Err(format!("key {} waits for no timer", key.escape_ascii()));
                }
                continue;
            }
            if *cause > 1 {
                continue;
            }
            if scope.is_empty() {
                return Err(format!("key {} waits for a slot of the queue", key.escape_ascii()));
            }
            let running = self.running.get(scope).copied().unwrap_or(0);
            let is_full = self.rules.limit(scope).is_some_and(|limit| running >= limit);
            let mut active = self.active.iter().map(|(_, key)| key);
            let waits = self.parked.iter().any(|(cause, of, ..)| *cause == 1 && of == scope);
            let mut is_looked_at = || waits || active.any(|key| scopes(key).any(|of| of == *scope));
            if !self.pending && !is_full && !is_looked_at() {
                return Err(format!(
                    "key {} waits for {}, of which {running} items run",
                    key.escape_ascii(),
                    scope.escape_ascii()
                ));
            }
        }
        holds::check((self, image), (before, image_before), unblocked)
    }

    /// A key that is parked because of a suspect has a suspect as its first item, and is found by its name.
    fn check_suspects(&self, image: &Image) -> Result<(), String> {
        let parked = self.parked.iter().filter(|(cause, ..)| *cause > 1);
        let mut found: BTreeMap<&Key, (u64, u64)> = BTreeMap::new();
        for (cause, scope, position, key) in parked {
            let first = image.ready.iter().find(|(id, _)| key_of(id).is_ok_and(|of| of == *key));
            let crashes = first.map_or(0, |(_, stored)| stored.meta.crashes);
            if u64::from(crashes.min(2)) + 1 != *cause || !scope.is_empty() {
                return Err(format!(
                    "key {} waits for {cause}, and its first item crashed {crashes} times",
                    key.escape_ascii()
                ));
            }
            found.insert(key, (*cause, *position));
        }
        let listed = self.listed.iter().filter_map(|(key, place)| Some((key, (*place)?)));
        if !found.iter().map(|(key, place)| (*key, *place)).eq(listed) {
            return Err(format!("keys {found:?} have suspects, and {:?} are listed", self.listed));
        }
        Ok(())
    }

    /// What keys wait for, to be counted.
    pub(crate) fn states(&self) -> Vec<&'static str> {
        let all = [
            (self.parked.iter().any(|(cause, ..)| *cause == 0), "a key waits for its scope"),
            (self.parked.iter().any(|(cause, ..)| *cause == 1), "a key waits for a timer"),
            (self.parked.iter().any(|(cause, ..)| *cause > 1), "a key waits for a process without suspects"),
            (self.rates.has_throttles(), "a scope is throttled"),
            (!self.on_hold.is_empty(), "a key is on hold"),
            (self.nblocked > 0, "a key waits for a dead letter"),
            (self.pending && !self.holds.is_empty(), "holds are to be looked at again"),
        ];
        all.into_iter().filter_map(|(is, state)| is.then_some(state)).collect()
    }

    /// Keys that wait for a dead letter.
    pub(crate) fn blocked(&self) -> BTreeSet<Key> {
        let dead = self.holds.iter().filter(|(_, hold)| **hold == Hold::Dead);
        dead.filter_map(|(id, _)| key_of(id).ok()).collect()
    }
}

/// The value of a listed key.
fn read_listed(value: &[u8]) -> Option<Option<(u64, u64)>> {
    if value.is_empty() {
        return Some(None);
    }
    let (cause, rest) = split_number(value)?;
    let (position, rest) = split_number(rest)?;
    rest.is_empty().then_some(Some((cause, position)))
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
pub(crate) fn scopes(key: &[u8]) -> impl Iterator<Item = Key> + use<> {
    let mut scopes = BTreeSet::from([Vec::new(), key.to_vec()]);
    scopes.extend(key.split(|byte| *byte == b'/').next().map(<[u8]>::to_vec));
    scopes.into_iter()
}
