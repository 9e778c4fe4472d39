//! The records of a keyed queue: its items, the index of its keys, and its rules.
//!
//! | key | value | |
//! |---|---|---|
//! | (q, "kval", key, stamp) | payload | a ready item of a key |
//! | (q, "listed", key) | empty | the key has a place: it is active, parked or held |
//! | (q, "active", position, key) | empty | the key may be served; keys are served in the order of positions |
//! | (q, "parked", scope, position, key) | empty | the key waits until its scope has a free slot or a token |
//! | (q, "running", scope) | u64, atomic ADD | how many items of a scope are on leases |
//! | (q, "gate", scope) | never written | fetches of a limited scope conflict on it |
//! | (q, "vtime") | u64, atomic MAX | the virtual time: the position of the key that was served last |
//! | (q, "nactive") | u64, atomic ADD | grows when keys may be served that could not before; watched by idle consumers |
//! | (q, "rule", pattern) | fields | the limits of the scopes that match the pattern |
//! | (q, "rules") | stamp | the last change of the rules |

use crate::item::Stamp;
use crate::keys::element::{append_bytes, append_number, split_bytes, split_number};
use crate::keys::items;
use crate::keys::range;
use crate::limits::KnownRules;

/// Second element of a ready item's key.
pub(crate) const KVAL: &[u8] = b"kval";
const LISTED: &[u8] = b"listed";
const ACTIVE: &[u8] = b"active";
const PARKED: &[u8] = b"parked";
const RUNNING: &[u8] = b"running";
const GATE: &[u8] = b"gate";
const VTIME: &[u8] = b"vtime";
const NACTIVE: &[u8] = b"nactive";
const RULE: &[u8] = b"rule";
const RULES: &[u8] = b"rules";

/// The byte that separates the two levels of a key.
const LEVEL: u8 = b'/';

/// The packed keys of a keyed queue's own records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyedSpace {
    listed: Vec<u8>,
    active: Vec<u8>,
    parked: Vec<u8>,
    running: Vec<u8>,
    gates: Vec<u8>,
    rule: Vec<u8>,
    /// (q, "vtime").
    pub(crate) vtime: Vec<u8>,
    /// (q, "nactive").
    pub(crate) nactive: Vec<u8>,
    /// (q, "rules").
    pub(crate) rules: Vec<u8>,
    /// The rules that this process has read last.
    pub(crate) known: KnownRules,
}

impl KeyedSpace {
    /// Packs the keys behind the packed (q).
    pub(crate) fn new(queue: &[u8]) -> KeyedSpace {
        let record = |kind: &[u8]| with_bytes(queue, kind);
        KeyedSpace {
            listed: record(LISTED),
            active: record(ACTIVE),
            parked: record(PARKED),
            running: record(RUNNING),
            gates: record(GATE),
            rule: record(RULE),
            vtime: record(VTIME),
            nactive: record(NACTIVE),
            rules: record(RULES),
            known: KnownRules::default(),
        }
    }

    pub(crate) fn listed_key(&self, key: &[u8]) -> Vec<u8> {
        with_bytes(&self.listed, key)
    }

    pub(crate) fn active_key(&self, position: u64, key: &[u8]) -> Vec<u8> {
        with_place(&self.active, position, key)
    }

    /// All active keys.
    pub(crate) fn active_range(&self) -> (Vec<u8>, Vec<u8>) {
        range(&self.active)
    }

    /// The position and the key of a row of [`active_range`](KeyedSpace::active_range).
    pub(crate) fn decode_active(&self, row: &[u8]) -> Option<(u64, Vec<u8>)> {
        split_place(row.strip_prefix(self.active.as_slice())?)
    }

    pub(crate) fn parked_key(&self, scope: &[u8], position: u64, key: &[u8]) -> Vec<u8> {
        with_place(&with_bytes(&self.parked, scope), position, key)
    }

    /// The keys that wait for a scope.
    pub(crate) fn parked_range(&self, scope: &[u8]) -> (Vec<u8>, Vec<u8>) {
        range(&with_bytes(&self.parked, scope))
    }

    /// All parked keys.
    pub(crate) fn all_parked(&self) -> (Vec<u8>, Vec<u8>) {
        range(&self.parked)
    }

    /// The scope, position and key of a row of [`all_parked`](KeyedSpace::all_parked).
    pub(crate) fn decode_parked(&self, row: &[u8]) -> Option<(Vec<u8>, u64, Vec<u8>)> {
        let (scope, rest) = split_bytes(row.strip_prefix(self.parked.as_slice())?)?;
        let (position, key) = split_place(rest)?;
        Some((scope, position, key))
    }

    pub(crate) fn running_key(&self, scope: &[u8]) -> Vec<u8> {
        with_bytes(&self.running, scope)
    }

    pub(crate) fn gate_key(&self, scope: &[u8]) -> Vec<u8> {
        with_bytes(&self.gates, scope)
    }

    pub(crate) fn rule_key(&self, pattern: &[u8]) -> Vec<u8> {
        with_bytes(&self.rule, pattern)
    }

    /// All rules.
    pub(crate) fn rule_range(&self) -> (Vec<u8>, Vec<u8>) {
        range(&self.rule)
    }

    /// The pattern of a row of [`rule_range`](KeyedSpace::rule_range).
    pub(crate) fn decode_rule(&self, row: &[u8]) -> Option<Vec<u8>> {
        split_bytes(row.strip_prefix(self.rule.as_slice())?).map(|(pattern, _)| pattern)
    }
}

/// What stands between the queue's part of an item's key and its stamp: the key as an element.
pub(crate) fn key_element(key: &[u8]) -> Vec<u8> {
    with_bytes(&[], key)
}

/// The key and the stamp in the id of a keyed queue's item; `None` if it is the id of another kind.
pub(crate) fn split_id(id: &[u8]) -> Option<(Vec<u8>, Stamp)> {
    let (key, rest) = split_bytes(id)?;
    Some((key, items::suffix_stamp(rest)?))
}

/// The scopes that an item of this key counts in: the queue, which is the empty scope; what stands before the first slash; the key.
pub(crate) fn scopes(key: &[u8]) -> impl Iterator<Item = &[u8]> {
    let parent = key.iter().position(|byte| *byte == LEVEL).map(|slash| &key[..slash]);
    let parent = parent.filter(|parent| !parent.is_empty());
    std::iter::once(&key[..0]).chain(parent).chain((!key.is_empty()).then_some(key))
}

fn with_bytes(before: &[u8], element: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(before.len() + element.len() + 2);
    key.extend_from_slice(before);
    append_bytes(&mut key, element);
    key
}

fn with_place(before: &[u8], position: u64, key: &[u8]) -> Vec<u8> {
    let mut row = Vec::with_capacity(before.len() + 9 + key.len() + 2);
    row.extend_from_slice(before);
    append_number(&mut row, position);
    append_bytes(&mut row, key);
    row
}

fn split_place(row: &[u8]) -> Option<(u64, Vec<u8>)> {
    let (position, rest) = split_number(row)?;
    let (key, []) = split_bytes(rest)? else { return None };
    Some((position, key))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_item_counts_in_its_queue_its_tenant_and_its_key() {
        let of = |key: &'static str| -> Vec<&str> {
            scopes(key.as_bytes()).map(|scope| std::str::from_utf8(scope).unwrap()).collect()
        };
        assert_eq!(of(""), [""]);
        assert_eq!(of("tenant-7"), ["", "tenant-7"]);
        assert_eq!(of("tenant-7/host"), ["", "tenant-7", "tenant-7/host"]);
        assert_eq!(of("a/b/c"), ["", "a", "a/b/c"]);
        assert_eq!(of("/b"), ["", "/b"]);
    }

    proptest! {
        #[test]
        fn places_round_trip_in_the_order_of_positions(
            (a, b) in any::<(u64, u64)>(), key: Vec<u8>, scope: Vec<u8>,
        ) {
            let space = KeyedSpace::new(b"\x01q\x00");
            let row = space.active_key(a, &key);
            prop_assert_eq!(space.decode_active(&row), Some((a, key.clone())));
            prop_assert_eq!(a < b, a != b && row < space.active_key(b, &key));
            let row = space.parked_key(&scope, a, &key);
            prop_assert_eq!(space.decode_parked(&row), Some((scope.clone(), a, key)));
            let (begin, end) = space.parked_range(&scope);
            prop_assert!(begin <= row && row < end);
        }

        #[test]
        fn item_ids_round_trip(key: Vec<u8>, stamp: [u8; Stamp::LEN]) {
            let stamp = Stamp::from(stamp);
            let id = [key_element(&key), items::suffix(stamp).to_vec()].concat();
            prop_assert_eq!(split_id(&id), Some((key, stamp)));
        }

        #[test]
        fn any_bytes_are_read_without_panic(row: Vec<u8>) {
            let space = KeyedSpace::new(b"");
            let _ = (space.decode_active(&row), space.decode_parked(&row), split_id(&row), space.decode_rule(&row));
        }
    }
}
