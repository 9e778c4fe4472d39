//! An operator, who decides about dead letters, deletes items, freezes the queue, and limits its keys.

use std::num::NonZeroU32;
use std::rc::Rc;
use std::time::Duration;

use kvqueue_queue::{
    ItemChange, ItemId, Kind, LimitError, Limits, Partitions, Pattern, Pause, Rate, from_millis, retry,
};

use super::producer::failed;
use crate::claims::Claim;
use crate::desk::Desk;
use crate::intent::Intent;
use crate::simulation::AGE;

/// Freezes the queue, or lets it go on.
pub(super) async fn freeze(desk: &Desk, frozen: bool) {
    let (queue, db, policy) = (&desk.queue, &desk.world.db, desk.policy());
    let pause = Pause { at: from_millis(1), frozen: true, reason: "an operator says so".to_owned() };
    let doing = retry::run(db, &policy, |tr| {
        match frozen {
            true => queue.pause(&tr, &pause),
            false => queue.resume(&tr),
        }
        async move { (tr, Ok(())) }
    });
    let (operation, done) = desk.run(Intent::Freeze(frozen), doing).await;
    match done {
        Some(Ok(_)) => desk.told(&operation, &Claim::Done),
        Some(Err(error)) => desk.told(&operation, &failed(&error)),
        None => {}
    }
}

/// Deletes an item, whatever it is doing.
async fn delete(desk: &Desk) {
    let ids: Vec<ItemId> = {
        let oracle = desk.world.oracle.borrow();
        let model = oracle.model(desk.at);
        model.open().map(|(id, _)| id).chain(model.dead()).cloned().collect()
    };
    if ids.is_empty() {
        return desk.pause().await;
    }
    let id = &ids[desk.below(ids.len())];
    let (queue, db, policy) = (&desk.queue, &desk.world.db, desk.policy());
    let doing = queue.delete_item(db, &policy, id);
    let (operation, fate) = desk.run(Intent::Delete(id.clone()), doing).await;
    match fate {
        Some(Ok(ItemChange::Done(_))) => desk.told(&operation, &Claim::Done),
        Some(Ok(_)) => desk.told(&operation, &Claim::Failed { perhaps: false }),
        Some(Err(error)) => desk.told(&operation, &failed(&error)),
        None => {}
    }
}

/// Changes a rule of the queue's keys. No limit is 0, since everything is to be done in the end.
async fn limit(desk: &Desk) {
    let pattern = match desk.below(6) {
        0 => Pattern::QUEUE,
        n => Pattern::keys(["*", "a", "a/*", "*/x", "b"][n - 1]).unwrap(),
    };
    let mut limits = match desk.below(4) {
        0 => Limits::default(),
        n => Limits::default().with_running(n as u32),
    };
    if desk.chance(30) {
        let per = Duration::from_micros([1_000_000, AGE / 10, AGE][desk.below(3)]);
        let rate = Rate::new(NonZeroU32::new(1 + desk.below(5) as u32).unwrap(), per).unwrap();
        let burst = NonZeroU32::new(desk.below(4) as u32);
        limits = limits.with_rate(burst.map_or(rate, |burst| rate.with_burst(burst)));
    }
    if !pattern.is_queue() && desk.chance(60) {
        limits = limits.with_ordered(desk.chance(80)).with_blocks_on_dead(desk.chance(70));
    }
    let (queue, db, policy) = (&desk.queue, &desk.world.db, desk.policy());
    let (pattern, limits) = (&pattern, &limits);
    let doing = retry::run(db, &policy, |tr| async move {
        let set = queue.set_rule(&tr, pattern, limits).await.map_err(|error| match error {
            LimitError::Queue(error) => error,
            error => panic!("{error}"),
        });
        (tr, set)
    });
    let (operation, done) = desk.run(Intent::Limit, doing).await;
    match done {
        Some(Ok(_)) => desk.told(&operation, &Claim::Done),
        Some(Err(error)) => desk.told(&operation, &failed(&error)),
        None => {}
    }
}

/// Lets a key go on.
async fn unblock(desk: &Desk, key: Vec<u8>) {
    let (queue, db, policy) = (&desk.queue, &desk.world.db, desk.policy());
    let held = key.as_slice();
    let doing = retry::run(db, &policy, |tr| async move {
        let was_held = queue.unblock(&tr, held).await.map_err(|error| match error {
            LimitError::Queue(error) => error,
            error => panic!("{error}"),
        });
        (tr, was_held)
    });
    let (operation, done) = desk.run(Intent::Unblock(key.clone()), doing).await;
    match done {
        Some(Ok(_)) => desk.told(&operation, &Claim::Done),
        Some(Err(error)) => desk.told(&operation, &failed(&error)),
        None => {}
    }
}

/// Divides the queue, or changes how it is divided.
async fn divide(desk: &Desk) {
    let max_disorder = [0, 1_000, AGE / 2, 10 * AGE][desk.below(4)];
    let to = Partitions::new(1 + desk.below(4), Duration::from_micros(max_disorder)).unwrap();
    let (queue, db, policy) = (&desk.queue, &desk.world.db, desk.policy());
    let doing = retry::run(db, &policy, |tr| async move {
        let divided = queue.set_partitions(&tr, to).await;
        (tr, divided)
    });
    let (operation, done) = desk.run(Intent::Divide, doing).await;
    match done {
        Some(Ok(_)) => desk.told(&operation, &Claim::Done),
        Some(Err(error)) => desk.told(&operation, &failed(&error)),
        None => {}
    }
}

/// Lets all keys go on that wait for dead letters. A frozen queue is thawed for that.
pub(super) async fn unblock_all(desk: Rc<Desk>) {
    let is_frozen = desk.world.oracle.borrow().model(desk.at).is_frozen();
    if is_frozen {
        freeze(&desk, false).await;
    }
    let blocked = desk.world.oracle.borrow().index(desk.at).blocked();
    for key in blocked {
        unblock(&desk, key).await;
    }
    desk.pause().await;
}

/// Looks in a few times.
pub(super) async fn work(desk: Rc<Desk>) {
    for _ in 0..1 + desk.below(5) {
        let is_frozen = desk.world.oracle.borrow().model(desk.at).is_frozen();
        // The other queue has to wait with the ends of members.
        let has_second = desk.world.queues.len() > 1;
        if is_frozen || desk.chance(if has_second { 25 } else { 10 }) {
            freeze(&desk, !is_frozen).await;
            for _ in 0..if has_second { 1 + desk.below(8) } else { 1 } {
                desk.pause().await;
            }
            continue;
        }
        if desk.queue.kind() == Kind::Keyed && desk.chance(40) {
            limit(&desk).await;
            continue;
        }
        if desk.queue.kind() == Kind::Keyed && desk.chance(10) {
            let keys = ["", "a", "a/x", "a/y", "b", "b/x"];
            unblock(&desk, keys[desk.below(keys.len())].into()).await;
            continue;
        }
        if desk.is_divided() && desk.chance(40) {
            divide(&desk).await;
            continue;
        }
        if desk.chance(15) {
            delete(&desk).await;
            continue;
        }
        let dead: Vec<ItemId> = desk.world.oracle.borrow().model(desk.at).dead().cloned().collect();
        if dead.is_empty() {
            desk.pause().await;
            continue;
        }
        let id = dead[desk.below(dead.len())].clone();
        let (queue, db, policy) = (&desk.queue, &desk.world.db, desk.policy());
        let one = |fate| match fate {
            ItemChange::Done(_) => Claim::Done,
            _ => Claim::Failed { perhaps: false },
        };
        let (operation, decided) = match desk.below(4) {
            0 => {
                desk.run(Intent::Revive(None), async {
                    queue.retry_all_dead(db, &policy, None).await.map(|_| Claim::Done)
                })
                .await
            }
            1 => {
                desk.run(Intent::Purge(Some(id.clone())), async {
                    queue.purge_dead(db, &policy, &id).await.map(one)
                })
                .await
            }
            _ => {
                desk.run(Intent::Revive(Some(id.clone())), async {
                    queue.retry_dead(db, &policy, &id).await.map(one)
                })
                .await
            }
        };
        match decided {
            Some(Ok(claim)) => desk.told(&operation, &claim),
            Some(Err(error)) => desk.told(&operation, &failed(&error)),
            None => {}
        }
    }
}
