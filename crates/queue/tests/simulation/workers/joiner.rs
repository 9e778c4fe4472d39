//! Lets items that are in a queue, or were there, join batches, whatever they are doing; and pushes items after others.

use std::collections::BTreeMap;
use std::rc::Rc;

use foundationdb::Transaction;
use kvqueue_queue::item_batch::{BatchError, BatchId, Join, NewBatch};
use kvqueue_queue::{ItemId, QueueError, from_millis, retry};

use super::batcher::any_open;
use super::operator::freeze;
use super::producer::{failed, no_batch};
use crate::claims::{BatchClaim, Claim};
use crate::desk::Desk;
use crate::intent::{Intent, Operation};
use crate::model::Place;

/// Lets items join a few times, and now and then freezes the queue for a while.
pub(super) async fn work(desk: Rc<Desk>) {
    for _ in 0..2 + desk.below(6) {
        let is_frozen = desk.world.oracle.borrow().model(desk.at).is_frozen();
        if desk.chance(if is_frozen { 40 } else { 10 }) {
            freeze(&desk, !is_frozen).await;
        } else {
            join(&desk).await;
        }
        for _ in 0..1 + desk.below(3) {
            desk.pause().await;
        }
    }
}

/// Lets some items of the queue join a batch: once, or until it is known that they have.
pub(super) async fn join(desk: &Desk) {
    let (Some(id), items) = (any_open(desk), some(desk, desk.at)) else { return };
    if items.is_empty() {
        return;
    }
    let intent = Intent::Join { id: id.clone(), items: items.clone() };
    let (operation, claim) = match desk.chance(40) {
        true => desk.run(intent, in_transaction(desk, &id, &items)).await,
        false => desk.run(intent, until_known(desk, &id, &items)).await,
    };
    report(desk, &operation, claim);
}

/// Pushes an item after others of any queue, in one transaction: as the layer does it, but with a batch of this id, so that a run can be repeated.
pub(super) async fn push_after(desk: &Desk, (id, new): (BatchId, NewBatch)) {
    let mut items: Vec<(usize, ItemId)> = some(desk, desk.at).into_iter().map(|id| (desk.at, id)).collect();
    if desk.world.queues.len() > 1 {
        // In any order.
        items.extend(some(desk, 1).into_iter().map(|id| (1, id)));
        let behind = items.split_off(desk.below(items.len() + 1));
        items.splice(0..0, behind);
    }
    if items.is_empty() {
        return;
    }
    let now = desk.now();
    let intent = Intent::After { id: id.clone(), now, new: Box::new(new.clone()), items: items.clone() };
    let doing = async {
        let tr = desk.world.db.create_trx().unwrap();
        let joined = async {
            desk.queue.new_batch(&tr, &id, &new, from_millis(now)).await?;
            let joined = join_each(desk, &tr, &id, &items).await?;
            desk.queue.commit_batch(&tr, &id, from_millis(now)).await?;
            Ok(joined)
        };
        match joined.await {
            Ok(joined) => commit(tr, joined).await,
            Err(BatchError::Queue(error)) => refused(desk, &error),
            Err(error) => panic!("{error}"),
        }
    };
    let (operation, claim) = desk.run(intent, doing).await;
    desk.world.count_if(matches!(claim, Some(Claim::Batch(_))), "an item is pushed after others");
    report(desk, &operation, claim);
}

/// Lets items join, those of each queue together. Returns what came of them, in their order.
async fn join_each(
    desk: &Desk,
    tr: &Transaction,
    id: &BatchId,
    items: &[(usize, ItemId)],
) -> Result<Vec<Join>, QueueError> {
    let mut joined = BTreeMap::new();
    for (at, queue) in desk.world.queues.iter().enumerate() {
        let own: Vec<ItemId> =
            items.iter().filter(|(of, _)| *of == at).map(|(_, item)| item.clone()).collect();
        let joins = queue.join_batch(tr, id, &own).await?;
        joined.extend(own.into_iter().zip(joins));
    }
    Ok(items.iter().map(|(_, item)| joined[item]).collect())
}

/// Some items of the queue of this number, perhaps one of them twice.
fn some(desk: &Desk, at: usize) -> Vec<ItemId> {
    (0..1 + desk.below(4)).filter_map(|_| any(desk, at)).collect()
}

/// An item: one that runs, more often than others.
fn any(desk: &Desk, at: usize) -> Option<ItemId> {
    let oracle = desk.world.oracle.borrow();
    let model = oracle.model(at);
    let ids: Vec<&ItemId> = match desk.below(10) {
        0 => model.ended().collect(),
        1 => model.ended_items().keys().map(|(.., id)| id).collect(),
        2 => model.dead().collect(),
        3..=5 => {
            model.open().filter(|(_, place)| matches!(place, Place::Leased(_))).map(|(id, _)| id).collect()
        }
        _ => model.open().map(|(id, _)| id).collect(),
    };
    if ids.is_empty() { None } else { Some(ids[desk.below(ids.len())].clone()) }
}

async fn in_transaction(desk: &Desk, id: &BatchId, items: &[ItemId]) -> Claim {
    let tr = desk.world.db.create_trx().unwrap();
    match desk.queue.join_batch(&tr, id, items).await {
        Ok(joined) => commit(tr, joined).await,
        Err(error) => refused(desk, &error),
    }
}

async fn commit(tr: Transaction, joined: Vec<Join>) -> Claim {
    match tr.commit().await {
        Ok(_committed) => Claim::Batch(BatchClaim::Joined(joined)),
        Err(error) => Claim::Failed { perhaps: !error.is_retryable_not_committed() },
    }
}

/// Items that have ended may be counted more than once then.
async fn until_known(desk: &Desk, id: &BatchId, items: &[ItemId]) -> Claim {
    let (queue, policy) = (&desk.queue, desk.policy());
    let joined = retry::run(&desk.world.db, &policy, |tr| async move {
        let joined = queue.join_batch(&tr, id, items).await;
        (tr, joined)
    });
    match joined.await {
        Ok(done) => Claim::Batch(BatchClaim::Joined(done.value)),
        Err(error) if no_batch(&error.error).is_some() => refused(desk, &error.error),
        Err(error) => failed(&error),
    }
}

/// A join that failed before it was sent.
fn refused(desk: &Desk, error: &QueueError) -> Claim {
    if let Some(id) = no_batch(error) {
        desk.world.count("a join is refused, because its batch gets no more members");
        return Claim::NoBatch(id.clone());
    }
    desk.world.count_if(error.frozen().is_some(), "a join is refused by a frozen queue");
    assert!(error.database().is_some() || error.frozen().is_some(), "{error}");
    Claim::Failed { perhaps: false }
}

fn report(desk: &Desk, operation: &Operation, claim: Option<Claim>) {
    let Some(claim) = claim else { return };
    if let Claim::Batch(BatchClaim::Joined(joins)) = &claim {
        for join in joins {
            desk.world.count_if(*join == Join::WasMember, "an item joins that was a member before");
            desk.world.count_if(*join == Join::Gone, "an item is to join that is gone");
        }
    }
    desk.told(operation, &claim);
}
