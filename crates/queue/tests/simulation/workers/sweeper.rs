//! A sweeper.

use std::rc::Rc;
use std::time::Duration;

use kvqueue_queue::{OnExpiry, RetryRules, SweepCounts, SweepRules, Sweeper, from_millis};

use super::producer::failed;
use crate::claims::Claim;
use crate::desk::{Counter, Desk};
use crate::intent::Intent;
use crate::model::Sweeping;
use crate::simulation::AGE;

/// Sweeps a few times.
pub(super) async fn work(desk: Rc<Desk>) {
    // It may be of a process that has been there for long, or of a new one.
    let history = if desk.chance(50) { desk.world.history.clone() } else { desk.world.new_history() };
    let mut sweeper = Sweeper::with_id(desk.queue.clone(), desk.id(), history);
    let mut stood_by = false;
    let letters_kept =
        if desk.world.has_changes { [None, Some(60_000), Some(1_000_000)][desk.below(3)] } else { None };
    for _ in 0..2 + desk.below(12) {
        let pause = [0, 1_000, 50_000][desk.below(3)];
        let by = Sweeping {
            now: desk.now(),
            max_attempts: super::MAX_ATTEMPTS,
            pause,
            kept: AGE * 5 / 2,
            letters_kept,
            on_expiry: if desk.world.has_changes && desk.chance(50) {
                OnExpiry::Dead
            } else {
                OnExpiry::Drop
            },
            since: desk.world.time(),
        };
        // In the end nobody helps a sweeper that stands by and should not.
        let lease = if desk.world.is_calm.get() { AGE / 2 } else { [0, AGE / 2, AGE / 2][desk.below(3)] };
        let retry = RetryRules {
            max_attempts: by.max_attempts,
            base: Duration::from_millis(pause),
            ..RetryRules::default()
        };
        let rules = SweepRules::default()
            .with_retry(retry)
            .with_lease(Duration::from_micros(lease))
            .with_on_expiry(by.on_expiry)
            // All clocks are set at once here, by more than they are apart. The model knows what a sweeper does that goes by its clock; of clocks that differ by
            // more, see `tests/it/clocks.rs`.
            .with_clock_tolerance(Duration::MAX)
            .with_dead_retention(letters_kept.map(Duration::from_millis))
            .with_idempotency_window(Duration::from_micros(by.kept))
            .with_policy(desk.policy());
        let clock = || from_millis(by.now);
        let sweep = sweeper.sweep(&desk.world.db, &clock, &rules);
        let (operation, swept) = desk.run(Intent::Sweep(by), sweep).await;
        let swept = match swept {
            Some(Ok(swept)) => swept,
            Some(Err(error)) => {
                desk.told(&operation, &failed(&error));
                continue;
            }
            None => continue,
        };
        desk.world.count_if(swept.doubtful > 0, "a sweeper leaves a lease alone that is past its deadline");
        let stands_by = !swept.patience.is_zero();
        desk.world.count_if(stands_by, "a sweeper stands by");
        desk.world.count_if(stood_by && !stands_by && lease > 0, "a sweeper takes over");
        stood_by = stands_by;
        let is_found_out = operation.unknown_fires.get() > 0 && !swept.occurrences.is_empty();
        desk.world.count_if(is_found_out, "a sweep finds out that schedules have fired");
        assert!(swept.unusable_schedules.is_empty(), "{:?} cannot be fired", swept.unusable_schedules);
        assert!(swept.unusable_batches.is_empty(), "{:?} cannot call back", swept.unusable_batches);
        let (moved, occurrences) = (swept.moved, swept.occurrences);
        let (batches, whole) = (swept.closed_batches, swept.trouble.is_none());
        for batch in &batches {
            let members = if batch.counts.members > 0 { "with members" } else { "without members" };
            desk.world.count(format!("a batch {members} calls back: {}", batch.reason));
            for (n, how) in [
                (batch.counts.done, "is done"),
                (batch.counts.dead, "dies"),
                (batch.counts.cancelled, "is cancelled"),
                (batch.counts.expired, "expires"),
                (batch.counts.taken, "is taken for good"),
            ] {
                desk.world.coverage.borrow_mut().count_many(format!("a member {how}"), n);
            }
        }
        desk.told(&operation, &Claim::Swept { moved, occurrences, batches, whole });
        if !desk.world.is_calm.get() && desk.chance(5) {
            let policy = desk.policy();
            let left = sweeper.leave(&desk.world.db, &policy);
            let (operation, left) = desk.run(Intent::Sweep(by), left).await;
            if let Some(Ok(())) = left {
                let moved = SweepCounts::default();
                let (occurrences, batches) = (Vec::new(), Vec::new());
                desk.told(&operation, &Claim::Swept { moved, occurrences, batches, whole: true });
            }
        }
        if !desk.world.is_calm.get() && desk.chance(20) {
            desk.watch(Counter::Later, swept.watch, None).await;
        }
        for _ in 0..desk.below(4) {
            desk.pause().await;
        }
    }
}
