//! Reading from two images what happened to batches between them.

use kvqueue_queue::ItemId;
use kvqueue_queue::item_batch::BatchId;

use super::BatchPlan;
use crate::image::Image;
use crate::model::{Event, Sweeping};
use crate::world::Millis;

/// What was done to one batch, if something was.
pub(super) fn changed(
    id: &BatchId,
    now: Millis,
    plan: &BatchPlan,
    before: &Image,
    after: &Image,
) -> Vec<Event> {
    let [old, new] = [before, after].map(|image| image.batches.get(id));
    if old == new {
        return Vec::new();
    }
    let id = id.clone();
    vec![match plan {
        BatchPlan::Make(batch) => Event::BatchMade { id, new: batch.clone(), now },
        BatchPlan::Commit => Event::BatchCommitted { id, now },
        BatchPlan::Cancel => Event::BatchCancelled(id),
    }]
}

/// The items of a queue that join a batch.
pub(super) fn joined(id: &BatchId, items: &[(usize, ItemId)], at: usize) -> Event {
    let items = items.iter().filter(|(of, _)| *of == at).map(|(_, item)| item.clone()).collect();
    Event::Joined { id: id.clone(), items }
}

/// What a sweeper did about batches, if it did something.
pub(super) fn seen(by: Sweeping, before: &Image, after: &Image) -> Result<Option<Event>, String> {
    let mut closed = Vec::new();
    for id in before.batches.keys().filter(|id| !after.batches.contains_key(*id)) {
        closed.push((id.clone(), callback(id, before, after)?));
    }
    let is_unmarked = |id: &&BatchId| before.batches[*id].mark.is_some() && after.batches[*id].mark.is_none();
    let there = before.batches.keys().filter(|id| after.batches.contains_key(*id));
    let unmarked: Vec<BatchId> = there.filter(is_unmarked).cloned().collect();
    let is_something = !closed.is_empty() || !unmarked.is_empty();
    Ok(is_something.then_some(Event::BatchesSeen { closed, unmarked, by }))
}

/// The item that became ready and names a batch.
fn callback(id: &BatchId, before: &Image, after: &Image) -> Result<ItemId, String> {
    let text = id.to_string();
    let new = after.ready.iter().filter(|(item, _)| !before.ready.contains_key(*item));
    let mut own = new.filter(|(_, stored)| stored.meta.attributes.get("batch") == Some(&text));
    match (own.next(), own.next()) {
        (Some((item, _)), None) => Ok(item.clone()),
        _ => Err(format!("{id} is gone, and did not call back once")),
    }
}
