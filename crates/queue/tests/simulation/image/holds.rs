//! What must hold of the holds of keys after every commit.

use std::collections::BTreeMap;

use kvqueue_queue::ItemId;

use super::Image;
use super::index::{Index, key_of};

/// What an item is that a key waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    Scheduled,
    Dead,
}

impl Hold {
    pub(super) fn read(value: &[u8]) -> Option<Hold> {
        match value {
            [1] => Some(Hold::Scheduled),
            [2] => Some(Hold::Dead),
            _ => None,
        }
    }
}

/// Items that are scheduled or dead.
fn away(image: &Image) -> BTreeMap<&ItemId, Hold> {
    let later = image.later.keys().map(|(_, id)| (id, Hold::Scheduled));
    later.chain(image.dead.keys().map(|id| (id, Hold::Dead))).collect()
}

/// Items that are ready, or on leases.
fn here(image: &Image) -> impl Iterator<Item = &ItemId> {
    let leased = image.leases.values().flat_map(|held| &held.items).filter(|item| !item.settled);
    image.ready.keys().chain(leased.map(|item| &item.id))
}

/// Compares holds with the items that are scheduled or dead, and with what was there before the commit.
pub(super) fn check(
    (index, image): (&Index, &Image),
    (before, image_before): (&Index, &Image),
    unblocked: Option<&[u8]>,
) -> Result<(), String> {
    let (away, away_before) = (away(image), away(image_before));
    for (id, hold) in &index.holds {
        if away.get(id) != Some(hold) {
            return Err(format!("{id} holds its key as {hold:?}, and is {:?}", away.get(id)));
        }
    }
    let holds_for = |id: &ItemId, hold: Hold| -> Result<bool, String> {
        let key = key_of(id)?;
        Ok(index.rules.is_ordered(&key) && (hold == Hold::Scheduled || index.rules.blocks(&key)))
    };
    for (id, hold) in index.holds.iter().filter(|_| !index.pending) {
        if !holds_for(id, *hold)? {
            return Err(format!("{id} is {hold:?} and holds its key, and the rules do not ask for it"));
        }
    }
    // Items that were scheduled, and expired.
    let died =
        |id: &ItemId| away_before.get(id) == Some(&Hold::Scheduled) && away.get(id) == Some(&Hold::Dead);
    for id in here(image_before).chain(away_before.keys().copied().filter(|id| died(id))) {
        let Some(hold) = away.get(id) else { continue };
        // An operator put it off, which begins no hold.
        let is_put_off = *hold == Hold::Scheduled && image_before.ready.contains_key(id);
        if (holds_for(id, *hold)? && !is_put_off) != index.holds.contains_key(id) {
            return Err(format!(
                "{id} became {hold:?}, and the rule of its key says something else of holds"
            ));
        }
    }
    for (id, hold) in &before.holds {
        let is_over = before.pending && !holds_for(id, *hold)?;
        let is_unblocked = unblocked == Some(&key_of(id)?);
        if away.contains_key(id) && !index.holds.contains_key(id) && !is_over && !is_unblocked && !died(id) {
            return Err(format!("{id} is {hold:?}, and the hold of its key has ended"));
        }
    }
    let is_late =
        |id: &&ItemId| away_before.contains_key(*id) && !before.holds.contains_key(*id) && !died(id);
    if let Some(id) = index.holds.keys().find(is_late) {
        return Err(format!("{id} holds its key since some time after it was put away"));
    }
    for key in &index.on_hold {
        if !index.holds.keys().any(|id| key_of(id).as_ref() == Ok(key)) {
            return Err(format!("key {} is on hold, and waits for nothing", key.escape_ascii()));
        }
    }
    let dead = index.holds.values().filter(|hold| **hold == Hold::Dead).count() as u64;
    if index.nblocked != dead {
        return Err(format!(
            "{} dead letters are counted as holding their keys, and {dead} do",
            index.nblocked
        ));
    }
    Ok(())
}

/// No item of an ordered key that was held before the commit is fetched.
pub(crate) fn check_fetched(before: &Index, items: &[ItemId]) -> Result<(), String> {
    for id in items {
        let key = key_of(id)?;
        let hold = before.holds.keys().find(|hold| key_of(hold).as_ref() == Ok(&key));
        if before.rules.is_ordered(&key)
            && let Some(hold) = hold
        {
            return Err(format!("{id} was fetched, and its key waits for {hold}"));
        }
    }
    Ok(())
}
