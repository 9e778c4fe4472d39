//! Commits whose outcome is unknown, of both kinds, at every step of a session.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;

use fdb_embedded::Fault::{None as Fine, UnknownCommitted, UnknownNotCommitted};
use fdb_embedded::{Fault, Faults};
use kvqueue_queue::{RetryPolicy, Session};

use crate::common::{TestDb, k, on_database, payloads};

/// Every order of up to three faults before the commit that works.
pub(crate) fn scripts() -> Vec<Vec<Fault>> {
    let kinds = [UnknownCommitted, UnknownNotCommitted, Fault::Conflict, Fault::TooOld];
    let mut scripts = vec![Vec::new()];
    for start in 0..kinds.len() + kinds.len().pow(2) + 1 {
        for kind in kinds {
            let longer = [scripts[start].as_slice(), &[kind]].concat();
            scripts.push(longer);
        }
    }
    scripts
}

/// How many attempts of a script are of unknown outcome, up to the first that committed.
fn unknown(script: &[Fault]) -> u32 {
    let mut n = 0;
    for fault in script {
        n += u32::from(matches!(fault, UnknownCommitted | UnknownNotCommitted));
        if *fault == UnknownCommitted {
            break;
        }
    }
    n
}

#[test]
fn a_push_happens_once_under_unknown_outcomes() {
    on_database(async |t| {
        for (i, script) in scripts().into_iter().enumerate() {
            let q = t.queue(format!("q{i}"));
            let mut session = t.session(&q);
            if !t.install(Faults::script(script.clone())) {
                return;
            }
            let pushed = session.push(&t.db, &["a", "b"]).await.unwrap();
            t.end_faults();
            assert_eq!(pushed.attempts.unknown, unknown(&script), "{script:?}");
            assert_eq!(t.list(&q).await, ["a", "b"], "{script:?}");
            assert_eq!(t.len(&q).await, 2, "{script:?}");
            let stored = t.run(async |tr| q.list(tr).await).await;
            assert!(pushed.stamps().eq(stored.iter().map(|item| item.id.stamp().unwrap())), "{script:?}");
        }
    });
}

#[test]
fn a_take_happens_once_under_unknown_outcomes() {
    on_database(async |t| {
        for (i, script) in scripts().into_iter().enumerate() {
            let q = t.queue(format!("q{i}"));
            t.push(&q, &["a", "b", "c"]).await;
            let mut session = t.session(&q);
            if !t.install(Faults::script(script.clone())) {
                return;
            }
            let taken = session.take(&t.db, k(2)).await.unwrap();
            t.end_faults();
            assert_eq!(taken.attempts.unknown, unknown(&script), "{script:?}");
            assert_eq!(payloads(&taken.got), ["a", "b"], "{script:?}");
            assert_eq!(t.list(&q).await, ["c"], "{script:?}");
            assert_eq!(t.len(&q).await, 1, "{script:?}");
            let next = session.take(&t.db, k(2)).await.unwrap();
            assert_eq!(payloads(&next.got), ["c"], "{script:?}");
        }
    });
}

/// A session that gives up at the first unknown outcome.
fn impatient(t: &TestDb, queue: &kvqueue_queue::Queue) -> Session {
    t.session(queue).with_policy(RetryPolicy { max_attempts: Some(1), timeout: None })
}

#[test]
fn items_removed_by_a_failed_take_are_returned_by_the_next() {
    on_database(async |t| {
        for fault in [UnknownCommitted, UnknownNotCommitted] {
            let q = t.queue(format!("{fault:?}"));
            t.push(&q, &["a", "b", "c"]).await;
            let mut session = impatient(t, &q);
            if !t.install(Faults::script([fault])) {
                return;
            }
            let error = session.take(&t.db, k(2)).await.unwrap_err();
            assert!(error.is_maybe_committed());
            // Asked for less than was removed: never more than asked for, and the rest comes after it.
            let mut all = Vec::new();
            for _ in 0..3 {
                let items = session.take(&t.db, k(1)).await.unwrap().got;
                assert_eq!(items.len(), 1, "{fault:?}");
                all.extend(payloads(&items));
            }
            assert_eq!(all, ["a", "b", "c"], "{fault:?}");
            assert!(session.take(&t.db, k(1)).await.unwrap().watch.is_some());
        }
    });
}

#[test]
fn close_returns_items_removed_by_a_failed_take() {
    on_database(async |t| {
        // Closing itself meets a fault, too.
        for (i, (first, second)) in [UnknownCommitted, UnknownNotCommitted]
            .into_iter()
            .flat_map(|first| [Fine, UnknownCommitted, UnknownNotCommitted].map(|second| (first, second)))
            .enumerate()
        {
            let q = t.queue(format!("q{i}"));
            t.push(&q, &["a", "b", "c"]).await;
            let mut session = impatient(t, &q);
            if !t.install(Faults::script([first, second])) {
                return;
            }
            session.take(&t.db, k(2)).await.unwrap_err();
            let left = session.with_policy(RetryPolicy::default()).close(&t.db).await.unwrap();
            t.end_faults();
            let expected: &[&str] = if first == UnknownCommitted { &["a", "b"] } else { &[] };
            assert_eq!(payloads(&left), expected, "{first:?} {second:?}");
            assert_eq!(t.len(&q).await as usize + left.len(), 3, "{first:?} {second:?}");
        }
    });
}

#[test]
fn a_push_between_a_failed_take_and_the_next_loses_no_item() {
    on_database(async |t| {
        for faults in
            [[UnknownCommitted, Fine], [UnknownNotCommitted, Fine], [UnknownCommitted, UnknownCommitted]]
        {
            let q = t.queue(format!("{faults:?}"));
            t.push(&q, &["a", "b"]).await;
            let mut session = impatient(t, &q);
            if !t.install(Faults::script(faults)) {
                return;
            }
            session.take(&t.db, k(1)).await.unwrap_err();
            // Whether this returns an error or not, the slot no longer names the take.
            let pushed = session.push(&t.db, &["c"]).await;
            assert_eq!(pushed.is_err(), faults[1] == UnknownCommitted);
            let mut all = Vec::new();
            for _ in 0..3 {
                all.extend(payloads(&session.take(&t.db, k(1)).await.unwrap().got));
            }
            assert_eq!(all, ["a", "b", "c"], "{faults:?}");
        }
    });
}

#[test]
fn a_failed_push_is_not_confused_with_the_next() {
    on_database(async |t| {
        for first in [UnknownCommitted, UnknownNotCommitted] {
            for second in [UnknownCommitted, UnknownNotCommitted] {
                let q = t.queue(format!("{first:?} {second:?}"));
                let mut session = impatient(t, &q);
                if !t.install(Faults::script([first])) {
                    return;
                }
                let error = session.push(&t.db, &["given up"]).await.unwrap_err();
                assert!(error.is_maybe_committed());
                let mut session = session.with_policy(RetryPolicy::default());
                assert!(t.install(Faults::script([second])));
                session.push(&t.db, &["next"]).await.unwrap();
                let expected: &[&str] =
                    if first == UnknownCommitted { &["given up", "next"] } else { &["next"] };
                assert_eq!(t.list(&q).await, expected, "{first:?} {second:?}");
            }
        }
    });
}

#[test]
fn a_watch_follows_a_take_of_the_last_item_with_unknown_outcome() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["a"]).await;
        let mut session = t.session(&q);
        if !t.install(Faults::script([UnknownCommitted])) {
            return;
        }
        let taken = session.take(&t.db, k(5)).await.unwrap();
        assert_eq!((payloads(&taken.got), taken.watch.is_none()), (vec!["a".into()], true));
        let watch = session.take(&t.db, k(5)).await.unwrap().watch.expect("the queue is empty");
        t.push(&q, &["b"]).await;
        watch.await.unwrap();
        assert_eq!(payloads(&session.take(&t.db, k(5)).await.unwrap().got), ["b"]);
    });
}

#[test]
fn a_failed_take_is_not_confused_with_another_sessions_take() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["a", "b"]).await;
        let mut session = impatient(t, &q);
        if !t.install(Faults::script([UnknownNotCommitted])) {
            return;
        }
        session.take(&t.db, k(1)).await.unwrap_err();
        let other = t.session(&q).take(&t.db, k(1)).await.unwrap();
        assert_eq!(payloads(&other.got), ["a"]);
        assert_eq!(payloads(&session.take(&t.db, k(2)).await.unwrap().got), ["b"]);
    });
}

/// Polls a future this many times and drops it, unless it was done before.
async fn poll_and_drop<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    for _ in 0..polls {
        let polled = std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await;
        if let Poll::Ready(output) = polled {
            return Some(output);
        }
        // Not to wait for anything, but so that the transaction is at another step each time.
        tokio::task::yield_now().await;
    }
    None
}

#[test]
fn a_take_dropped_at_any_moment_loses_nothing() {
    on_database(async |t| {
        let q = t.queue("q");
        let mut session = t.session(&q);
        let mut dropped = 0;
        for polls in (0..40).chain((0..2_000).step_by(50)) {
            t.push(&q, &["a", "b"]).await;
            let mut all = match poll_and_drop(session.take(&t.db, k(2)), polls).await {
                Some(taken) => payloads(&taken.unwrap().got),
                None => {
                    dropped += 1;
                    Vec::new()
                }
            };
            loop {
                let taken = session.take(&t.db, k(2)).await.unwrap();
                all.extend(payloads(&taken.got));
                if taken.watch.is_some() {
                    break;
                }
            }
            assert_eq!(all, ["a", "b"], "dropped after {polls} polls");
            assert_eq!(t.len(&q).await, 0, "dropped after {polls} polls");
        }
        assert!(dropped > 0, "no future was dropped before it was done");
    });
}

#[test]
fn a_push_dropped_at_any_moment_happens_at_most_once() {
    on_database(async |t| {
        let q = t.queue("q");
        let mut session = t.session(&q);
        for polls in (0..40).chain((0..2_000).step_by(50)) {
            let done = poll_and_drop(session.push(&t.db, &["dropped"]), polls).await.is_some();
            session.push(&t.db, &["after"]).await.unwrap();
            let taken = payloads(&t.session(&q).take(&t.db, k(9)).await.unwrap().got);
            if done || taken.len() == 2 {
                assert_eq!(taken, ["dropped", "after"], "dropped after {polls} polls");
            } else {
                assert_eq!(taken, ["after"], "dropped after {polls} polls");
            }
            // Not even later: the fence has closed behind it.
            assert_eq!(t.len(&q).await, 0, "dropped after {polls} polls");
        }
    });
}
