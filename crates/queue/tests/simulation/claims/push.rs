//! What pushes have told their producers.

use kvqueue_queue::{ItemId, PushEffect, PushedItem};

use crate::intent::{Intent, Operation};
use crate::model::{Event, Model, Verdict, promise};

/// An item of a push was added, or there was one of its unique key.
pub(super) fn check(
    operation: &Operation,
    items: &[PushedItem],
    effects: &[Event],
    model: &Model,
) -> Verdict {
    let Intent::Push { items: wanted, .. } = &operation.intent else { return Ok(()) };
    promise!(items.len() == wanted.len(), "{operation}: told of {} items of {}", items.len(), wanted.len());
    let added: Vec<&ItemId> = match effects {
        [Event::Pushed { items, .. }] => items.iter().map(|(id, _)| id).collect(),
        _ => Vec::new(),
    };
    let replaced: Vec<&ItemId> = match effects {
        [Event::Pushed { replaced, .. }] => replaced.iter().map(|(id, _)| id).collect(),
        _ => Vec::new(),
    };
    let told = items.iter().filter(|item| item.effect == PushEffect::Added).map(|item| item.id.as_ref());
    promise!(
        told.clone().eq(added.iter().map(|id| Some(*id))),
        "{operation}: told {items:?}, pushed {added:?}"
    );
    let told = items.iter().filter(|item| item.effect == PushEffect::Replaced);
    let told: Vec<&ItemId> = told.filter_map(|item| item.id.as_ref()).collect();
    // Some are replaced by others of the same push, the last of which may have been added.
    let is_right = replaced.iter().all(|id| told.contains(id))
        && told.iter().all(|id| replaced.contains(id) || added.contains(id));
    promise!(
        is_right,
        "{operation}: told that {told:?} were replaced, and {replaced:?} were, {added:?} added"
    );
    let others = items.iter().zip(wanted).filter(|(item, _)| item.effect != PushEffect::Added);
    for (item, wanted) in others {
        let has = item.id.as_ref().and_then(|id| model.unique_key(id));
        promise!(
            has.is_some() && has == wanted.unique.as_deref(),
            "{operation}: {item:?} has not the key of {wanted:?}"
        );
    }
    Ok(())
}

/// The operation of a push had been done before, and added these items then.
pub(super) fn check_repetition(
    operation: &Operation,
    items: &[PushedItem],
    effects: &[Event],
    model: &Model,
) -> Verdict {
    let Intent::Push { operation: Some(name), .. } = &operation.intent else {
        return Err(format!("{operation} has no name, and its result is that of a repetition"));
    };
    promise!(effects.is_empty(), "{operation}: told that it was repeated, and did {effects:?}");
    let Some(earlier) = model.operation(name) else { return Err(format!("{operation} was not done before")) };
    let is_same = |(told, id): (&PushedItem, &ItemId)| told.id.as_ref().is_none_or(|told| told == id);
    let added: Vec<_> = items.iter().filter(|item| item.effect == PushEffect::Repeated).collect();
    let is_right = added.len() == earlier.len() && added.iter().copied().zip(earlier).all(is_same);
    promise!(is_right, "{operation}: told {items:?}, and {earlier:?} were pushed under its name");
    promise!(
        is_of(operation, earlier, model),
        "{operation} is no repetition: {earlier:?} were pushed before"
    );
    Ok(())
}

/// The push was refused, since other items had been pushed under its name.
pub(super) fn check_reused(operation: &Operation, effects: &[Event], model: &Model) -> Verdict {
    promise!(effects.is_empty(), "{operation}: refused, and did {effects:?}");
    let Intent::Push { operation: Some(name), .. } = &operation.intent else {
        return Err(format!("{operation} has no name, and its result names another"));
    };
    let Some(earlier) = model.operation(name) else { return Err(format!("{operation} was not done before")) };
    // An operation that found only duplicates has no items to compare.
    let is_other = earlier.is_empty() || !is_of(operation, earlier, model);
    promise!(is_other, "{operation} was refused, and these are its own items: {earlier:?}");
    Ok(())
}

/// Whether all these items are what the operation was to push. No two payloads are alike, but for those of repetitions.
fn is_of(operation: &Operation, items: &[ItemId], model: &Model) -> bool {
    let Intent::Push { items: wanted, .. } = &operation.intent else { return false };
    items.iter().all(|id| wanted.iter().any(|wanted| Some(&wanted.payload[..]) == model.payload(id)))
}
