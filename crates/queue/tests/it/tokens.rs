//! Sweeping the token slots of sessions that are gone.

use fdb_embedded::{Fault, Faults};
use std::time::Duration;

use kvqueue_queue::{
    Queue, RetryPolicy, Session, SweptTokens, TokenPlace, VersionHistory, from_millis, sweep_tokens,
};

use crate::common::{TestDb, k, on_database, payloads};

/// A day, in versions.
const DAY: u64 = 86_400_000_000;

/// How long slots are kept here, in versions: no longer than a test can wait.
const KEPT: u64 = 50_000;

/// A history in which there is a version.
async fn known(t: &TestDb) -> VersionHistory {
    let history = VersionHistory::new(|| Duration::ZERO);
    history.observe(&t.db, Duration::ZERO).await.unwrap();
    history
}

/// Sweeps a queue's slots at `now` (ms), from the first one on. Slots that are at most `kept` versions old are kept.
async fn sweep(t: &TestDb, q: &Queue, now: u64, kept: u64) -> SweptTokens {
    let (mut place, policy) = (TokenPlace::default(), RetryPolicy::default());
    sweep_tokens(
        &t.db,
        q,
        &known(t).await,
        &mut place,
        from_millis(now),
        Duration::from_micros(kept),
        &policy,
    )
    .await
    .unwrap()
}

/// A session that has taken item "a" and does not know it; `None` where faults cannot be installed.
async fn after_unknown_take(t: &TestDb, q: &Queue) -> Option<Session> {
    t.push(q, &["a"]).await;
    let mut session =
        t.session(q).with_policy(RetryPolicy { max_attempts: Some(1), ..RetryPolicy::default() });
    if !t.install(Faults::script([Fault::UnknownCommitted])) {
        return None;
    }
    session.take(&t.db, k(1)).await.unwrap_err();
    Some(session)
}

#[test]
fn only_old_tokens_are_swept() {
    on_database(async |t| {
        let q = t.queue("q");
        let mut sessions = [t.session(&q), t.session(&q), t.session(&q)];
        for session in &mut sessions {
            session.push(&t.db, &["a"]).await.unwrap();
        }
        // A sweep notes the version that it reads at. On a quiet cluster that is the version of the last push until there is another.
        t.until_past(t.version().await).await;
        let sweep = async |now, kept| sweep(t, &q, now, kept).await;
        assert_eq!(sweep(7, DAY).await, SweptTokens { cleared: 0, kept: 3 });
        let noted = t.version().await;
        sessions[1].push(&t.db, &["b"]).await.unwrap();
        t.until_past(noted + KEPT).await;
        // By versions they are old, and not by the clock.
        assert_eq!(sweep(7 + KEPT / 1_000 - 1, KEPT).await, SweptTokens { cleared: 0, kept: 3 });
        assert_eq!(sweep(7 + KEPT / 1_000, KEPT).await, SweptTokens { cleared: 2, kept: 1 });
        // What was swept is written again by the next operation.
        for session in &mut sessions {
            session.push(&t.db, &["c"]).await.unwrap();
        }
        assert_eq!(sweep(u64::MAX, u64::MAX).await, SweptTokens { cleared: 0, kept: 3 });
        assert_eq!(t.len(&q).await, 7);
    });
}

#[test]
fn a_token_of_another_layout_is_kept() {
    on_database(async |t| {
        let q = t.queue("q");
        let base = q.range().0;
        let slot = [&base[..base.len() - 1], b"\x01token\0\x30", &[9; 16]].concat();
        t.run(async |tr| {
            tr.set(&slot, b"from a later version");
            Ok(())
        })
        .await;
        for now in [0, 1] {
            assert_eq!(sweep(t, &q, now, 0).await, SweptTokens { cleared: 0, kept: 1 });
        }
    });
}

/// Writes slots of sessions that pushed at version 1.
async fn slots(t: &TestDb, q: &Queue, count: u16) {
    for first in (0..count).step_by(500) {
        t.run(async |tr| {
            for i in first..first + 500 {
                let base = q.range().0;
                let mut slot = [&base[..base.len() - 1], b"\x01token\0\x30", &[0; 16]].concat();
                let end = slot.len();
                slot[end - 2..].copy_from_slice(&i.to_be_bytes());
                tr.set(&slot, &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0]);
            }
            Ok(())
        })
        .await;
    }
}

#[test]
fn a_token_sweep_reads_a_bounded_part_and_the_next_one_continues() {
    on_database(async |t| {
        let q = t.queue("q");
        slots(t, &q, 23_000).await;
        let (mut place, policy) = (TokenPlace::default(), RetryPolicy::default());
        let mut sweep = async |now| {
            sweep_tokens(&t.db, &q, &known(t).await, &mut place, from_millis(now), Duration::ZERO, &policy)
                .await
                .unwrap()
        };
        let first = sweep(5).await;
        assert!((20_000..21_000).contains(&first.kept), "{first:?}");
        // The first sweep has noted the time, so the slots are old now. The second one begins behind the first, and goes on to the end.
        assert_eq!(sweep(5).await, SweptTokens { cleared: 23_000 - first.kept, kept: 0 });
        assert_eq!(sweep(5).await, SweptTokens { cleared: first.kept, kept: 0 });
    });
}

#[test]
fn many_old_tokens_are_swept_in_several_transactions() {
    on_database(async |t| {
        let q = t.queue("q");
        slots(t, &q, 2_500).await;
        let sweep = async |now| sweep(t, &q, now, 0).await;
        assert_eq!(sweep(5).await, SweptTokens { cleared: 0, kept: 2_500 });
        assert_eq!(sweep(5).await, SweptTokens { cleared: 2_500, kept: 0 });
        assert_eq!(sweep(5).await, SweptTokens::default());
    });
}

#[test]
fn a_day_old_threshold_leaves_unsettled_sessions_alone() {
    on_database(async |t| {
        let q = t.queue("q");
        let Some(mut session) = after_unknown_take(t, &q).await else { return };
        sweep(t, &q, 0, DAY).await;
        assert_eq!(payloads(&session.take(&t.db, k(1)).await.unwrap().got), ["a"]);
    });
}

#[test]
fn a_version_jump_makes_no_token_old() {
    on_database(async |t| {
        let q = t.queue("q");
        let Some(mut session) = after_unknown_take(t, &q).await else { return };
        let swept = async |now| sweep(t, &q, now, DAY).await;
        assert_eq!(swept(0).await.cleared, 0);
        t.jump(400 * DAY);
        // An hour later by the clock.
        assert_eq!(swept(3_600_000).await.cleared, 0);
        assert_eq!(payloads(&session.take(&t.db, k(1)).await.unwrap().got), ["a"]);
        // And after a day it is old.
        t.jump(2 * DAY);
        assert!(swept(86_400_000).await.cleared > 0);
    });
}
