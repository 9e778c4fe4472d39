//! What changes of single items have told operators, and cancellations the holders of leases.

use kvqueue_queue::{CancelCounts, ItemChange, millis};

use crate::intent::{Intent, ItemPlan, Operation};
use crate::model::{Event, Model, Verdict, promise};

/// What a change told of an item was true of it at some moment since the operation began.
pub(super) fn check(operation: &Operation, change: &ItemChange, effects: &[Event], model: &Model) -> Verdict {
    let Intent::Change { id, plan } = &operation.intent else { return Ok(()) };
    let was = |state| model.was_since(operation.begun, id, state);
    match (change, effects) {
        (ItemChange::Done(state), [Event::ItemChanged { from, .. }]) => {
            promise!(state == from, "{operation}: told that {id} was {state:?}, and it was {from:?}");
        }
        // It is ready already.
        (ItemChange::Done(state), []) => {
            let is_ready = *plan == ItemPlan::Reschedule(None) && was(Some(*state));
            promise!(is_ready, "{operation}: told {change:?} of {id}, and did nothing");
        }
        (_, [_, ..]) => return Err(format!("{operation}: told {change:?}, and did {effects:?}")),
        (ItemChange::Refused(state), []) => {
            promise!(was(Some(*state)), "{operation}: told that {id} is {state:?}, and it was not");
        }
        (ItemChange::Gone, []) => {
            promise!(was(None), "{operation}: told that {id} is gone, and it was there");
        }
        (ItemChange::ExpiresFirst(at), []) => {
            let is_late = matches!(plan, ItemPlan::Reschedule(Some(due)) if *due >= millis(*at));
            promise!(is_late, "{operation}: told that {id} expires at {at:?}");
        }
        (ItemChange::UniqueTaken(holder), []) => {
            let (key, other) = (model.unique_key(id), model.unique_key(holder));
            promise!(
                key.is_some() && key == other && holder != id,
                "{operation}: told that {holder} has the key of {id}"
            );
        }
    }
    Ok(())
}

/// A step of a cancellation of many items cancelled as many as it told.
pub(super) fn check_many(operation: &Operation, told: CancelCounts, effects: &[Event]) -> Verdict {
    let did = match effects {
        [Event::CancelledAll(items)] => items.len(),
        _ => 0,
    };
    promise!(
        told.cancelled == did && told.unreadable == 0,
        "{operation}: told {told:?}, and cancelled {did}"
    );
    Ok(())
}

/// A transaction was given up, since items that it was to settle had been cancelled.
pub(super) fn check_given_up(
    operation: &Operation,
    items: &[usize],
    effects: &[Event],
    model: &Model,
) -> Verdict {
    promise!(effects.is_empty(), "{operation} was given up, and did {effects:?}");
    let Intent::Settle { lease, settlements, .. } = &operation.intent else { return Ok(()) };
    for index in items {
        let is_known = settlements.iter().any(|(settled, _)| settled == index);
        promise!(
            is_known && model.was_cancelled(*lease, *index),
            "{operation} was given up, since item {index} of {lease:?} was cancelled, which is not so"
        );
    }
    Ok(())
}
