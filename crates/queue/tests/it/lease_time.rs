//! Leases and time: versions stand still, run fast and jump, and no lease ends before its holder's own clock says so.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::Poll;
use std::time::Duration;

use fdb_embedded::{Fault, Gate};
use futures::poll;
use kvqueue_queue::{Approach, ItemOutcome, LeaseError, RetryPolicy, Swept, VersionHistory};

use crate::common::gate::{to_the_end, until_sent};
use crate::common::{fetch_options, on_database, rules, sweeper_with_clock};

/// A second, in microseconds and in versions.
const SECOND: u64 = 1_000_000;
const LENGTH: u64 = 30 * SECOND;

/// What a recovery of a cluster puts versions ahead by.
const JUMP: u64 = 100 * SECOND;

/// Goes on to the end. After the first commit versions jump.
async fn with_a_jump(gate: &Gate, doing: impl Future<Output = Swept>) -> Swept {
    let (mut doing, mut jump) = (pin!(doing), JUMP);
    loop {
        if let Poll::Ready(swept) = poll!(doing.as_mut()) {
            assert_eq!(jump, 0, "nothing was committed");
            return swept;
        }
        drop(gate.backoffs());
        for commit in gate.arrived() {
            commit.pass(Fault::None).unwrap();
            gate.advance(std::mem::take(&mut jump));
        }
        tokio::task::yield_now().await;
    }
}

#[test]
fn a_version_jump_between_two_sweeps_expires_no_lease() {
    on_database(async |t| {
        let q = t.queue("q");
        t.put_aside(&q, &[("later", 5)]).await;
        t.push(&q, &["a"]).await;
        let (clock, mut sweeper) = sweeper_with_clock(&q);
        let mut lease = t.lease_for(&q, 1, LENGTH).await.unwrap();
        t.sweep(&mut sweeper, 0, &rules()).await;
        clock.store(SECOND, Relaxed);
        let Some(gate) = t.close_gate() else { return };
        let rules = rules();
        let swept = with_a_jump(&gate, async { t.sweep(&mut sweeper, 5, &rules).await }).await;
        drop(gate);
        assert_eq!((swept.moved.promoted, swept.moved.leases), (1, 0));
        lease.extend(&t.db, &RetryPolicy::default()).await.unwrap();
    });
}

/// The acknowledgement commits with an unknown outcome, and versions jump past the lease's
/// deadline.
#[test]
fn an_acknowledgement_of_unknown_outcome_during_a_version_jump_is_found_committed() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["a"]).await;
        let time = Arc::new(AtomicU64::new(0));
        let its = Arc::clone(&time);
        let history = VersionHistory::new(move || Duration::from_micros(its.load(Relaxed)));
        let mut session = t.session(&q).with_history(&history);
        for (passed, lost) in [(LENGTH - 1, false), (LENGTH, true)] {
            t.push(&q, &["b"]).await;
            let mut approach = Approach::Front;
            let mut take = fetch_options(1, LENGTH, &mut approach, false);
            let mut lease = session.fetch(&t.db, &mut take).await.unwrap().got.unwrap();
            let Some(gate) = t.close_gate() else { return };
            let policy = RetryPolicy::default();
            let mut settle = pin!(lease.acknowledge(&t.db, &policy, &[(0, ItemOutcome::Done)]));
            let _told = until_sent(&gate, settle.as_mut()).await.pass(Fault::UnknownCommitted);
            gate.advance(JUMP);
            time.fetch_add(passed, Relaxed);
            let settled = to_the_end(&gate, settle).await;
            assert_eq!(matches!(settled, Err(LeaseError::Lost)), lost, "{settled:?} after {passed}");
            assert_eq!(settled.is_ok(), !lost);
        }
    });
}

#[test]
fn after_a_jump_each_lease_lasts_for_its_own_length() {
    on_database(async |t| {
        if t.close_gate().is_none() {
            return;
        }
        let q = t.queue("q");
        t.push(&q, &["short", "long"]).await;
        let _short = t.lease_for(&q, 1, LENGTH).await.unwrap();
        let _long = t.lease_for(&q, 1, 10 * LENGTH).await.unwrap();
        let (clock, mut sweeper) = sweeper_with_clock(&q);
        // A sweeper whose own leases are short.
        let rules = rules().with_lease(Duration::from_micros(LENGTH));
        t.sweep(&mut sweeper, 0, &rules).await;
        t.jump(JUMP);
        t.jump(10 * JUMP);
        let mut sweep = async |seconds: u64| {
            clock.store(seconds * SECOND, Relaxed);
            t.jump(LENGTH);
            t.sweep(&mut sweeper, 0, &rules).await
        };
        let swept = sweep(29).await;
        assert_eq!((swept.moved.leases, swept.doubtful), (0, 2));
        let swept = sweep(31).await;
        assert_eq!((swept.moved.leases, swept.doubtful), (1, 1));
        assert_eq!(t.list(&q).await, ["short"]);
        assert_eq!(sweep(299).await.moved.leases, 0);
        assert_eq!(sweep(301).await.moved.leases, 1);
    });
}

#[test]
fn a_lease_that_was_taken_at_an_old_version_lasts_for_its_length() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["a"]).await;
        let (clock, mut sweeper) = sweeper_with_clock(&q);
        // Versions stand still from here on.
        let Some(gate) = t.close_gate() else { return };
        let rules = rules();
        t.sweep(&mut sweeper, 0, &rules).await;
        // Two seconds later, at the same version.
        clock.store(2 * SECOND, Relaxed);
        let mut taking = pin!(t.lease_for(&q, 1, LENGTH));
        let lease = loop {
            if let Poll::Ready(lease) = poll!(taking.as_mut()) {
                break lease.unwrap();
            }
            gate.arrived().into_iter().for_each(|commit| assert!(commit.pass(Fault::None).is_ok()));
            tokio::task::yield_now().await;
        };
        // Versions have caught up, and run on, a tenth too fast.
        gate.advance(2 * SECOND + LENGTH + LENGTH / 10);
        drop(gate);
        clock.store(2 * SECOND + LENGTH - 1, Relaxed);
        assert!(t.version().await > lease.deadline());
        assert_eq!(t.sweep(&mut sweeper, 0, &rules).await.moved.leases, 0);
    });
}

#[test]
fn a_sweeper_that_has_just_started_watches_leases_before_it_ends_them() {
    on_database(async |t| {
        if t.close_gate().is_none() {
            return;
        }
        let q = t.queue("q");
        t.push(&q, &["a"]).await;
        let mut lease = t.lease_for(&q, 1, LENGTH).await.unwrap();
        t.jump(JUMP);
        let (clock, mut sweeper) = sweeper_with_clock(&q);
        let swept = t.sweep(&mut sweeper, 0, &rules()).await;
        assert_eq!((swept.moved.leases, swept.doubtful), (0, 1));
        let seldom = rules().with_lease(Duration::from_micros(10 * LENGTH));
        let next = t.sweep(&mut sweeper_with_clock(&q).1, 0, &seldom).await.next.as_micros();
        assert!((29_000_000..=31_000_000).contains(&next), "{next}");
        clock.store(29 * SECOND, Relaxed);
        assert_eq!(t.sweep(&mut sweeper, 0, &rules()).await.moved.leases, 0);
        lease.extend(&t.db, &RetryPolicy::default()).await.unwrap();
        // Nobody extends it any more.
        t.jump(JUMP);
        clock.store(30 * SECOND, Relaxed);
        assert_eq!(t.sweep(&mut sweeper, 0, &rules()).await.moved.leases, 0);
        clock.store(61 * SECOND, Relaxed);
        assert_eq!(t.sweep(&mut sweeper, 0, &rules()).await.moved.leases, 1);
    });
}

#[test]
fn expired_leases_are_found_among_more_than_one_sweep_reads() {
    on_database(async |t| {
        if t.close_gate().is_none() {
            return;
        }
        // A look reads half a megabyte of headers, or a little more. Each of these has the item in it.
        const LEASES: usize = 400;
        let q = t.queue("q");
        let item = "x".repeat(4_000);
        for _ in 0..LEASES / 100 {
            t.push(&q, &[item.as_str(); 100]).await;
        }
        let mut expired = 0;
        for lease in 0..LEASES {
            let is_short = lease % 100 == 0;
            t.lease_for(&q, 1, if is_short { LENGTH } else { 100 * LENGTH }).await.unwrap();
            expired += usize::from(is_short);
        }
        let (clock, mut sweeper) = sweeper_with_clock(&q);
        let rules = rules().with_lease(Duration::from_micros(LENGTH));
        t.sweep(&mut sweeper, 0, &rules).await;
        let (mut found, mut time) = (0, 0);
        // The sweeper has to watch each for its length.
        while found < expired && time <= 2 * LENGTH {
            time += SECOND;
            clock.store(time, Relaxed);
            t.jump(SECOND);
            found += t.sweep(&mut sweeper, 0, &rules).await.moved.leases;
        }
        assert_eq!(found, expired, "after {} s", time / SECOND);
        // A sweep that looks at all leases finds the others at once.
        clock.store(200 * LENGTH, Relaxed);
        t.jump(200 * LENGTH);
        let rules = rules.with_lease(Duration::ZERO);
        let swept = t.sweep(&mut sweeper, 0, &rules).await;
        assert_eq!(swept.moved.leases, LEASES - expired);
    });
}
