//! The index of a keyed queue: which keys may be served, and in which order.
//!
//! A key with ready items has exactly one place:
//!
//! - *active*: the next fetches serve it;
//! - *parked* under a tenant or a key that has no free slot: the acknowledgement that frees a slot makes it active again;
//! - *parked* under a scope whose rate allows no start: the first fetch after the scope's timer serves it ([`pace`]);
//! - *parked* because its next item is a suspect: a fetch that may have suspects serves it ([`suspects`]);
//! - *on hold* ([`holds`]).
//!
//! For a limit of the whole queue no key is parked. Consumers that find no free slot wait: each end of an item changes a counter that they watch, without
//! looking whether the queue was full. So no wake-up is lost, and ends conflict with nothing.
//!
//! `listed` says that a key has a place. So a push to a key that has one writes nothing to the index, and conflicts with no fetch.
//!
//! | transaction | reads with a conflict | so it fails after |
//! |---|---|---|
//! | push | `listed` of its keys | a fetch that found the key empty; another push that listed it |
//! | fetch | the active rows that it moves, the items that it takes | another fetch of the same key |
//! | ... that finds a key empty | all items of the key | a push to that key, an item that is returned to it |
//! | ... that parks a key because of a suspect | its items up to the suspect | an item that is returned before the suspect; the removal of the suspect |
//! | ... that parks a key | `free` of the scope | whatever frees a slot of the scope, or passes one on, and finds no key parked there |
//! | ... that parks a key for a rate, or starts an item of a scope with a rate | `rate` of the scope | another fetch that does; a throttle |
//! | ... that moves an ordered key | its first hold, or that it has none; that there is none at all, if there is none | whatever ends that hold, or begins one |
//! | the end of a hold | the hold, the key's place on hold | another end of the hold; a fetch that puts the key on hold |
//! | acknowledgement | the parked keys of limited scopes that it makes active | another transaction that makes one of these active |
//! | ... or a fetch that passes slots on, and finds fewer keys than slots | all parked keys of the scope; if none of the queue is parked for a slot, all of these | a fetch that parks a key there |
//! | whatever returns an item, or removes a ready one | `listed` of its key; if no key is parked because of a suspect, all of these | a fetch that parks the key because of a suspect |
//! | all | `rules` | a change of the rules |
//!
//! Fetches read `running` at snapshot isolation, although acknowledgements change it: they only lower it. Fetches raise it, and [`gates`]
//! keep them from raising it too far together; that of the whole queue, [`lanes`].

pub(crate) mod changes;
pub(crate) mod fetch;
pub(crate) mod gates;
pub(crate) mod holds;
pub(crate) mod lanes;
pub(crate) mod listing;
pub(crate) mod pace;
pub(crate) mod parked;
pub(crate) mod place;
pub(crate) mod rules;
pub(crate) mod suspects;

use foundationdb::Transaction;
use foundationdb::options::MutationType;
use mutant::mutant;

use crate::keys::counters;
use crate::keys::keyed::KeyedSpace;
use crate::model::error::QueueError;
use crate::model::limits::Limits;

/// How far a key of weight 1 moves ahead with each item, in positions.
pub(crate) const ITEM: u64 = 1 << 20;

/// How far a key moves ahead with each item.
pub(crate) fn step(limits: Limits) -> u64 {
    (ITEM / u64::from(limits.share())).max(1)
}

/// The virtual time. Read without a conflict: it is a hint where new keys begin.
pub(crate) async fn virtual_time(keyed: &KeyedSpace, tr: &Transaction) -> Result<u64, QueueError> {
    Ok(counters::decode(tr.get(&keyed.vtime, true).await?.as_deref()))
}

/// Makes a key active. Counting is the caller's: [`count_active`].
pub(crate) fn activate(keyed: &KeyedSpace, tr: &Transaction, position: u64, key: &[u8]) {
    tr.set(&keyed.active_key(position, key), &[]);
}

/// Counts keys as made active, which wakes idle consumers.
pub(crate) fn count_active(keyed: &KeyedSpace, tr: &Transaction, n: usize) {
    if n > 0 {
        tr.atomic_op(&keyed.nactive, &counters::increment(n), MutationType::Add);
    }
}

/// Counts a slot of the queue that is free again, or a change of the limit. That wakes consumers which have found the queue full.
pub(crate) fn count_freed(keyed: &KeyedSpace, tr: &Transaction) {
    if !mutant("freed-uncounted") {
        tr.atomic_op(&keyed.nfreed, &counters::increment(1), MutationType::Add);
    }
}

/// Adds to the running items of a scope, or subtracts from them. A scope without any has no row.
pub(crate) fn count_running(keyed: &KeyedSpace, tr: &Transaction, scope: &[u8], by: i64) {
    let key = keyed.running_key(scope);
    tr.atomic_op(&key, &by.to_le_bytes(), MutationType::Add);
    if by < 0 {
        tr.atomic_op(&key, &0_u64.to_le_bytes(), MutationType::CompareAndClear);
    }
}
