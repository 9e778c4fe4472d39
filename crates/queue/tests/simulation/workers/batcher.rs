//! An owner of batches: makes them, commits them, cancels some.

use std::num::NonZeroUsize;
use std::rc::Rc;

use kvqueue_queue::item_batch::{BatchError, BatchId, BatchView, NewBatch};
use kvqueue_queue::{Kind, NewItem, from_millis};

use super::historian::keep;
use super::joiner;
use super::operator::freeze;
use super::producer::failed;
use crate::claims::{BatchClaim, Claim};
use crate::desk::Desk;
use crate::image::batches::HOME;
use crate::intent::{BatchPlan, Intent};
use crate::model::batch_counts;

/// Changes batches a few times.
pub(super) async fn work(desk: Rc<Desk>) {
    for _ in 0..2 + desk.below(8) {
        let known: Vec<BatchId> = desk.world.oracle.borrow().model(0).batches().keys().cloned().collect();
        let any = (!known.is_empty()).then(|| known[desk.below(known.len())].clone());
        match (any, desk.below(10)) {
            (Some(id), 0..=3) => change(&desk, id, BatchPlan::Commit).await,
            (Some(id), 4) => change(&desk, id, BatchPlan::Cancel).await,
            (_, 5..) if known.len() >= 4 => {}
            _ => make(&desk).await,
        }
        look(&desk).await;
        match desk.below(10) {
            0..=6 => {
                for _ in 0..1 + desk.below(2) {
                    joiner::join(&desk).await;
                }
            }
            7 if known.len() < 4 => joiner::push_after(&desk, new_batch(&desk)).await,
            _ => {}
        }
        for _ in 0..1 + desk.below(4) {
            desk.pause().await;
        }
    }
}

/// Commits what is not committed, so that it calls back, and has ended items cleared that no setting speaks of. A frozen queue is thawed for that.
pub(super) async fn finish(desk: Rc<Desk>) {
    let is_frozen = desk.world.oracle.borrow().model(desk.at).is_frozen();
    if is_frozen {
        freeze(&desk, false).await;
    }
    let open: Vec<BatchId> = {
        let oracle = desk.world.oracle.borrow();
        let open = oracle.model(desk.at).batches().iter().filter(|(_, batch)| batch.committed.is_none());
        open.map(|(id, _)| id.clone()).collect()
    };
    for id in open {
        change(&desk, id, BatchPlan::Commit).await;
    }
    // What ended while the history was turned off is there for ever, unless it is turned off once more.
    let has_rest = {
        let oracle = desk.world.oracle.borrow();
        let model = oracle.model(desk.at);
        model.history().is_none() && !model.ended_items().is_empty()
    };
    if has_rest {
        keep(&desk, 0).await;
    }
    desk.pause().await;
}

async fn make(desk: &Desk) {
    let (id, new) = new_batch(desk);
    change(desk, id, BatchPlan::Make(Box::new(new))).await;
}

/// A batch, with an id of its own.
fn new_batch(desk: &Desk) -> (BatchId, NewBatch) {
    let id = BatchId::with_unique(HOME, desk.id().0);
    let mut callback = NewItem::new(format!("called back {id}")).with_attribute("colour", "blue");
    match desk.queue.kind() {
        Kind::Priority(..) => callback.priority = desk.below(4) as i64 - 1,
        Kind::Keyed => callback.key = Some(["a", "a/x"][desk.below(2)].into()),
        _ => {}
    }
    let ahead = [None, Some(1), Some(5_000), Some(60_000), Some(500_000)][desk.below(5)];
    let deadline = ahead.map(|ahead| desk.now() + ahead);
    (id, NewBatch { callback, deadline: deadline.map(from_millis) })
}

/// An open batch; or now and then one that gets no more members.
pub(super) fn any_open(desk: &Desk) -> Option<BatchId> {
    let oracle = desk.world.oracle.borrow();
    let batches = oracle.model(0).batches();
    let is_wanted = |id: &&BatchId| batches[*id].committed.is_none() || desk.chance(10);
    let known: Vec<&BatchId> = batches.keys().filter(is_wanted).collect();
    if known.is_empty() { None } else { Some(known[desk.below(known.len())].clone()) }
}

async fn change(desk: &Desk, id: BatchId, plan: BatchPlan) {
    let (now, policy) = (desk.now(), desk.policy());
    let (queue, db) = (&desk.queue, &desk.world.db);
    let intent = Intent::Batch { id: id.clone(), now, plan: plan.clone() };
    let (operation, claim) = match plan {
        // With an id of its own, so that a run can be repeated: in one transaction, once.
        BatchPlan::Make(new) => desk.run(intent, make_once(desk, &id, &new, now)).await,
        BatchPlan::Commit => {
            let doing = async { queue.finish_batch(db, &policy, &id, from_millis(now)).await };
            let (operation, done) = desk.run(intent, doing).await;
            let claim = |done| Claim::Batch(BatchClaim::Commit(done));
            (operation, done.map(|done| done.map_or_else(|error| failed(&error), claim)))
        }
        BatchPlan::Cancel => {
            let doing = async { queue.drop_batch(db, &policy, &id).await };
            let (operation, done) = desk.run(intent, doing).await;
            let claim = |done| Claim::Batch(BatchClaim::Cancelled(done));
            (operation, done.map(|done| done.map_or_else(|error| failed(&error), claim)))
        }
    };
    if let Some(claim) = claim {
        desk.told(&operation, &claim);
    }
}

async fn make_once(desk: &Desk, id: &BatchId, new: &NewBatch, now: u64) -> Claim {
    let tr = desk.world.db.create_trx().unwrap();
    match desk.queue.new_batch(&tr, id, new, from_millis(now)).await {
        Ok(()) => {}
        Err(BatchError::Queue(error)) if error.database().is_some() || error.frozen().is_some() => {
            return Claim::Failed { perhaps: false };
        }
        Err(error) => panic!("{error}"),
    }
    match tr.commit().await {
        Ok(_committed) => Claim::Batch(BatchClaim::Made),
        Err(error) => Claim::Failed { perhaps: !error.is_retryable_not_committed() },
    }
}

/// Reads all batches, which are as the last commit has left them, since nothing commits meanwhile.
async fn look(desk: &Desk) {
    let tr = desk.world.db.create_trx().unwrap();
    let (mut found, mut behind) = (Vec::new(), None);
    loop {
        let k = NonZeroUsize::new(100).unwrap();
        // A fault of the database may be in the way.
        let Ok(page) = desk.queue.batches_after(&tr, behind.as_ref(), k).await else { return };
        let Some(last) = page.last() else { break };
        behind = Some(last.id.clone());
        found.extend(page);
    }
    let oracle = desk.world.oracle.borrow();
    let view = |(id, batch): (&BatchId, &crate::image::batches::Batch)| BatchView {
        id: id.clone(),
        created: from_millis(batch.created),
        committed: batch.committed.map(from_millis),
        batch: NewBatch { callback: batch.callback.clone(), deadline: batch.deadline.map(from_millis) },
        counts: batch_counts(&batch.counts),
    };
    let expected: Vec<BatchView> = oracle.model(0).batches().iter().map(view).collect();
    assert_eq!(found, expected, "batches are shown wrong");
    desk.world.count_if(!found.is_empty(), "batches are read");
}
