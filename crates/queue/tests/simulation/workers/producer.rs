//! A producer.

use std::rc::Rc;

use kvqueue_queue::{PushError, RetryError, Session};

use super::consumer;
use crate::claims::Claim;
use crate::intent::Intent;
use crate::model::NewItem;
use crate::world::Desk;

/// Pushes a few times, each time a few items, and closes its session, or does not.
pub(super) async fn work(desk: Rc<Desk>) {
    let mut session = desk.session();
    for round in 0..1 + desk.below(5) {
        let items = (0..1 + desk.below(4)).map(|at| item(&desk, round, at)).collect();
        push(&desk, &mut session, items).await;
        for _ in 0..desk.below(8) {
            desk.pause().await;
        }
    }
    consumer::close(&desk, session).await;
}

fn item(desk: &Desk, round: usize, at: usize) -> NewItem {
    let kind = if desk.chance(5) { "poison" } else { "item" };
    NewItem { payload: format!("{kind} {} {round}.{at}", desk.name()).into_bytes() }
}

async fn push(desk: &Desk, session: &mut Session, items: Vec<NewItem>) {
    let payloads: Vec<Vec<u8>> = items.iter().map(|item| item.payload.clone()).collect();
    let (operation, pushed) = desk.run(Intent::Push { items }, session.push(&desk.world.db, &payloads)).await;
    match pushed {
        Some(Ok(pushed)) => desk.told(&operation, &Claim::Pushed(pushed.stamps().map(Into::into).collect())),
        Some(Err(PushError::Retry(error))) => desk.told(&operation, &failed(&error)),
        Some(Err(error)) => panic!("{operation}: {error}"),
        None => {}
    }
}

pub(super) fn failed(error: &RetryError) -> Claim {
    Claim::Failed { perhaps: error.is_maybe_committed() }
}
