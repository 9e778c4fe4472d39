//! Sweeping the token slots of sessions that are gone.

use fdb_embedded::{Fault, Faults};
use kvqueue_queue::{RetryPolicy, SweptTokens, sweep_tokens};

use crate::common::{k, on_database, payloads};

#[test]
fn only_old_slots_are_swept() {
    on_database(async |t| {
        let q = t.queue("q");
        let mut sessions = [t.session(&q), t.session(&q), t.session(&q)];
        for session in &mut sessions {
            session.push(&t.db, &["a"]).await.unwrap();
        }
        let policy = RetryPolicy::default();
        let day = sweep_tokens(&t.db, &q, 86_400_000_000, &policy).await.unwrap();
        assert_eq!(day, SweptTokens { cleared: 0, kept: 3 });
        // Older than this moment are those written before the newest commit.
        let newest = sessions[2].push(&t.db, &["b"]).await.unwrap().stamps().next().unwrap().version();
        let second = sessions[1].push(&t.db, &["b"]).await.unwrap().stamps().next().unwrap().version();
        assert!(newest < second);
        let now = t.run(async |tr| Ok(tr.get_read_version().await?)).await;
        let since = u64::try_from(now).unwrap() - newest;
        // Every read version of the sweep is at least `now`, so the slot of `newest` may be older than `since` by then.
        let swept = sweep_tokens(&t.db, &q, since, &policy).await.unwrap();
        assert!(swept.cleared >= 1 && swept.cleared + swept.kept == 3, "{swept:?}");
        // What was swept is written again by the next operation.
        for session in &mut sessions {
            session.push(&t.db, &["c"]).await.unwrap();
        }
        assert_eq!(
            sweep_tokens(&t.db, &q, u64::MAX, &policy).await.unwrap(),
            SweptTokens { cleared: 0, kept: 3 }
        );
        assert_eq!(t.len(&q).await, 8);
    });
}

#[test]
fn a_slot_of_another_layout_is_kept() {
    on_database(async |t| {
        let q = t.queue("q");
        let base = q.range().0;
        let slot = [&base[..base.len() - 1], b"\x01token\0\x30", &[9; 16]].concat();
        t.run(async |tr| {
            tr.set(&slot, b"from a later version");
            Ok(())
        })
        .await;
        let swept = sweep_tokens(&t.db, &q, 0, &RetryPolicy::default()).await.unwrap();
        assert_eq!(swept, SweptTokens { cleared: 0, kept: 1 });
    });
}

#[test]
fn more_slots_than_one_transaction_looks_at() {
    on_database(async |t| {
        let q = t.queue("q");
        for chunk in 0..5_u16 {
            t.run(async |tr| {
                for i in chunk * 500..(chunk + 1) * 500 {
                    let base = q.range().0;
                    let mut slot = [&base[..base.len() - 1], b"\x01token\0\x30", &[0; 16]].concat();
                    let end = slot.len();
                    slot[end - 2..].copy_from_slice(&i.to_be_bytes());
                    // Written at version 1.
                    tr.set(&slot, &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0]);
                }
                Ok(())
            })
            .await;
        }
        let policy = RetryPolicy::default();
        assert_eq!(
            sweep_tokens(&t.db, &q, 0, &policy).await.unwrap(),
            SweptTokens { cleared: 2_500, kept: 0 }
        );
        assert_eq!(sweep_tokens(&t.db, &q, 0, &policy).await.unwrap(), SweptTokens::default());
    });
}

#[test]
fn a_day_old_threshold_leaves_unsettled_sessions_alone() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["a"]).await;
        let mut session =
            t.session(&q).with_policy(RetryPolicy { max_attempts: Some(1), ..RetryPolicy::default() });
        if !t.install(Faults::script([Fault::UnknownCommitted])) {
            return;
        }
        session.take(&t.db, k(1)).await.unwrap_err();
        sweep_tokens(&t.db, &q, 86_400_000_000, &RetryPolicy::default()).await.unwrap();
        assert_eq!(payloads(&session.take(&t.db, k(1)).await.unwrap().items), ["a"]);
    });
}
