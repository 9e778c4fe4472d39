//! Consumers, of all modes of delivery.

use std::num::NonZeroUsize;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use kvqueue_queue::{
    Approach, Failure, FetchError, FetchOptions, Item, ItemOutcome, Kind, Lease, LeaseError, MAX_RESULT,
    OnExpiry, Progress, Scope, Session, Spread, Staged, Watch, from_millis,
};

use super::producer::failed;
use super::{MAX_ATTEMPTS, once};
use crate::claims::Claim;
use crate::desk::{Counter, Desk};
use crate::intent::Intent;
use crate::model::Terms;
use crate::simulation::AGE;

/// So short a lease is not much longer than versions may stand still, in microseconds.
const SHORT: u64 = 6_000_000;

/// Takes on leases a few times, and handles what it has.
pub(super) async fn work(desk: Rc<Desk>, with_effects: bool) {
    let mut session = desk.session();
    let mut approach = approach(&desk);
    for _ in 0..2 + desk.below(8) {
        if let Some(lease) = lease(&desk, &mut session, &mut approach, u32::MAX).await {
            handle(&desk, lease, with_effects).await;
        }
        desk.pause().await;
    }
    close(&desk, session).await;
}

/// A process that has several leases at a time, and one session for all: if it dies, it loses them all.
pub(super) async fn work_on_several(desk: Rc<Desk>) {
    let mut session = desk.session();
    let mut approach = approach(&desk);
    for _ in 0..2 + desk.below(6) {
        let mut leases: Vec<Lease> = Vec::new();
        for _ in 0..1 + desk.below(4) {
            let crashes = if leases.iter().any(Lease::is_in_quarantine) { 0 } else { u32::MAX };
            if crashes == 0 {
                desk.world.count("a process that has suspects takes other items");
            }
            leases.extend(lease(&desk, &mut session, &mut approach, crashes).await);
            desk.pause().await;
        }
        for lease in leases {
            handle(&desk, lease, false).await;
        }
    }
    close(&desk, session).await;
}

/// Takes for good, a few times.
pub(super) async fn take_for_good(desk: Rc<Desk>) {
    let mut session = desk.session();
    let mut approach = approach(&desk);
    for _ in 0..2 + desk.below(8) {
        let (mut take, terms) = terms(&desk, &mut approach, 0, u32::MAX);
        let k = terms.k;
        let intent = Intent::Take { session: session.id(), terms };
        let (operation, taken) = desk.run(intent, session.take_with(&desk.world.db, &mut take)).await;
        match taken {
            Some(Ok(taken)) if taken.got.is_empty() => {
                desk.told(&operation, &Claim::Nothing);
                wait(&desk, taken.watch, false, None).await;
            }
            Some(Ok(taken)) => {
                let short = taken.got.len() < k;
                desk.told(&operation, &Claim::Took { items: taken.got, short });
            }
            Some(Err(FetchError::Retry(error))) => desk.told(&operation, &failed(&error)),
            Some(Err(error)) => panic!("{operation}: {error}"),
            None => {}
        }
        desk.pause().await;
    }
    close(&desk, session).await;
}

fn approach(desk: &Desk) -> Approach {
    // Queues are short here, and yet some are to count as long.
    let spread = Spread::long_from(1 + desk.below(4));
    let all = [Approach::Front, Approach::Spread(spread), Approach::Staged(Staged::default())];
    // In some runs everybody has the same.
    all[desk.world.approach.unwrap_or_else(|| desk.below(3))].clone()
}

fn terms<'a>(
    desk: &Desk,
    approach: &'a mut Approach,
    length: u64,
    crashes: u32,
) -> (FetchOptions<'a>, Terms) {
    // Now and then enough for a group of suspects.
    let k = if desk.chance(10) { 40 } else { 1 + desk.below(5) };
    let terms = Terms {
        k,
        length,
        front: !matches!(approach, Approach::Spread(_)) || matches!(desk.queue.kind(), Kind::Priority(..)),
        crashes,
    };
    (
        FetchOptions::new(NonZeroUsize::new(k).unwrap(), Duration::from_micros(length), approach)
            .with_watch(desk.chance(50)),
        terms,
    )
}

/// Takes on a lease.
async fn lease(desk: &Desk, session: &mut Session, approach: &mut Approach, crashes: u32) -> Option<Lease> {
    let length = [SHORT, AGE / 2, AGE * 5 / 2, AGE * 101 / 2][desk.below(4)];
    let (mut take, terms) = terms(desk, approach, length, crashes);
    let intent = Intent::Lease { session: session.id(), terms };
    let (operation, leased) = desk.run(intent, session.fetch(&desk.world.db, &mut take)).await;
    match leased? {
        Ok(leased) => {
            let claim = match &leased.got {
                Some(lease) => Claim::Leased(lease.id(), lease.items().to_vec()),
                None => Claim::Nothing,
            };
            desk.told(&operation, &claim);
            if let Some(lease) = leased.got.as_ref().filter(|_| !leased.recovered) {
                desk.believes(lease.id(), &operation);
            }
            wait(desk, leased.watch, leased.is_full, leased.look_again_in).await;
            leased.got
        }
        Err(FetchError::Retry(error)) => {
            desk.told(&operation, &failed(&error));
            None
        }
        Err(error) => panic!("{operation}: {error}"),
    }
}

async fn wait(desk: &Desk, watch: Option<Watch>, is_full: bool, at_most: Option<Duration>) {
    if let Some(watch) = watch {
        desk.world.count("a worker goes idle");
        desk.world.count_if(at_most.is_some(), "a worker waits for a timer");
        let until = at_most.map(|wait| desk.world.time() + wait.as_micros() as u64);
        desk.world.count_if(is_full, "a worker waits for a slot of the queue");
        desk.watch(if is_full { Counter::Slots } else { Counter::Ready }, watch, until).await;
    }
}

/// What a handler does with what it has, piece by piece.
async fn handle(desk: &Desk, mut lease: Lease, with_effects: bool) {
    if lease.items().iter().any(|item| item.payload.starts_with(b"poison")) {
        desk.world.count("a worker dies of an item");
        desk.die().await;
    }
    let mut is_unknown = false;
    while !lease.is_acknowledged() {
        for _ in 0..desk.below(4) {
            desk.pause().await;
        }
        if !desk.world.is_calm.get() && desk.chance(8) {
            desk.world.count("a lease is forgotten");
            return;
        }
        if desk.world.has_changes && desk.chance(20) {
            look_for_cancelled(desk, &mut lease).await;
            continue;
        }
        let settlements = if desk.chance(20) { Vec::new() } else { settlements(desk, &lease) };
        let may_say = settlements.is_empty() && !with_effects;
        let progress = if may_say { progress(desk, &lease) } else { Vec::new() };
        let intent = Intent::Settle {
            lease: lease.id(),
            settlements: settlements.clone(),
            with_effects,
            progress: progress.clone(),
        };
        let policy = desk.policy();
        let (operation, settled) = match with_effects {
            false if !progress.is_empty() => {
                desk.run(intent, lease.extend_with(&desk.world.db, &policy, &progress)).await
            }
            true => desk.run(intent, once::settle(desk, &mut lease, &settlements, is_unknown)).await,
            false => desk.run(intent, lease.acknowledge(&desk.world.db, &policy, &settlements)).await,
        };
        match settled {
            Some(Ok(())) => {
                desk.told(&operation, &Claim::Done);
                check_cancelled(desk, &lease, &settlements);
                // What an earlier transaction did, and not this one, tells nothing of the lease. An extension writes in any case.
                if !is_unknown || settlements.is_empty() {
                    desk.believes(lease.id(), &operation);
                } else {
                    desk.world.count("a holder does not know since when it has its lease");
                }
                is_unknown = false;
            }
            Some(Err(LeaseError::Lost)) => {
                assert!(
                    !desk.was_robbed_of(lease.id()),
                    "{operation}: told that the lease was lost, which it had extended in time"
                );
                desk.world.count("a holder finds its lease lost");
                desk.told(&operation, &Claim::LostLease);
                return;
            }
            Some(Err(LeaseError::Cancelled { items })) => {
                desk.world.count("a transaction is given up, because its item was cancelled");
                desk.told(&operation, &Claim::Cancelled(items));
                look_for_cancelled(desk, &mut lease).await;
            }
            Some(Err(LeaseError::Retry(error))) => {
                let is_frozen = error.error.frozen().is_some();
                let what = "a member does not end, since the home of its batch is frozen";
                desk.world.count_if(is_frozen, what);
                is_unknown |= error.is_maybe_committed();
                desk.told(&operation, &failed(&error));
            }
            Some(Err(LeaseError::Queue(error))) if error.frozen().is_some() => {
                desk.world.count("a member does not end, since the home of its batch is frozen");
                let perhaps = operation.unknown.get() > 0;
                is_unknown |= perhaps;
                desk.told(&operation, &Claim::Failed { perhaps });
                desk.pause().await;
            }
            Some(Err(error)) => panic!("{operation}: {error}"),
            None if desk.chance(50) => return,
            // Nobody can tell what became of it, but nothing is settled twice.
            None => is_unknown = true,
        }
    }
}

/// A holder that has settled items knows which of them had been cancelled.
fn check_cancelled(desk: &Desk, lease: &Lease, settlements: &[(usize, ItemOutcome)]) {
    for (index, _) in settlements {
        let was_cancelled = desk.world.oracle.borrow().model(desk.at).was_cancelled(lease.id(), *index);
        assert_eq!(
            lease.is_cancelled(*index),
            was_cancelled,
            "{} settled item {index} of {:?}, and whether that was cancelled is not what it knows",
            desk.name(),
            lease.id()
        );
    }
}

/// Finds out what was cancelled.
async fn look_for_cancelled(desk: &Desk, lease: &mut Lease) {
    let (id, policy) = (lease.id(), desk.policy());
    let looking = lease.look_for_cancelled(&desk.world.db, &policy);
    let (operation, looked) = desk.run(Intent::Look { lease: id }, looking).await;
    if let Some(Err(error)) = looked {
        desk.told(&operation, &failed(&error));
    }
    let oracle = desk.world.oracle.borrow();
    let model = oracle.model(desk.at);
    let invented =
        (0..lease.items().len()).find(|at| lease.is_cancelled(*at) && !model.was_cancelled(id, *at));
    assert_eq!(invented, None, "{operation}: an item of {id:?} was not cancelled");
}

/// The progress that a holder reports: of some of its items, or of none.
fn progress(desk: &Desk, lease: &Lease) -> Vec<(usize, Progress)> {
    if !desk.world.has_changes || desk.chance(40) {
        return Vec::new();
    }
    let now = desk.now();
    let some = (0..lease.items().len()).filter(|_| desk.chance(60));
    let percent = |desk: &Desk| [None, Some(desk.below(101) as u8)][desk.below(2)];
    some.map(|index| (index, Progress::new(from_millis(now), percent(desk), ["", "at work"][desk.below(2)])))
        .collect()
}

/// What becomes of some of the items, or of all.
fn settlements(desk: &Desk, lease: &Lease) -> Vec<(usize, ItemOutcome)> {
    let open: Vec<usize> = lease.open().collect();
    let n = if desk.chance(60) { open.len() } else { 1 + desk.below(open.len()) };
    open.into_iter().take(n).map(|index| (index, settlement(desk, &lease.items()[index]))).collect()
}

fn settlement(desk: &Desk, item: &Item) -> ItemOutcome {
    let now = desk.now();
    // Most handlers look before they begin.
    if item.meta.as_ref().is_some_and(|meta| meta.has_expired(from_millis(now))) && desk.chance(80) {
        let on_expiry = [OnExpiry::Drop, OnExpiry::Dead][desk.below(2)];
        return ItemOutcome::Expired { at: from_millis(now), on_expiry };
    }
    if desk.world.is_calm.get() {
        return ItemOutcome::Done;
    }
    let failure = || Failure::new(from_millis(desk.now()), item.attempt, "it was not to be");
    let due = || from_millis(desk.now() + [0, 1_000, 100_000][desk.below(3)]);
    match desk.below(20) {
        0..=3 if desk.world.has_changes => ItemOutcome::DoneWith(result(desk)),
        0..=9 => ItemOutcome::Done,
        10 => ItemOutcome::Release,
        11 => ItemOutcome::Postpone { due: due() },
        12 => ItemOutcome::Dead(failure()),
        17 | 18 if item.id.key().is_some() => throttle(desk),
        _ if item.attempt >= MAX_ATTEMPTS => ItemOutcome::Dead(failure()),
        13..=15 => ItemOutcome::Retry { due: None, failure: failure() },
        _ => ItemOutcome::Retry { due: Some(due()), failure: failure() },
    }
}

/// What a handler gives with an item that is done.
fn result(desk: &Desk) -> Bytes {
    let len = if desk.below(100) == 0 { MAX_RESULT + 7 } else { [0, 3, 100][desk.below(3)] };
    vec![b'r'; len].into()
}

fn throttle(desk: &Desk) -> ItemOutcome {
    let scope = [Scope::Key, Scope::Key, Scope::Tenant, Scope::Queue][desk.below(4)];
    let wait = Duration::from_micros([10_000, 1_000_000, AGE / 2, 2 * AGE][desk.below(4)]);
    ItemOutcome::Throttle { scope, wait }
}

/// Ends a session, or leaves it as it is.
pub(super) async fn close(desk: &Desk, session: Session) {
    if desk.chance(50) {
        let intent = Intent::Close { session: session.id() };
        let (operation, closed) = desk.run(intent, session.close(&desk.world.db)).await;
        match closed {
            Some(Ok(items)) => desk.told(&operation, &Claim::Took { items, short: true }),
            Some(Err(error)) => desk.told(&operation, &failed(&error)),
            None => {}
        }
    }
}
