//! Reading from two images what happened to schedules between them.

use std::collections::BTreeMap;

use kvqueue_queue::ItemId;
use kvqueue_queue::schedule::PutEffect;

use super::Plan;
use crate::image::Image;
use crate::image::schedules::{Record, Schedule};
use crate::model::schedules::{Change, Firing, Sweep};
use crate::model::{Event, Sweeping};
use crate::world::Millis;

/// What an operator did.
pub(super) fn changed(
    name: &str,
    now: Millis,
    plan: &Plan,
    before: &Image,
    after: &Image,
) -> Result<Vec<Event>, String> {
    let [old, new] = [before, after].map(|image| image.schedules.get(name));
    // A restart wakes sweepers, also if nothing else changes.
    let is_restart = matches!(plan, Plan::Restart) && new.is_some();
    if old == new && !is_restart {
        return Ok(Vec::new());
    }
    let change = match plan {
        Plan::Put(definition) => Change::Put(definition.clone(), put_effect(old, new)),
        Plan::Remove => Change::Removed,
        Plan::Pause => Change::Paused,
        Plan::Resume => Change::Resumed,
        Plan::Restart => Change::Restarted,
        Plan::Fire => Change::ByHand(one(name, new_items(before, after)?)?),
    };
    let records = new.map_or_else(Vec::new, |new| new_records(old, new));
    Ok(vec![Event::Schedule { name: name.to_owned(), now, change, records }])
}

fn put_effect(old: Option<&Schedule>, new: Option<&Schedule>) -> PutEffect {
    match old.zip(new) {
        None => PutEffect::Created,
        Some((old, new)) => {
            PutEffect::Replaced { calendar: old.definition.calendar != new.definition.calendar }
        }
    }
}

/// Schedules that were removed together.
pub(super) fn removed(before: &Image, after: &Image) -> Vec<Event> {
    let gone = before.schedules.keys().filter(|name| !after.schedules.contains_key(*name));
    gone.map(|name| Event::Schedule {
        name: name.clone(),
        now: 0,
        change: Change::Removed,
        records: Vec::new(),
    })
    .collect()
}

/// What a sweeper did about schedules, if it did something.
pub(super) fn fired(by: Sweeping, before: &Image, after: &Image) -> Result<Option<Event>, String> {
    let pairs =
        before.schedules.iter().filter_map(|(name, old)| Some((name, old, after.schedules.get(name)?)));
    let mut changed: Vec<(&String, &Schedule, &Schedule)> =
        pairs.filter(|(_, old, new)| old != new).collect();
    if changed.is_empty() {
        return Ok(None);
    }
    changed.sort_by_key(|(name, old, _)| (old.state.row, *name));
    let mut items = new_items(before, after)?;
    let firing = |(name, old, new): (&String, &Schedule, &Schedule)| Firing {
        name: name.clone(),
        ids: items.remove(name).unwrap_or_default(),
        records: new_records(Some(old), new),
        waited: old.state.waiting,
        waits: new.state.waiting,
    };
    let firings: Vec<Firing> = changed.into_iter().map(firing).collect();
    let now = firings.iter().find_map(|firing| Some(firing.records.first()?.at));
    Ok(Some(Event::Fired(Sweep { now, by, firings })))
}

fn new_records(old: Option<&Schedule>, new: &Schedule) -> Vec<Record> {
    let from = old.map_or(0, |old| old.state.records);
    new.log.range(from..).map(|(_, record)| record.clone()).collect()
}

/// The items that became ready, by their schedules, and in the order of their numbers.
fn new_items(before: &Image, after: &Image) -> Result<BTreeMap<String, Vec<ItemId>>, String> {
    let mut items: BTreeMap<String, Vec<(u64, ItemId)>> = BTreeMap::new();
    for (id, stored) in after.ready.iter().filter(|(id, _)| !before.ready.contains_key(id)) {
        let attribute = |name: &str| stored.meta.attributes.get(name);
        let found = attribute("schedule").zip(attribute("schedule-occurrence"));
        let (name, number) = found.ok_or_else(|| format!("{id} was pushed, and is of no schedule"))?;
        let number = number.parse().map_err(|error| format!("the number of {id}: {error}"))?;
        items.entry(name.clone()).or_default().push((number, id.clone()));
    }
    items.values_mut().for_each(|items| items.sort());
    Ok(items.into_iter().map(|(name, items)| (name, items.into_iter().map(|(_, id)| id).collect())).collect())
}

fn one(name: &str, mut items: BTreeMap<String, Vec<ItemId>>) -> Result<ItemId, String> {
    match items.remove(name).unwrap_or_default().as_slice() {
        [id] if items.is_empty() => Ok(id.clone()),
        ids => Err(format!("{ids:?} of {name} and {items:?} were pushed by hand")),
    }
}
