//! An operator of single items: cancels them, puts them off, tries them again, gives them another payload.

use std::rc::Rc;

use kvqueue_queue::{
    CancelFilter, Canceller, ItemChange, ItemId, ItemState, Kind, QueueError, RetryPolicy, from_millis,
    millis,
};

use super::producer::{LONG, failed};
use crate::claims::Claim;
use crate::desk::Desk;
use crate::image::{Stored, essence};
use crate::intent::{Intent, ItemPlan};

/// The most steps in which a canceller is patient.
const STEPS: usize = 20;

/// Changes items a few times.
pub(super) async fn work(desk: Rc<Desk>) {
    for round in 0..2 + desk.below(8) {
        if desk.chance(15) {
            look(&desk).await;
        } else if desk.chance(8) {
            cancel_all(&desk).await;
        } else if let Some((id, is_dead)) = any(&desk) {
            change(&desk, id, is_dead, round).await;
        }
        for _ in 0..1 + desk.below(3) {
            desk.pause().await;
        }
    }
}

/// An item that is there, or now and then one that has ended; and whether it is a dead letter.
fn any(desk: &Desk) -> Option<(ItemId, bool)> {
    let oracle = desk.world.oracle.borrow();
    let model = oracle.model(desk.at);
    let dead: Vec<&ItemId> = model.dead().collect();
    if !dead.is_empty() && desk.chance(40) {
        return Some((dead[desk.below(dead.len())].clone(), true));
    }
    let ids: Vec<&ItemId> = match desk.below(10) {
        0 => model.ended().collect(),
        _ => model.open().map(|(id, _)| id).collect(),
    };
    if ids.is_empty() { None } else { Some((ids[desk.below(ids.len())].clone(), false)) }
}

async fn change(desk: &Desk, id: ItemId, is_dead: bool, round: usize) {
    let due = desk.now().saturating_add_signed([-1_000, 1_000, 5_000, 100_000][desk.below(4)]);
    let plan = match desk.below(10) {
        // Anything else is refused.
        0..=3 if is_dead => ItemPlan::Retry,
        4..=7 if is_dead => ItemPlan::Edit(payload(desk, round)),
        0..=3 => ItemPlan::Cancel,
        4 => ItemPlan::Reschedule(None),
        5 | 6 => ItemPlan::Reschedule(Some(due)),
        7 => ItemPlan::Retry,
        _ => ItemPlan::Edit(payload(desk, round)),
    };
    let intent = Intent::Change { id: id.clone(), plan: plan.clone() };
    let (operation, claim) = if desk.chance(30) {
        desk.run(intent, in_transaction(desk, &id, &plan)).await
    } else {
        let policy = desk.policy();
        desk.run(intent, alone(desk, &policy, &id, &plan)).await
    };
    if let Some(claim) = claim {
        desk.told(&operation, &claim);
    }
}

/// A payload; no two are alike.
fn payload(desk: &Desk, round: usize) -> Vec<u8> {
    let mut payload = format!("edited {} {round}", desk.name()).into_bytes();
    if desk.below(40) == 0 {
        payload.resize(LONG, b'.');
    }
    payload
}

/// In a transaction of its own, exactly once.
async fn alone(desk: &Desk, policy: &RetryPolicy, id: &ItemId, plan: &ItemPlan) -> Claim {
    let (queue, db) = (&desk.queue, &desk.world.db);
    let changed = match plan {
        ItemPlan::Cancel => queue.cancel_item(db, policy, id).await,
        ItemPlan::Reschedule(due) => queue.reschedule_item(db, policy, id, due.map(from_millis)).await,
        ItemPlan::Retry => queue.retry_item(db, policy, id).await,
        ItemPlan::Edit(payload) => queue.edit_item(db, policy, id, payload).await,
    };
    changed.map_or_else(|error| failed(&error), Claim::Changed)
}

/// In a transaction of the operator's, once.
async fn in_transaction(desk: &Desk, id: &ItemId, plan: &ItemPlan) -> Claim {
    let (queue, tr) = (&desk.queue, desk.world.db.create_trx().unwrap());
    let changed: Result<ItemChange, QueueError> = match plan {
        ItemPlan::Cancel => queue.cancel(&tr, id).await,
        ItemPlan::Reschedule(due) => queue.reschedule(&tr, id, due.map(from_millis)).await,
        ItemPlan::Retry => queue.retry(&tr, id).await,
        ItemPlan::Edit(payload) => queue.edit_payload(&tr, id, payload).await,
    };
    let change = match changed {
        Ok(change) => change,
        Err(error) => {
            assert!(error.database().is_some() || error.frozen().is_some(), "{error}");
            return Claim::Failed { perhaps: false };
        }
    };
    match tr.commit().await {
        Ok(_committed) => Claim::Changed(change),
        Err(error) => Claim::Failed { perhaps: !error.is_retryable_not_committed() },
    }
}

/// Looks at an item, which is as the last commit has left it, since nothing commits meanwhile.
async fn look(desk: &Desk) {
    let running: Vec<ItemId> = {
        let oracle = desk.world.oracle.borrow();
        oracle.model(desk.at).with_progress().cloned().collect()
    };
    let id = match any(desk) {
        _ if !running.is_empty() && desk.chance(60) => running[desk.below(running.len())].clone(),
        Some((id, _)) => id,
        None => return,
    };
    let tr = desk.world.db.create_trx().unwrap();
    // A fault of the database may be in the way.
    let Ok(shown) = desk.queue.view_item(&tr, &id).await else { return };
    let stored = desk.world.oracle.borrow().model(desk.at).view(&id);
    let has_progress = shown.as_ref().is_some_and(|shown| shown.progress.is_some());
    let shown = shown.map(|shown| {
        let item = shown.item.unwrap();
        let meta = essence(item.meta.map(|meta| (*meta).clone()).unwrap_or_default());
        (shown.state, Stored { payload: item.payload.to_vec(), meta }, shown.due.map(millis), shown.progress)
    });
    assert_eq!(shown, stored, "{id} is shown wrong");
    desk.world.count("an item is looked at");
    desk.world.count_if(has_progress, "the progress of an item is read");
}

/// Cancels all items that match, step by step.
async fn cancel_all(desk: &Desk) {
    let filter = CancelFilter {
        state: [None, Some(ItemState::Ready), Some(ItemState::Scheduled), Some(ItemState::Running)]
            [desk.below(4)],
        key: (desk.queue.kind() == Kind::Keyed && desk.chance(70)).then(|| b"a/x".to_vec()),
        attribute: desk.chance(70).then(|| ("colour".to_owned(), "green".to_owned())),
    };
    let mut canceller = Canceller::new(desk.queue.clone(), filter.clone());
    for _ in 0..STEPS {
        let policy = desk.policy();
        let page = canceller.page(&desk.world.db, &policy);
        let (operation, page) = desk.run(Intent::CancelAll(filter.clone()), page).await;
        match page {
            Some(Ok(Some(counts))) => desk.told(&operation, &Claim::CancelledSome(counts)),
            Some(Ok(None)) => break,
            Some(Err(error)) => desk.told(&operation, &failed(&error)),
            None => {}
        }
        desk.pause().await;
    }
    let policy = desk.policy();
    let (operation, closed) =
        desk.run(Intent::CancelAll(filter), canceller.close(&desk.world.db, &policy)).await;
    if let Some(Err(error)) = closed {
        desk.told(&operation, &failed(&error));
    }
}
