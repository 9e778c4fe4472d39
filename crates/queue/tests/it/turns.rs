//! Pushes of many sessions at a time: a limited number of them is at the database, and the others wait for their turns.

use std::pin::Pin;
use std::time::Duration;

use fdb_embedded::{Fault, Gate, HeldCommit};
use futures::future::join_all;
use futures::poll;
use kvqueue_queue::{PushError, Pushed, Queue, RetryPolicy};

use crate::common::{TestDb, on_database};

/// Many more than have a turn at a time.
const PUSHES: usize = 600;

/// How many of them commit at a time.
const AT_A_TIME: usize = 256;

/// How often pushes are polled after that, to see that they send no more commits.
const POLLS: usize = 1_000;

/// Pushes of one item each, by sessions of their own.
fn pushes<'a>(t: &'a TestDb, q: &Queue) -> impl Future<Output = Vec<Result<Pushed, PushError>>> + use<'a> {
    let sessions: Vec<_> = (0..PUSHES).map(|n| (n, t.session(q))).collect();
    join_all(
        sessions
            .into_iter()
            .map(|(n, mut session)| async move { session.push(&t.db, &[n.to_string()]).await }),
    )
}

/// Polls pushes until they have sent this number of commits, which the gate holds, and looks whether they send more.
async fn sent<F: Future>(gate: &Gate, number: usize, mut pushes: Pin<&mut F>) -> Vec<HeldCommit> {
    let (mut held, mut polls) = (Vec::new(), 0);
    while polls < POLLS {
        assert!(poll!(pushes.as_mut()).is_pending(), "their commits are held");
        held.extend(gate.arrived());
        polls = if held.len() < number { 0 } else { polls + 1 };
        tokio::task::yield_now().await;
    }
    held
}

fn pass(commits: Vec<HeldCommit>) {
    for commit in commits {
        let _told_to_its_client = commit.pass(Fault::None);
    }
}

#[test]
fn a_limited_number_of_pushes_is_at_the_database_and_all_end() {
    on_database(async |t| {
        let q = t.queue("q");
        let Some(gate) = t.close_gate() else { return };
        let mut pushes = Box::pin(pushes(t, &q));
        let mut left = PUSHES;
        while left > 0 {
            let commits = sent(&gate, left.min(AT_A_TIME), pushes.as_mut()).await;
            assert_eq!(commits.len(), left.min(AT_A_TIME));
            left -= commits.len();
            pass(commits);
        }
        assert!(pushes.await.iter().all(Result::is_ok));
        drop(gate);
        assert_eq!(t.len(&q).await, PUSHES as i64);
    });
}

#[test]
fn a_push_that_waits_for_its_turn_ends_at_its_time_limit() {
    on_database(async |t| {
        let q = t.queue("q");
        let Some(gate) = t.close_gate() else { return };
        let mut pushes = Box::pin(pushes(t, &q));
        let held = sent(&gate, AT_A_TIME, pushes.as_mut()).await;
        let policy = RetryPolicy { max_attempts: None, timeout: Some(Duration::from_millis(50)) };
        let error = t.session(&q).with_policy(policy).push(&t.db, &["late"]).await.unwrap_err();
        let PushError::Retry(retry) = &error else { panic!("{error:?}") };
        assert_eq!(retry.code(), Some(1031));
        assert!(!error.is_maybe_committed(), "it had not begun");
        pass(held);
        drop(gate);
        assert!(pushes.await.iter().all(Result::is_ok));
        assert_eq!(t.len(&q).await, PUSHES as i64);
    });
}

#[test]
fn pushes_of_a_thousand_tasks_are_stored_once_each() {
    on_database(async |t| {
        let (q, db) = (t.queue("q"), t.handle());
        let tasks = (0..1_000).map(|n: usize| {
            let (mut session, db) = (t.session(&q), db.clone());
            tokio::spawn(async move { session.push(&db, &[n.to_string()]).await.map(|pushed| pushed.items) })
        });
        for pushed in join_all(tasks).await {
            assert_eq!(pushed.unwrap().unwrap(), 1);
        }
        let mut stored = t.list(&q).await;
        stored.sort_by_key(|number| number.parse::<usize>().unwrap());
        assert!(stored.into_iter().eq((0..1_000).map(|n| n.to_string())));
    });
}
