//! The records of a keyed queue: its items, the index of its keys, and its rules.
//!
//! | key | value | |
//! |---|---|---|
//! | (q, "kval", key, stamp) | payload | a ready item of a key |
//! | (q, "listed", key) | empty; of a key that is parked because of a suspect, where | the key has a place: it is active, parked or on hold |
//! | (q, "active", position, key) | empty | the key may be served; keys are served in the order of positions |
//! | (q, "parked", cause, scope, position, key) | empty | the key waits until its scope has a free slot, or until its rate allows a start; or for a process that may have suspects |
//! | (q, "hold", key, stamp) | u8: the cause | the key is not served until this item of it is back |
//! | (q, "onhold", key) | u64 | the position of a key with holds, which a fetch has taken out of the index |
//! | (q, "nblocked") | u64, atomic ADD | how many holds there are for dead letters |
//! | (q, "running", scope) | u64, atomic ADD | how many items of a scope are on leases |
//! | (q, "running", "", lane) | i64, atomic ADD | running items counted in the [lanes](crate::ops::keyed::lanes) 1 to 63; lane 0 is (q, "running", "") |
//! | (q, "gate", scope, i) | never written | fetches of a limited scope conflict on gates |
//! | (q, "free", scope) | never written | a fetch that parks a key conflicts with whatever frees a slot and finds no key to give it to |
//! | (q, "rate", scope) | paid, timer | up to which version a scope with a rate has paid; its timer |
//! | (q, "timer", version, scope) | set at, throttled | nothing of the scope starts before this version; keys that wait for it are then looked at |
//! | (q, "vtime") | u64, atomic MAX | the virtual time: the position of the key that was served last |
//! | (q, "nactive") | u64, atomic ADD | grows when keys may be served that could not before; watched by idle consumers |
//! | (q, "nfreed") | u64, atomic ADD | grows when a queue with a limit gets a free slot, or another limit; watched by consumers that find it full |
//! | (q, "rule", pattern) | fields | the limits of the scopes that match the pattern |
//! | (q, "rules") | stamp | the last change of the rules |
//! | (q, "rules-pending") | [`rules_pending`](crate::keys::rules_pending) | where holds and parked keys are looked at again after that |

use bytes::Bytes;

use crate::keys::range;
use crate::keys::rules_pending::RULES_PENDING;
use crate::model::element::{append_bytes, append_number, split_bytes, split_number};
use crate::model::holds::HoldCause;
use crate::model::id::ItemId;
use crate::model::id_layout::split_id;
use crate::model::limits::KnownRules;

/// Second element of a ready item's key.
pub(crate) const KVAL: &[u8] = b"kval";
const LISTED: &[u8] = b"listed";
const ACTIVE: &[u8] = b"active";
const PARKED: &[u8] = b"parked";
const HOLD: &[u8] = b"hold";
const ON_HOLD: &[u8] = b"onhold";
const NBLOCKED: &[u8] = b"nblocked";
const RUNNING: &[u8] = b"running";
/// The most lanes of a queue.
pub(crate) const LANES: u64 = 64;
const GATE: &[u8] = b"gate";
const FREE: &[u8] = b"free";
const RATE: &[u8] = b"rate";
const TIMER: &[u8] = b"timer";
const VTIME: &[u8] = b"vtime";
const NACTIVE: &[u8] = b"nactive";
const NFREED: &[u8] = b"nfreed";
const RULE: &[u8] = b"rule";
const RULES: &[u8] = b"rules";

/// The byte that separates the two levels of a key.
const LEVEL: u8 = b'/';

/// What a parked key waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cause {
    /// A slot of its scope: an item has to end.
    Slot,
    /// The timer of its scope: the rate, or a throttle.
    Rate,
    /// A process that may have its next item, which crashed once. The scope is empty.
    Suspect,
    /// The same, if that item crashed more than once.
    RepeatSuspect,
}

impl Cause {
    const ALL: [Cause; 4] = [Cause::Slot, Cause::Rate, Cause::Suspect, Cause::RepeatSuspect];

    fn number(self) -> u64 {
        match self {
            Cause::Slot => 0,
            Cause::Rate => 1,
            Cause::Suspect => 2,
            Cause::RepeatSuspect => 3,
        }
    }

    fn of_number(number: u64) -> Option<Cause> {
        Cause::ALL.into_iter().find(|cause| cause.number() == number)
    }

    /// Whether the key is parked because of a suspect.
    pub(crate) fn is_suspect(self) -> bool {
        matches!(self, Cause::Suspect | Cause::RepeatSuspect)
    }
}

/// A row of a parked key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ParkedRow {
    pub(crate) cause: Cause,
    pub(crate) scope: Vec<u8>,
    pub(crate) position: u64,
    pub(crate) key: Vec<u8>,
}

/// The packed keys of a keyed queue's own records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyedSpace {
    listed: Vec<u8>,
    active: Vec<u8>,
    parked: Vec<u8>,
    holds: Vec<u8>,
    on_hold: Vec<u8>,
    running: Vec<u8>,
    gates: Vec<u8>,
    free: Vec<u8>,
    rates: Vec<u8>,
    timers: Vec<u8>,
    rule: Vec<u8>,
    /// (q, "nblocked").
    pub(crate) nblocked: Vec<u8>,
    /// (q, "vtime").
    pub(crate) vtime: Vec<u8>,
    /// (q, "nactive").
    pub(crate) nactive: Vec<u8>,
    /// (q, "nfreed").
    pub(crate) nfreed: Vec<u8>,
    /// (q, "rules").
    pub(crate) rules: Vec<u8>,
    /// (q, "rules-pending").
    pub(crate) rules_pending: Vec<u8>,
    /// (q).
    pub(crate) queue: Vec<u8>,
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
            holds: record(HOLD),
            on_hold: record(ON_HOLD),
            nblocked: record(NBLOCKED),
            running: record(RUNNING),
            gates: record(GATE),
            free: record(FREE),
            rates: record(RATE),
            timers: record(TIMER),
            rule: record(RULE),
            vtime: record(VTIME),
            nactive: record(NACTIVE),
            nfreed: record(NFREED),
            rules: record(RULES),
            rules_pending: record(RULES_PENDING),
            queue: queue.to_vec(),
            known: KnownRules::default(),
        }
    }

    pub(crate) fn listed_key(&self, key: &[u8]) -> Vec<u8> {
        with_bytes(&self.listed, key)
    }

    /// All keys that have a place.
    pub(crate) fn listed_range(&self) -> (Vec<u8>, Vec<u8>) {
        range(&self.listed)
    }

    /// The key of a row of [`listed_range`](KeyedSpace::listed_range).
    pub(crate) fn decode_listed(&self, row: &[u8]) -> Option<Vec<u8>> {
        split_alone(row.strip_prefix(self.listed.as_slice())?)
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

    pub(crate) fn parked_key(&self, cause: Cause, scope: &[u8], position: u64, key: &[u8]) -> Vec<u8> {
        with_place(&self.parked_under(cause, scope), position, key)
    }

    /// The keys that wait for a scope.
    pub(crate) fn parked_range(&self, cause: Cause, scope: &[u8]) -> (Vec<u8>, Vec<u8>) {
        range(&self.parked_under(cause, scope))
    }

    /// All keys that are parked for a cause.
    pub(crate) fn parked_for(&self, cause: Cause) -> (Vec<u8>, Vec<u8>) {
        let mut rows = self.parked.clone();
        append_number(&mut rows, cause.number());
        range(&rows)
    }

    fn parked_under(&self, cause: Cause, scope: &[u8]) -> Vec<u8> {
        let mut row = self.parked.clone();
        append_number(&mut row, cause.number());
        append_bytes(&mut row, scope);
        row
    }

    /// All keys that are parked for a limit.
    pub(crate) fn parked_for_limits(&self) -> (Vec<u8>, Vec<u8>) {
        (self.parked_for(Cause::Slot).0, self.parked_for(Cause::Rate).1)
    }

    /// All keys that are parked because of suspects.
    pub(crate) fn parked_suspects(&self) -> (Vec<u8>, Vec<u8>) {
        (self.parked_for(Cause::Suspect).0, self.parked_for(Cause::RepeatSuspect).1)
    }

    /// What a row of a parked key says.
    pub(crate) fn decode_parked(&self, row: &[u8]) -> Option<ParkedRow> {
        let (cause, rest) = split_number(row.strip_prefix(self.parked.as_slice())?)?;
        let (scope, rest) = split_bytes(rest)?;
        let (position, key) = split_place(rest)?;
        Some(ParkedRow { cause: Cause::of_number(cause)?, scope, position, key })
    }

    /// The hold of an item's key for this item.
    pub(crate) fn hold_key(&self, id: &ItemId) -> Vec<u8> {
        [self.holds.as_slice(), id.as_bytes()].concat()
    }

    /// All holds of a key.
    pub(crate) fn hold_range(&self, key: &[u8]) -> (Vec<u8>, Vec<u8>) {
        range(&with_bytes(&self.holds, key))
    }

    /// All holds.
    pub(crate) fn all_holds(&self) -> (Vec<u8>, Vec<u8>) {
        range(&self.holds)
    }

    /// The item of a row of [`all_holds`](KeyedSpace::all_holds).
    pub(crate) fn decode_hold(&self, row: &[u8]) -> Option<ItemId> {
        let id = row.strip_prefix(self.holds.as_slice())?;
        split_id(id)?;
        Some(ItemId::new(Bytes::copy_from_slice(id)))
    }

    /// The place of a key that is on hold.
    pub(crate) fn on_hold_key(&self, key: &[u8]) -> Vec<u8> {
        with_bytes(&self.on_hold, key)
    }

    /// All keys on hold.
    pub(crate) fn on_hold_range(&self) -> (Vec<u8>, Vec<u8>) {
        range(&self.on_hold)
    }

    /// The key of a row of [`on_hold_range`](KeyedSpace::on_hold_range).
    pub(crate) fn decode_on_hold(&self, row: &[u8]) -> Option<Vec<u8>> {
        split_alone(row.strip_prefix(self.on_hold.as_slice())?)
    }

    pub(crate) fn running_key(&self, scope: &[u8]) -> Vec<u8> {
        with_bytes(&self.running, scope)
    }

    /// How many items of each scope run.
    pub(crate) fn running_range(&self) -> (Vec<u8>, Vec<u8>) {
        range(&self.running)
    }

    /// The row of a lane of the whole queue. Lane 0 has the row of the scope.
    pub(crate) fn lane_key(&self, lane: u64) -> Vec<u8> {
        let mut key = self.running_key(&[]);
        if lane > 0 {
            append_number(&mut key, lane);
        }
        key
    }

    /// All lanes.
    pub(crate) fn lanes(&self) -> (Vec<u8>, Vec<u8>) {
        let first = self.lane_key(0);
        let (_, end) = range(&first);
        (first, end)
    }

    /// The scope and the lane of a row of [`running_range`](KeyedSpace::running_range). Only the whole queue has more than one lane.
    pub(crate) fn decode_running(&self, row: &[u8]) -> Option<(Vec<u8>, u64)> {
        let (scope, rest) = split_bytes(row.strip_prefix(self.running.as_slice())?)?;
        if rest.is_empty() {
            return Some((scope, 0));
        }
        let (lane, rest) = split_number(rest)?;
        (scope.is_empty() && rest.is_empty() && (1..LANES).contains(&lane)).then_some((scope, lane))
    }

    pub(crate) fn gate_key(&self, scope: &[u8], gate: u64) -> Vec<u8> {
        let mut key = with_bytes(&self.gates, scope);
        append_number(&mut key, gate);
        key
    }

    /// All gates of a scope.
    pub(crate) fn gate_range(&self, scope: &[u8]) -> (Vec<u8>, Vec<u8>) {
        range(&with_bytes(&self.gates, scope))
    }

    pub(crate) fn free_key(&self, scope: &[u8]) -> Vec<u8> {
        with_bytes(&self.free, scope)
    }

    /// The same of all scopes.
    pub(crate) fn free_range(&self) -> (Vec<u8>, Vec<u8>) {
        range(&self.free)
    }

    pub(crate) fn rate_key(&self, scope: &[u8]) -> Vec<u8> {
        with_bytes(&self.rates, scope)
    }

    /// What the scopes with a rate have paid.
    pub(crate) fn rate_range(&self) -> (Vec<u8>, Vec<u8>) {
        range(&self.rates)
    }

    pub(crate) fn timer_key(&self, version: u64, scope: &[u8]) -> Vec<u8> {
        with_place(&self.timers, version, scope)
    }

    /// The timers of all scopes, the earliest first.
    pub(crate) fn timer_range(&self) -> (Vec<u8>, Vec<u8>) {
        range(&self.timers)
    }

    /// The version and the scope of a row of [`timer_range`](KeyedSpace::timer_range).
    pub(crate) fn decode_timer(&self, row: &[u8]) -> Option<(u64, Vec<u8>)> {
        split_place(row.strip_prefix(self.timers.as_slice())?)
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

/// The value of `listed` of a key that is parked because of a suspect: where. So its row is found by the key.
pub(crate) fn encode_listed(cause: Cause, position: u64) -> Vec<u8> {
    let mut value = Vec::new();
    append_number(&mut value, cause.number());
    append_number(&mut value, position);
    value
}

/// The cause and the position in the value of `listed`; `None` if the key is not parked because of a suspect.
pub(crate) fn decode_listed(value: &[u8]) -> Option<(Cause, u64)> {
    let (cause, rest) = split_number(value)?;
    let (position, []) = split_number(rest)? else { return None };
    Some((Cause::of_number(cause).filter(|cause| cause.is_suspect())?, position))
}

impl HoldCause {
    pub(crate) fn encode(self) -> [u8; 1] {
        match self {
            HoldCause::Scheduled => [1],
            HoldCause::Dead => [2],
        }
    }

    /// Reads the value of a hold; `None` if it is of another layout.
    pub(crate) fn decode(value: &[u8]) -> Option<HoldCause> {
        match value {
            [1] => Some(HoldCause::Scheduled),
            [2] => Some(HoldCause::Dead),
            _ => None,
        }
    }
}

/// The scopes that an item of this key counts in: the queue, which is the empty scope; what stands before the first slash; the key.
pub(crate) fn scopes(key: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::once(&key[..0]).chain(tenant(key)).chain((!key.is_empty()).then_some(key))
}

/// What stands before the first slash of a key, if something does.
pub(crate) fn tenant(key: &[u8]) -> Option<&[u8]> {
    let slash = key.iter().position(|byte| *byte == LEVEL)?;
    Some(&key[..slash]).filter(|tenant| !tenant.is_empty())
}

/// The only element of a key.
fn split_alone(rest: &[u8]) -> Option<Vec<u8>> {
    let (key, rest) = split_bytes(rest)?;
    rest.is_empty().then_some(key)
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
    use crate::model::id_layout::{key_element, suffix};
    use crate::model::stamp::Stamp;

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
            for cause in Cause::ALL {
                let row = space.parked_key(cause, &scope, a, &key);
                let parked = ParkedRow { cause, scope: scope.clone(), position: a, key: key.clone() };
                prop_assert_eq!(space.decode_parked(&row), Some(parked));
                let (begin, end) = space.parked_range(cause, &scope);
                prop_assert!(begin <= row && row < end);
                let of_limits = space.parked_for_limits();
                prop_assert_eq!(of_limits.0 <= row && row < of_limits.1, !cause.is_suspect());
                let of_suspects = space.parked_suspects();
                prop_assert_eq!(of_suspects.0 <= row && row < of_suspects.1, cause.is_suspect());
                let listed = decode_listed(&encode_listed(cause, a));
                prop_assert_eq!(listed, cause.is_suspect().then_some((cause, a)));
            }
            prop_assert_eq!(space.decode_running(&space.running_key(&scope)), Some((scope.clone(), 0)));
            let row = space.lane_key(a);
            prop_assert_eq!(space.decode_running(&row), (a < LANES).then_some((Vec::new(), a)));
            let (begin, end) = space.lanes();
            prop_assert!(begin <= row && row < end);
            let row = [row, space.lane_key(1)].concat();
            prop_assert_eq!(space.decode_running(&row), None);
            prop_assert_eq!(space.decode_timer(&space.timer_key(a, &scope)), Some((a, scope)));
        }

        #[test]
        fn holds_round_trip(key: Vec<u8>, stamp: [u8; Stamp::LEN], is_dead: bool) {
            let space = KeyedSpace::new(b"\x01q\x00");
            let id = [key_element(&key), suffix(Stamp::from(stamp)).to_vec()].concat();
            let id = ItemId::new(id.into());
            let row = space.hold_key(&id);
            prop_assert_eq!(space.decode_hold(&row), Some(id));
            let (begin, end) = space.hold_range(&key);
            prop_assert!(begin <= row && row < end);
            let cause = if is_dead { HoldCause::Dead } else { HoldCause::Scheduled };
            prop_assert_eq!(HoldCause::decode(&cause.encode()), Some(cause));
        }

        #[test]
        fn any_bytes_are_read_without_panic(row: Vec<u8>) {
            let space = KeyedSpace::new(b"");
            let _ = (space.decode_hold(&row), HoldCause::decode(&row), decode_listed(&row));
            let _ = (space.decode_active(&row), space.decode_parked(&row), space.decode_timer(&row), space.decode_running(&row), split_id(&row), space.decode_rule(&row));
        }
    }
}
