//! What operations on batches have told, and sweeps that closed some.

use std::collections::BTreeMap;

use kvqueue_queue::ItemId;
use kvqueue_queue::item_batch::{BatchCommit, BatchCounts, BatchId, CloseReason, ClosedBatch, Join};

use crate::intent::{Intent, Operation};
use crate::model::{Event, Model, Verdict, promise};

/// The result of an operation on a batch.
#[derive(Debug)]
pub(crate) enum BatchClaim {
    Made,
    Commit(BatchCommit),
    /// It had these counts, if it was there.
    Cancelled(Option<BatchCounts>),
    /// This came of the items that were to join, in their order.
    Joined(Vec<Join>),
}

pub(super) fn check(operation: &Operation, claim: &BatchClaim, effects: &[Event], model: &Model) -> Verdict {
    let Intent::Batch { id, .. } = &operation.intent else { return Ok(()) };
    let there = model.batches().get(id);
    match (claim, effects) {
        (BatchClaim::Made, [Event::BatchMade { .. }])
        | (BatchClaim::Commit(BatchCommit::Committed), [Event::BatchCommitted { .. }]) => {}
        (BatchClaim::Commit(BatchCommit::WasCommitted), []) => {
            // It may have called back meanwhile.
            promise!(
                there.is_none_or(|batch| batch.committed.is_some()),
                "{operation}: told that {id} was committed before, and it is open"
            );
        }
        (BatchClaim::Commit(BatchCommit::Gone) | BatchClaim::Cancelled(None), []) => {
            promise!(there.is_none(), "{operation}: told that {id} is gone, and it is there");
        }
        (BatchClaim::Cancelled(Some(counts)), [Event::BatchCancelled(_)]) => {
            promise!(
                model.had_counts(id, operation.begun, *counts),
                "{operation}: told that {id} had {counts:?}, which it never had"
            );
        }
        _ => return Err(format!("{operation}: told {claim:?}, and did {effects:?}")),
    }
    Ok(())
}

/// A join told what a transaction of it did, or that there was nothing to do. `did`: what each of its transactions made of the items. After an unknown outcome
/// there may be more than one.
pub(super) fn check_joined(
    operation: &Operation,
    told: &[Join],
    did: &[BTreeMap<ItemId, Join>],
    model: &Model,
) -> Verdict {
    let items: Vec<&ItemId> = match &operation.intent {
        Intent::Join { items, .. } => items.iter().collect(),
        Intent::After { items, .. } => items.iter().map(|(_, item)| item).collect(),
        _ => return Ok(()),
    };
    let is_told =
        |joins: &BTreeMap<ItemId, Join>| items.iter().map(|item| joins.get(item)).eq(told.iter().map(Some));
    if did.iter().any(is_told) {
        return Ok(());
    }
    let Intent::Join { id, items } = &operation.intent else {
        return Err(format!("{operation}: told {told:?}, and did {did:?}"));
    };
    // It wrote nothing. So nothing has committed since it looked.
    let now: Vec<Join> = items.iter().map(|item| model.join_of(id, item, u64::MAX)).collect();
    let is_nothing = now.iter().all(|join| matches!(join, Join::WasMember | Join::Gone));
    promise!(
        is_nothing && now == told,
        "{operation}: told {told:?}, and did {did:?}; now it would tell {now:?}"
    );
    Ok(())
}

/// A sweep told of the batches that it closed, each with the counts and the reason of the callback.
pub(super) fn check_swept(
    operation: &Operation,
    told: &[ClosedBatch],
    closed: &[BatchId],
    may_miss: bool,
    model: &Model,
) -> Verdict {
    let ids: Vec<&BatchId> = told.iter().map(|batch| &batch.id).collect();
    let is_right = match may_miss {
        true => ids.iter().all(|id| closed.contains(id)),
        false => ids.iter().copied().eq(closed),
    };
    promise!(is_right, "{operation}: told that {ids:?} called back, and {closed:?} did");
    for ClosedBatch { id, reason, counts, is_committed, .. } in told {
        promise!(model.had_counts(id, 0, *counts), "{operation}: told that {id} had {counts:?}");
        let is_complete = *is_committed && counts.open() == 0;
        promise!(
            (*reason == CloseReason::Complete) == is_complete,
            "{operation}: told that {id} called back for {reason} with {counts:?}"
        );
    }
    Ok(())
}
