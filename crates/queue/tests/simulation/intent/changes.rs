//! Reading from two images what an operator did to single items between them.

use std::collections::BTreeMap;

use kvqueue_queue::{CancelFilter, ItemId, ItemState, LeaseId, Meta, SessionId};

use super::ItemPlan;
use crate::image::{Image, Stored, key_of};
use crate::model::{Event, ItemChanged};

/// All items that there are, with their states.
fn all(image: &Image) -> BTreeMap<&ItemId, (ItemState, &Stored)> {
    let waits = |meta: &Meta| if meta.attempts > 0 { ItemState::Retrying } else { ItemState::Scheduled };
    let ready = image.ready.iter().map(|(id, stored)| (id, (ItemState::Ready, stored)));
    let later = image.later.iter().map(|((_, id), stored)| (id, (waits(&stored.meta), stored)));
    let dead = image.dead.iter().map(|(id, stored)| (id, (ItemState::Dead, stored)));
    let held = image.leases.values().flat_map(|held| &held.items);
    let running = held.filter_map(|item| Some((&item.id, (ItemState::Running, item.stored.as_ref()?))));
    ready.chain(later).chain(dead).chain(running).collect()
}

/// What was done to one item, if something was.
pub(super) fn changed(
    id: &ItemId,
    plan: &ItemPlan,
    before: &Image,
    after: &Image,
) -> Result<Vec<Event>, String> {
    let [old, new] = [before, after].map(|image| all(image).get(id).copied());
    let Some((from, stored)) = old else { return Ok(Vec::new()) };
    let what = match plan {
        ItemPlan::Cancel => new.is_none().then_some(ItemChanged::Cancelled),
        // What waits for a time, and is to wait for the same, is counted all the same.
        ItemPlan::Reschedule(_) | ItemPlan::Retry if before.counters == after.counters => None,
        ItemPlan::Reschedule(due) => Some(ItemChanged::Rescheduled(*due)),
        ItemPlan::Retry if from == ItemState::Dead => Some(ItemChanged::Retried),
        ItemPlan::Retry => Some(ItemChanged::Rescheduled(None)),
        ItemPlan::Edit(payload) => {
            let new = new.ok_or_else(|| format!("{id} was edited, and is gone"))?.1;
            (new.payload != stored.payload).then(|| ItemChanged::Edited(payload.clone()))
        }
    };
    Ok(what.map(|what| Event::ItemChanged { id: id.clone(), from, what }).into_iter().collect())
}

/// The items that were cancelled together. They match.
pub(super) fn cancelled(filter: &CancelFilter, before: &Image, after: &Image) -> Result<Vec<Event>, String> {
    let (old, new) = (all(before), all(after));
    let mut gone = Vec::new();
    for (id, (state, stored)) in old.into_iter().filter(|(id, _)| !new.contains_key(id)) {
        let is_of_state = filter.state.is_none_or(|wanted| wanted == state);
        let is_of_key = match &filter.key {
            Some(key) => key_of(id)? == *key,
            None => true,
        };
        let has = |(name, value): &(String, String)| stored.meta.attributes.get(name) == Some(value);
        if !is_of_state || !is_of_key || !filter.attribute.as_ref().is_none_or(has) {
            return Err(format!("{id}, which is {state:?}, was cancelled, and {filter:?} was asked for"));
        }
        gone.push((id.clone(), state));
    }
    Ok(if gone.is_empty() { Vec::new() } else { vec![Event::CancelledAll(gone)] })
}

/// Leases of which it is not known any more what was cancelled on them.
pub(super) fn forgotten(
    (own, session): (Option<LeaseId>, Option<SessionId>),
    before: &Image,
    after: &Image,
) -> Vec<Event> {
    let gone = before.cancelled.keys().filter(|lease| !after.cancelled.contains_key(lease));
    gone.map(|lease| Event::CancelledForgotten {
        lease: *lease,
        by_holder: own == Some(*lease) || session == Some(lease.session),
    })
    .collect()
}
