//! Reading from two images what happened between them.

use std::collections::{BTreeMap, BTreeSet};

use kvqueue_queue::{IfTaken, ItemId, ItemOutcome, LeaseId, NewItem, SessionId};

use super::{batches, schedules};
use crate::image::{Held, Image};
use crate::model::{Event, PICK_UP, Sweeping, Terms};
use crate::world::Millis;

/// The items of a push that were added: those whose unique key was free. The last one of each key that is to replace another does so, or is
/// added, if the other one does not wait.
pub(super) fn pushed(
    items: &[NewItem],
    operation: Option<&[u8]>,
    before: &Image,
    after: &Image,
) -> Result<Vec<Event>, String> {
    let mut taken: BTreeSet<&[u8]> = before.unique.keys().map(Vec::as_slice).collect();
    let waiting: BTreeSet<ItemId> = payloads(before).into_iter().map(|(id, _)| id).collect();
    let mut new: Vec<(ItemId, &[u8])> = payloads(after);
    new.retain(|(id, _)| !waiting.contains(id));
    let (mut added, mut replaced) = (Vec::new(), Vec::new());
    for (at, item) in items.iter().enumerate() {
        let Some(key) = &item.unique else {
            added.push(item);
            continue;
        };
        let is_last =
            |other: &&NewItem| other.if_taken == IfTaken::Replace && other.unique.as_ref() == Some(key);
        let last = items.iter().rev().find(is_last);
        match last {
            None if taken.insert(key) => added.push(item),
            Some(last) if std::ptr::eq(last, &items[at]) => {
                let is_new = new.iter().any(|(_, payload)| item.payload == *payload);
                match before.unique.get(key) {
                    Some(id) if !is_new => replaced.push((id.clone(), item.clone())),
                    _ => added.push(item),
                }
            }
            _ => {}
        }
    }
    let mut pushed = Vec::new();
    for item in added {
        // No two payloads are alike.
        let at = new.iter().position(|(_, payload)| item.payload == *payload);
        let at = at.ok_or_else(|| format!("{:?} was pushed, and is not there", item.payload))?;
        pushed.push((new.swap_remove(at).0, item.clone()));
    }
    let operation = operation.map(<[u8]>::to_vec);
    match new.first() {
        Some((id, _)) => Err(format!("{id} was invented")),
        None => Ok(vec![Event::Pushed { items: pushed, replaced, operation }]),
    }
}

fn payloads(image: &Image) -> Vec<(ItemId, &[u8])> {
    let ready = image.ready.iter().map(|(id, stored)| (id.clone(), &stored.payload[..]));
    ready.chain(image.later.iter().map(|((_, id), stored)| (id.clone(), &stored.payload[..]))).collect()
}

/// What a taker did: it asked, it served others, it served itself, it left.
pub(super) fn taking(session: SessionId, terms: Terms, before: &Image, after: &Image) -> Vec<Event> {
    let mut leases: BTreeMap<LeaseId, &Held> = after.leases.iter().map(|(id, held)| (*id, held)).collect();
    leases.retain(|id, _| !before.leases.contains_key(id));
    let ids = |held: &Held| held.items.iter().map(|item| item.id.clone()).collect::<Vec<_>>();
    let leased: BTreeSet<ItemId> = leases.values().flat_map(|held| ids(held)).collect();
    let gone = before.ready.keys().filter(|id| !after.ready.contains_key(id) && !leased.contains(id));
    let mut taken: Vec<ItemId> = gone.cloned().collect();
    let mut events = Vec::new();
    for (stamp, want) in before.line.iter().filter(|(stamp, _)| !after.line.contains_key(stamp)) {
        let is_own = want.lease.session == session;
        let length = if want.length == 0 { PICK_UP } else { want.length };
        let terms = Terms { k: want.k, length, front: true, crashes: 1 };
        let own =
            leases.keys().find(|lease| is_own && before.line.values().all(|want| want.lease != **lease));
        let lease = leases.contains_key(&want.lease).then_some(want.lease).or(own.copied());
        events.push(match lease {
            Some(lease) => {
                let items = leases.remove(&lease).map(ids).unwrap_or_default();
                Event::Leased { lease, items, terms, served: Some(*stamp) }
            }
            None if is_own && !taken.is_empty() => {
                Event::Taken { items: std::mem::take(&mut taken), terms, served: Some(*stamp) }
            }
            None => Event::Left(*stamp),
        });
    }
    for (lease, held) in leases {
        events.push(Event::Leased { lease, items: ids(held), terms, served: None });
    }
    if !taken.is_empty() {
        events.push(Event::Taken { items: taken, terms, served: None });
    }
    events.extend(ended(before, after));
    let served = before.leases.iter().filter(|(_, held)| held.served);
    let mine = served.filter(|(id, _)| after.leases.get(id).is_some_and(|held| !held.served));
    events.extend(mine.map(|(id, _)| Event::TakenUp(*id)));
    let asked = after.line.iter().filter(|(stamp, _)| !before.line.contains_key(stamp));
    events.extend(asked.map(|(stamp, want)| Event::Asked(*stamp, *want)));
    events
}

/// Leases that a taker ended: it gave the items back, or has them for good.
fn ended(before: &Image, after: &Image) -> Vec<Event> {
    let gone = before.leases.iter().filter(|(id, _)| !after.leases.contains_key(id));
    let event = |(lease, held): (&LeaseId, &Held)| {
        if held.items.iter().any(|item| !item.settled && !after.ready.contains_key(&item.id)) {
            return Event::PickedUp(*lease);
        }
        let open = held.items.iter().enumerate().filter(|(_, item)| !item.settled);
        let settlements = open.map(|(index, _)| (index, ItemOutcome::Release)).collect();
        Event::Settled { lease: *lease, settlements, with_effects: false }
    };
    gone.map(event).collect()
}

pub(super) fn swept(by: Sweeping, before: &Image, after: &Image) -> Result<Vec<Event>, String> {
    let expired = before.leases.keys().filter(|id| !after.leases.contains_key(id));
    let later = || after.later.keys().filter(|key| !before.later.contains_key(key));
    let due: BTreeMap<ItemId, Millis> = later().map(|(due, id)| (id.clone(), *due)).collect();
    let mut events: Vec<Event> =
        expired.map(|lease| Event::Expired { lease: *lease, due: due.clone(), by }).collect();
    let dropped = before.line.keys().filter(|stamp| !after.line.contains_key(stamp));
    events.extend(dropped.map(|stamp| Event::Overdue(*stamp)));
    events.extend(batches::seen(by, before, after)?);
    // Of a slow clock, ends may come to minutes that are cleared already.
    if before.kept != after.kept || before.ended.keys().any(|key| !after.ended.contains_key(key)) {
        events.push(Event::HistoryCleared { to: after.kept.as_ref().map(|kept| kept.cleared), by });
    }
    let letters = before.dead.keys().filter(|id| !after.dead.contains_key(*id));
    let letters: Vec<ItemId> = letters.cloned().collect();
    if !letters.is_empty() {
        events.push(Event::LettersRemoved { items: letters, by });
    }
    events.extend(ended_by_time(by, before, after));
    let items = before.later.keys().filter(|key| !after.later.contains_key(key));
    let items: Vec<_> = items.filter(|(_, id)| after.ready.contains_key(id)).cloned().collect();
    if !items.is_empty() {
        events.push(Event::Promoted { items, by });
    }
    let gone = before.operations.keys().filter(|name| !after.operations.contains_key(*name));
    let operations: Vec<_> = gone.cloned().collect();
    if !operations.is_empty() {
        events.push(Event::Forgotten { operations, by });
    }
    events.extend(schedules::fired(by, before, after)?);
    Ok(events)
}

/// Rows whose time had come, and items that expired.
fn ended_by_time(by: Sweeping, before: &Image, after: &Image) -> Option<Event> {
    let rows = before.expiry.keys().filter(|key| !after.expiry.contains_key(key));
    let mut rows: Vec<(Millis, ItemId)> = rows.cloned().collect();
    let waited = before.ready.keys().chain(before.later.keys().map(|(_, id)| id));
    let waits: BTreeSet<&ItemId> = after.ready.keys().chain(after.later.keys().map(|(_, id)| id)).collect();
    let ended = waited.filter(|id| !waits.contains(id)).cloned();
    let (dead, gone): (Vec<_>, Vec<_>) = ended.partition(|id| after.dead.contains_key(id));
    // A dead letter, or an item that is gone, frees its unique key before the time.
    rows.retain(|(time, id)| *time <= by.now || !(dead.contains(id) || gone.contains(id)));
    // Those of a lease that has run out go with its items.
    let is_nothing = dead.is_empty() && gone.is_empty() && before.leases.len() != after.leases.len();
    (!rows.is_empty() && !is_nothing).then_some(Event::ItemsExpired { rows, gone, dead, by })
}

pub(super) fn letters(before: &Image, after: &Image) -> Vec<Event> {
    let gone = before.dead.keys().filter(|id| !after.dead.contains_key(id)).cloned();
    let (revived, purged): (Vec<ItemId>, _) = gone.partition(|id| after.ready.contains_key(id));
    let mut events = Vec::new();
    if !revived.is_empty() {
        events.push(Event::Revived(revived));
    }
    if !purged.is_empty() {
        events.push(Event::Purged(purged));
    }
    events
}

/// An item that was to be deleted, and no other; a dead letter is purged.
pub(super) fn deleted(wanted: &ItemId, before: &Image, after: &Image) -> Result<Vec<Event>, String> {
    let ready = before.ready.keys().filter(|id| !after.ready.contains_key(id));
    let waiting = before.later.keys().filter(|key| !after.later.contains_key(key)).map(|(_, id)| id);
    let dead = before.dead.keys().filter(|id| !after.dead.contains_key(id));
    if let Some(other) = ready.clone().chain(waiting.clone()).chain(dead).find(|id| *id != wanted) {
        return Err(format!("{other} was deleted in place of {wanted}"));
    }
    let gone = ready.chain(waiting).map(|id| Event::Deleted(id.clone()));
    Ok(letters(before, after).into_iter().chain(gone).collect())
}
