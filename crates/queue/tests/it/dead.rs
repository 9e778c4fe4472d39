//! Dead letters: looked at, retried, purged, one and all.

use std::time::Instant;

use fdb_embedded::Fault::{self, Conflict, TooOld, UnknownCommitted, UnknownNotCommitted};
use fdb_embedded::Faults;
use kvqueue_queue::{
    AllDead, Counts, DeadLetterError, Failure, ItemChange, ItemId, ItemOutcome, ItemState, Pause, Queue,
    QueueError, RetryPolicy, from_millis,
};

use crate::common::{TestDb, id, k, on_database, payloads, record};

fn policy() -> RetryPolicy {
    RetryPolicy::default()
}

/// Lets all ready items die.
async fn bury(t: &TestDb, queue: &Queue) {
    while let Some(mut lease) = t.lease(queue, 1_000).await {
        t.acknowledge(&mut lease, &ItemOutcome::Dead(Failure::new(from_millis(7), 3, "will not work"))).await;
    }
}

/// Dead letters of these payloads.
async fn dead(t: &TestDb, name: &str, payloads: &[&str]) -> (Queue, Vec<ItemId>) {
    let q = t.queue(name);
    t.push(&q, payloads).await;
    let ids = t.run(async |tr| q.list(tr).await).await.into_iter().map(|item| item.id).collect();
    bury(t, &q).await;
    (q, ids)
}

/// How many items there are now in each state.
async fn counts(t: &TestDb, queue: &Queue) -> Counts {
    Counts { pushed: None, ..t.run(async |tr| queue.counts(tr).await).await }
}

async fn listed(t: &TestDb, queue: &Queue, after: Option<&ItemId>, n: usize) -> Vec<ItemId> {
    let letters = t.run(async |tr| queue.dead_list(tr, after, k(n)).await).await;
    assert!(letters.iter().all(|letter| letter.payload.is_none()));
    letters.into_iter().map(|letter| letter.id).collect()
}

async fn retry(t: &TestDb, queue: &Queue, id: &ItemId) -> Result<bool, DeadLetterError> {
    let tr = t.db.create_trx().unwrap();
    let retried = queue.dead_retry(&tr, id).await?;
    tr.commit().await.unwrap();
    Ok(retried)
}

#[test]
fn dead_letters_are_listed_page_by_page_and_shown_in_full() {
    on_database(async |t| {
        let (q, ids) = dead(t, "q", &["a", "b", "c"]).await;
        assert_eq!(listed(t, &q, None, 10).await, ids);
        assert_eq!(listed(t, &q, None, 2).await, ids[..2]);
        assert_eq!(listed(t, &q, Some(&ids[1]), 2).await, ids[2..]);
        assert!(listed(t, &q, Some(&ids[2]), 2).await.is_empty());

        let letter = t.run(async |tr| q.dead_get(tr, &ids[1]).await).await.unwrap();
        assert_eq!((letter.id.clone(), letter.payload.as_deref()), (ids[1].clone(), Some(b"b".as_slice())));
        assert_eq!((letter.died_at, letter.reason.as_str()), (from_millis(7), "will not work"));
        assert_eq!((letter.meta.attempts, letter.meta.failures.len()), (1, 1));
        assert!(t.run(async |tr| q.dead_get(tr, &id(9)).await).await.is_none());
    });
}

#[test]
fn a_retried_dead_letter_returns_to_its_place_with_all_attempts_left() {
    on_database(async |t| {
        let (q, ids) = dead(t, "q", &["a", "b"]).await;
        t.push(&q, &["c"]).await;
        assert!(retry(t, &q, &ids[0]).await.unwrap());
        assert!(!retry(t, &q, &ids[0]).await.unwrap(), "it is no letter any more");
        assert_eq!(t.list(&q).await, ["a", "c"]);
        assert_eq!(counts(t, &q).await, Counts { ready: 2, dead: 1, ..Counts::default() });
        let items = t.run(async |tr| q.list(tr).await).await;
        let meta = items[0].meta.as_ref().unwrap();
        assert_eq!((items[0].attempt, meta.attempts, meta.crashes), (1, 0, 0));
        assert_eq!((meta.failures.len(), &meta.death), (1, &None));
        assert_eq!(listed(t, &q, None, 10).await, ids[1..]);
    });
}

#[test]
fn purging_a_dead_letter_clears_all_its_records() {
    on_database(async |t| {
        let q = t.queue("q");
        t.store(&q, &id(1), "long", "key").await;
        bury(t, &q).await;
        assert_eq!((t.records(&q, "chunk").await.len(), t.records(&q, "unique").await.len()), (1, 0));
        let letter = t.run(async |tr| q.dead_get(tr, &id(1)).await).await.unwrap();
        assert_eq!(letter.payload.unwrap().len(), 100_004);
        let purged = async || {
            let tr = t.db.create_trx().unwrap();
            let purged = q.dead_purge(&tr, &id(1)).await.unwrap();
            tr.commit().await.unwrap();
            purged
        };
        assert_eq!((purged().await, purged().await), (true, false));
        for kind in ["dead", "body", "chunk", "meta", "unique"] {
            assert_eq!(t.records(&q, kind).await.len(), 0, "{kind}");
        }
        assert_eq!(counts(t, &q).await, Counts::default());
    });
}

#[test]
fn a_dead_letter_is_not_retried_while_its_unique_key_is_taken() {
    on_database(async |t| {
        let q = t.queue("q");
        t.store(&q, &id(1), "first", "key").await;
        bury(t, &q).await;
        t.store(&q, &id(2), "second", "key").await;
        let error = retry(t, &q, &id(1)).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "dead letter 000000000000000101010101 has a unique key that item 000000000000000202020202 has now; retry it when that \
             one is finished, or purge one of them"
        );
        assert_eq!(q.retry_dead(&t.db, &policy(), &id(1)).await.unwrap(), ItemChange::UniqueTaken(id(2)));
        let all = q.retry_all_dead(&t.db, &policy(), None).await.unwrap();
        assert_eq!(all, AllDead { moved: 0, refused: 1, unreadable: 0, more: false });
        // Also while the other is in hand, and no longer when it has ended.
        let mut lease = t.lease(&q, 1).await.unwrap();
        assert!(retry(t, &q, &id(1)).await.is_err());
        t.acknowledge(&mut lease, &ItemOutcome::Done).await;
        assert!(retry(t, &q, &id(1)).await.unwrap());
        assert_eq!((t.records(&q, "unique").await.len(), counts(t, &q).await.dead), (1, 0));
    });
}

#[test]
fn of_two_dead_letters_with_one_unique_key_the_first_is_retried() {
    on_database(async |t| {
        let q = t.queue("q");
        for number in [1, 2] {
            t.store(&q, &id(number), "long", "key").await;
            bury(t, &q).await;
        }
        let all = q.retry_all_dead(&t.db, &policy(), None).await.unwrap();
        assert_eq!(all, AllDead { moved: 1, refused: 1, unreadable: 0, more: false });
        assert_eq!(listed(t, &q, None, 10).await, [id(2)]);
    });
}

#[test]
fn any_number_of_dead_letters_is_retried_or_purged() {
    on_database(async |t| {
        let names: Vec<String> = (0..1_300).map(|n| n.to_string()).collect();
        let refs: Vec<&str> = names.iter().map(String::as_str).collect();
        let (q, _) = dead(t, "q", &refs).await;
        assert_eq!(
            q.retry_all_dead(&t.db, &policy(), None).await.unwrap(),
            AllDead { moved: 1_300, ..AllDead::default() }
        );
        assert_eq!((t.list(&q).await, t.len(&q).await), (names, 1_300));
        bury(t, &q).await;
        // `until` has passed after the first page.
        let part = q.purge_all_dead(&t.db, &policy(), Some(Instant::now())).await.unwrap();
        assert!(part.more && (1..1_300).contains(&part.moved), "{part:?}");
        assert_eq!(
            q.purge_all_dead(&t.db, &policy(), None).await.unwrap(),
            AllDead { moved: 1_300 - part.moved, ..AllDead::default() }
        );
        assert_eq!(counts(t, &q).await, Counts::default());
        for kind in ["dead", "body", "meta"] {
            assert_eq!(t.records(&q, kind).await.len(), 0, "{kind}");
        }
    });
}

#[test]
fn a_frozen_queue_keeps_the_unique_keys_of_unreadable_letters() {
    on_database(async |t| {
        let (q, ids) = dead(t, "q", &["a"]).await;
        t.run(async |tr| {
            tr.set(&record(&q, "dead", ids[0].as_bytes()), b"\x01garbage");
            q.pause(tr, &Pause { frozen: true, ..Pause::default() });
            Ok(())
        })
        .await;
        let before = t.rows().await;
        let one = q.purge_dead(&t.db, &policy(), &ids[0]).await.unwrap_err();
        let all = q.purge_all_dead(&t.db, &policy(), None).await.unwrap_err();
        assert!(matches!(one.error, QueueError::Frozen { .. }), "{one:?}");
        assert!(matches!(all.error, QueueError::Frozen { .. }), "{all:?}");
        assert_eq!(t.rows().await, before);
    });
}

#[test]
fn unreadable_letters_are_purged_one_by_one_until_the_time_is_over() {
    on_database(async |t| {
        let (q, ids) = dead(t, "q", &["a", "b", "c"]).await;
        t.run(async |tr| {
            ids.iter().for_each(|id| tr.set(&record(&q, "dead", id.as_bytes()), b"\x01garbage"));
            Ok(())
        })
        .await;
        for left in [2, 1, 0] {
            let all = q.purge_all_dead(&t.db, &policy(), Some(Instant::now())).await.unwrap();
            assert_eq!(all, AllDead { moved: 1, more: true, ..AllDead::default() });
            assert_eq!(listed(t, &q, None, 10).await.len(), left);
        }
        let all = q.purge_all_dead(&t.db, &policy(), Some(Instant::now())).await.unwrap();
        assert_eq!(all, AllDead::default());
    });
}

#[test]
fn unreadable_dead_letters_do_not_block_others() {
    on_database(async |t| {
        let (q, ids) = dead(t, "q", &["a", "b", "c", "d"]).await;
        t.run(async |tr| {
            tr.set(&record(&q, "dead", ids[1].as_bytes()), b"\x01garbage");
            tr.clear(&record(&q, "body", ids[2].as_bytes()));
            Ok(())
        })
        .await;
        assert_eq!(listed(t, &q, None, 10).await, ids);
        let letters = t.run(async |tr| q.dead_list(tr, None, k(10)).await).await;
        assert!(letters[1].reason.contains("cannot read"), "{}", letters[1].reason);
        let all = q.retry_all_dead(&t.db, &policy(), None).await.unwrap();
        assert_eq!(all, AllDead { moved: 2, unreadable: 2, ..AllDead::default() });
        assert_eq!(t.list(&q).await, ["a", "d"]);
        // One that is asked for by its id says why not.
        for id in &ids[1..3] {
            let error = q.retry_dead(&t.db, &policy(), id).await.unwrap_err();
            assert!(matches!(error.error, QueueError::Unreadable { .. }), "{error:?}");
            assert_eq!(q.purge_dead(&t.db, &policy(), id).await.unwrap(), ItemChange::Done(ItemState::Dead));
        }
        assert_eq!(counts(t, &q).await, Counts { ready: 2, ..Counts::default() });
    });
}

#[test]
fn large_dead_letters_are_retried_a_few_at_a_time() {
    on_database(async |t| {
        let payload = "x".repeat(90_000);
        let (q, _) = dead(t, "q", &[payload.as_str(); 45]).await;
        assert_eq!(
            q.retry_all_dead(&t.db, &policy(), None).await.unwrap(),
            AllDead { moved: 45, ..AllDead::default() }
        );
        assert_eq!(t.list(&q).await, vec![payload; 45]);
    });
}

fn scripts() -> Vec<Vec<Fault>> {
    vec![
        vec![UnknownCommitted],
        vec![UnknownNotCommitted],
        vec![UnknownNotCommitted, UnknownCommitted],
        vec![UnknownNotCommitted, TooOld, Conflict],
    ]
}

#[test]
fn all_dead_letters_are_retried_once_under_unknown_outcomes() {
    on_database(async |t| {
        for script in scripts() {
            let (q, _) = dead(t, &format!("{script:?}"), &["a", "b", "c"]).await;
            if !t.install(Faults::script(script.clone())) {
                return;
            }
            let all = q.retry_all_dead(&t.db, &policy(), None).await.unwrap();
            t.end_faults();
            assert_eq!(all, AllDead { moved: 3, ..AllDead::default() }, "{script:?}");
            assert_eq!(counts(t, &q).await, Counts { ready: 3, ..Counts::default() }, "{script:?}");
            assert_eq!(payloads(&t.run(async |tr| q.list(tr).await).await), ["a", "b", "c"]);
            bury(t, &q).await;
            assert!(t.install(Faults::script(script.clone())));
            let all = q.purge_all_dead(&t.db, &policy(), None).await.unwrap();
            t.end_faults();
            assert_eq!(all, AllDead { moved: 3, ..AllDead::default() }, "{script:?}");
            assert_eq!(counts(t, &q).await, Counts::default(), "{script:?}");
        }
    });
}

#[test]
fn a_dead_letter_is_moved_once_under_unknown_outcomes() {
    on_database(async |t| {
        for script in scripts() {
            let (q, ids) = dead(t, &format!("{script:?}"), &["a", "b"]).await;
            if !t.install(Faults::script(script.clone())) {
                return;
            }
            let fate = q.retry_dead(&t.db, &policy(), &ids[0]).await.unwrap();
            assert!(t.install(Faults::script(script.clone())));
            let purged = q.purge_dead(&t.db, &policy(), &ids[1]).await.unwrap();
            t.end_faults();
            assert_eq!(
                (fate, purged),
                (ItemChange::Done(ItemState::Dead), ItemChange::Done(ItemState::Dead)),
                "{script:?}"
            );
            assert_eq!(counts(t, &q).await, Counts { ready: 1, ..Counts::default() }, "{script:?}");
            for id in &ids {
                assert_eq!(q.retry_dead(&t.db, &policy(), id).await.unwrap(), ItemChange::Gone);
                assert_eq!(q.purge_dead(&t.db, &policy(), id).await.unwrap(), ItemChange::Gone);
            }
        }
    });
}

#[test]
fn concurrent_retry_and_purge_of_a_dead_letter_conflict() {
    on_database(async |t| {
        let (q, ids) = dead(t, "q", &["a"]).await;
        let (one, other) = (t.db.create_trx().unwrap(), t.db.create_trx().unwrap());
        assert!(q.dead_retry(&one, &ids[0]).await.unwrap());
        assert!(q.dead_purge(&other, &ids[0]).await.unwrap());
        one.commit().await.unwrap();
        assert_eq!(other.commit().await.unwrap_err().code(), 1020);
        assert_eq!(counts(t, &q).await, Counts { ready: 1, ..Counts::default() });
    });
}
