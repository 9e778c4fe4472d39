//! The bounds on retries, and what an error tells about them.

use std::time::Duration;

use fdb_embedded::{Fault, Faults};
use kvqueue_queue::{Attempts, FetchError, RetryPolicy, Session, retry};

use crate::common::{TestDb, k, on_database};

/// A session at a queue of one item that can take only against conflicts without end.
async fn against_conflicts(t: &TestDb, policy: RetryPolicy) -> Option<Session> {
    let q = t.queue("q");
    t.push(&q, &["a"]).await;
    t.install(Faults::seeded(0).conflict(1.0)).then(|| t.session(&q).with_policy(policy))
}

#[test]
fn transaction_attempts_are_counted_and_bounded() {
    on_database(async |t| {
        let policy = RetryPolicy { max_attempts: Some(3), timeout: None };
        let Some(mut session) = against_conflicts(t, policy).await else { return };
        let FetchError::Retry(error) = session.take(&t.db, k(1)).await.unwrap_err() else {
            panic!("other error")
        };
        assert_eq!(error.attempts, Attempts { begun: 3, conflicts: 3, unknown: 0 });
        assert_eq!(error.code(), Some(1020));
        assert!(!error.is_maybe_committed());
        assert_eq!(error.to_string(), "transaction given up after 3 attempts, 3 of them conflicts");
    });
}

#[test]
fn retries_of_a_transaction_are_bounded_in_time() {
    on_database(async |t| {
        let policy = RetryPolicy { max_attempts: None, timeout: Some(Duration::from_millis(50)) };
        let Some(mut session) = against_conflicts(t, policy).await else { return };
        let FetchError::Retry(error) = session.take(&t.db, k(1)).await.unwrap_err() else {
            panic!("other error")
        };
        assert_eq!(error.code(), Some(1031));
        t.end_faults();
        // What comes now is not to be bounded: on a machine that is busy it may take longer.
        let mut session = session.with_policy(RetryPolicy::default());
        assert_eq!(session.take(&t.db, k(1)).await.unwrap().got.len(), 1);
    });
}

#[test]
fn a_transaction_body_is_repeated_until_it_commits() {
    on_database(async |t| {
        let key = [t.prefix.as_slice(), b"key"].concat();
        let script = [Fault::Conflict, Fault::UnknownNotCommitted, Fault::UnknownCommitted, Fault::TooOld];
        if !t.install(Faults::script(script)) {
            return;
        }
        let (mut runs, key) = (0, &key);
        let policy = RetryPolicy::default();
        let done = retry::run(&t.db, &policy, |tr| {
            runs += 1;
            async move {
                tr.set(key, b"value");
                (tr, Ok(runs))
            }
        });
        let done = done.await.unwrap();
        assert_eq!(done.value, 5);
        assert_eq!(done.attempts, Attempts { begun: 5, conflicts: 1, unknown: 2 });
        assert!(t.run(async |tr| Ok(tr.get(key, false).await?.is_some())).await);
    });
}
