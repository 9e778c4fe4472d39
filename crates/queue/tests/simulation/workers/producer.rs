//! A producer.

use std::rc::Rc;

use kvqueue_queue::item_batch::BatchId;
use kvqueue_queue::{
    IfTaken, Kind, NewItem, PendingPush, PushError, PushOptions, PushedItem, QueueError, RetryError, Session,
    from_millis, millis,
};

use super::batcher::any_open;
use super::consumer::close;
use crate::claims::Claim;
use crate::desk::Desk;
use crate::intent::Intent;

/// Longer than a value may be.
pub(super) const LONG: usize = 100_500;

/// Pushes a few times, each time a few items, in one way or another.
pub(super) async fn work(desk: Rc<Desk>) {
    let mut session = desk.session();
    for round in 0..1 + desk.below(5) {
        let mut items: Vec<NewItem> = (0..1 + desk.below(4)).map(|at| item(&desk, round, at)).collect();
        let operation = desk.chance(20).then(|| format!("operation {}", desk.below(5)).into_bytes());
        if let Some(name) = &operation {
            items = named(&desk, name, items);
        }
        let intent = Intent::Push { items: items.clone(), operation: operation.clone() };
        let mut options = PushOptions::default();
        options.idempotency_key = operation;
        // Such a push begins at the partition that the database's version says, and that is not from the seed.
        let (operation, pushed) = match !desk.is_divided() && desk.chance(30) {
            true => desk.run(intent, push_in_transaction(&desk, &items, &options)).await,
            false => desk.run(intent, push(&desk, &mut session, &items, &options)).await,
        };
        if let Some(claim) = pushed {
            count(&desk, &claim);
            desk.told(&operation, &claim);
        }
        for _ in 0..desk.below(3) {
            desk.pause().await;
        }
    }
    close(&desk, session).await;
}

/// The items that a name stands for, or now and then these, which are others.
fn named(desk: &Desk, name: &[u8], items: Vec<NewItem>) -> Vec<NewItem> {
    let mut named = desk.world.named.borrow_mut();
    let name = (desk.at, name.to_vec());
    match named.get(&name) {
        Some(items) if desk.chance(75) => items.clone(),
        _ => {
            named.insert(name, items.clone());
            items
        }
    }
}

/// An item; no two have the same payload.
fn item(desk: &Desk, round: usize, at: usize) -> NewItem {
    let word = if desk.chance(4) { "poison" } else { "item" };
    let mut payload = format!("{word} {} {round}.{at}", desk.name()).into_bytes();
    if desk.below(300) == 0 {
        payload.resize(LONG, b'.');
    }
    let mut item = NewItem::new(payload);
    if matches!(desk.queue.kind(), Kind::Priority(..)) {
        item.priority = desk.below(4) as i64 - 1;
    }
    if desk.queue.kind() == Kind::Keyed {
        let keys = ["", "a", "a/x", "a/y", "b", "b/x"];
        item.key = Some(keys[desk.below(keys.len())].into());
    }
    if desk.chance(20) {
        item.due = Some(from_millis(desk.now() + [0, 5_000, 100_000][desk.below(3)]));
    }
    if desk.world.has_changes && desk.chance(30) {
        let begins = item.due.map_or(desk.now(), millis);
        item.expires = Some(from_millis(begins + [1, 2_000, 60_000, 500_000, 5_000_000][desk.below(5)]));
    }
    if desk.world.has_changes && desk.chance(35) {
        item.batch = any_open(desk);
    }
    if desk.chance(20) {
        item.unique = Some(format!("key {}", desk.below(3)).into_bytes());
        if desk.world.has_changes {
            match desk.below(10) {
                0..=3 if item.batch.is_none() => item.if_taken = IfTaken::Replace,
                4..=6 => {
                    let ahead = [1, 2_000, 60_000, 500_000][desk.below(4)];
                    item.unique_until = Some(from_millis(desk.now() + ahead));
                }
                7 => item.unique_until = item.expires,
                _ => {}
            }
        }
    }
    if desk.chance(20) {
        item = item.with_attribute("colour", "green");
        item.enqueued_at = Some(from_millis(desk.now()));
        item.content_type = Some("text/plain".to_owned());
    }
    item
}

/// Pushes in a session, which sees it through.
async fn push(desk: &Desk, session: &mut Session, items: &[NewItem], options: &PushOptions) -> Claim {
    match session.push_items(&desk.world.db, items, options).await {
        Ok(pushed) => Claim::Pushed { items: pushed.each().collect(), repeated: pushed.repeated },
        Err(error) if error.idempotency_key_reused().is_some() => reused(desk),
        Err(PushError::Retry(error)) if no_batch(&error.error).is_some() => {
            no_batch_claim(desk, &error.error)
        }
        Err(PushError::Retry(error)) => {
            desk.world.count_if(error.error.frozen().is_some(), "a push is refused by a frozen queue");
            failed(&error)
        }
        Err(error) => panic!("{error}"),
    }
}

/// Pushes in a transaction of its own, once.
async fn push_in_transaction(desk: &Desk, items: &[NewItem], options: &PushOptions) -> Claim {
    let tr = desk.world.db.create_trx().unwrap();
    let placed = desk.queue.pusher(&tr).seeded(desk.id().0).push_items(items, options).await;
    let placed: PendingPush = match placed {
        Ok(placed) => placed,
        Err(error) if error.idempotency_key_reused().is_some() => return reused(desk),
        Err(PushError::Queue(error)) if no_batch(&error).is_some() => return no_batch_claim(desk, &error),
        Err(error) => {
            desk.world.count_if(error.frozen().is_some(), "a push is refused by a frozen queue");
            assert!(error.database().is_some() || error.frozen().is_some(), "{error}");
            return Claim::Failed { perhaps: false };
        }
    };
    if placed.added() > 0 && desk.queue.kind() == Kind::Fifo && desk.chance(15) {
        let second = desk.queue.pusher(&tr).push_items(&[NewItem::new("second")], options).await;
        match second {
            Err(PushError::Queue(QueueError::SecondPusher { .. })) => {
                desk.world.count("a second pusher is refused");
                assert!(tr.commit().await.is_err(), "the transaction of two pushers commits");
            }
            // A fault of the database is in the way.
            Err(error) => assert!(error.database().is_some(), "{error}"),
            Ok(_) => panic!("two pushers have pushed in a transaction"),
        }
        return Claim::Failed { perhaps: false };
    }
    let stamp = tr.get_versionstamp();
    match tr.commit().await {
        // There is none where nothing was written.
        Ok(_committed) => {
            let stamp = stamp.await.ok().map(|stamp| stamp[..].try_into().unwrap());
            Claim::Pushed { items: placed.items(stamp).collect(), repeated: placed.is_repetition() }
        }
        Err(error) => Claim::Failed { perhaps: !error.is_retryable_not_committed() },
    }
}

/// The batch that gets no more members, if a push was refused for that.
pub(super) fn no_batch(error: &QueueError) -> Option<&BatchId> {
    match error {
        QueueError::NoBatch { id } | QueueError::BatchCommitted { id } => Some(id),
        _ => None,
    }
}

fn no_batch_claim(desk: &Desk, error: &QueueError) -> Claim {
    desk.world.count("a push is refused, because its batch gets no more members");
    no_batch(error).map_or(Claim::Failed { perhaps: true }, |id| Claim::NoBatch(id.clone()))
}

fn reused(desk: &Desk) -> Claim {
    desk.world.count("a push is refused, because its name is another's");
    Claim::Reused
}

fn count(desk: &Desk, claim: &Claim) {
    let Claim::Pushed { items, .. } = claim else { return };
    for PushedItem { effect, .. } in items {
        desk.world.count(match effect {
            kvqueue_queue::PushEffect::Added => "an item is added",
            kvqueue_queue::PushEffect::Duplicate => "an item is not added, because of its unique key",
            kvqueue_queue::PushEffect::Replaced => "an item is replaced",
            kvqueue_queue::PushEffect::Repeated => "an item is not added, because its operation is known",
        });
    }
}

pub(super) fn failed(error: &RetryError) -> Claim {
    Claim::Failed { perhaps: error.is_maybe_committed() }
}
