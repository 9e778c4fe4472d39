//! Ordered keys: items of a key run one at a time, in the order of their pushes. An item that is to be tried again holds its key.

use std::time::Duration;

use kvqueue_queue::{
    Failure, HeldBy, ItemChange, ItemId, ItemOutcome, ItemState, LimitError, Limits, Movable, Mover, NewItem,
    Queue, RetryPolicy, RetryRules, from_millis,
};

use crate::common::keyed::{fetch, idle, is_woken, limit, names, push, push_one};
use crate::common::ordered::{
    blocked, blocking, dead, has_no_rows, held, is_idle, ordered, promote, queue, run_one, run_rest, unblock,
};
use crate::common::{SHORT, TestDb, at_most, k, later, on_database, rules};

#[test]
fn an_item_that_is_scheduled_again_holds_its_key_until_it_has_run() {
    on_database(async |t| {
        let postpone = ItemOutcome::Postpone { due: from_millis(10) };
        for outcome in [later(10), postpone] {
            let (q, mut session) = queue(t, ordered(), &["1", "2", "3"]).await;
            let first = run_one(t, &mut session, "1", &outcome).await;
            // The second fetch finds the key out of the index.
            assert!(is_idle(t, &mut session).await && is_idle(t, &mut session).await);
            assert_eq!((t.records(&q, "active").await.len(), t.records(&q, "onhold").await.len()), (0, 1));
            assert_eq!(held(t, &q).await, [(b"a".to_vec(), HeldBy::Scheduled(first))]);
            push(t, &q, "a", ["4"]).await;
            assert!(is_idle(t, &mut session).await);
            // Other keys go on.
            push(t, &q, "b", ["x"]).await;
            run_one(t, &mut session, "x", &ItemOutcome::Done).await;
            promote(t, &q, 10).await;
            assert_eq!(run_rest(t, &mut session).await, ["1", "2", "3", "4"]);
            assert!(has_no_rows(t, &q).await);
        }
    });
}

#[test]
fn a_key_that_is_held_before_its_next_item_is_pushed_keeps_that_item_back() {
    on_database(async |t| {
        let (q, mut session) = queue(t, ordered(), &["1"]).await;
        run_one(t, &mut session, "1", &later(10)).await;
        push(t, &q, "a", ["2"]).await;
        assert!(is_idle(t, &mut session).await);
        promote(t, &q, 10).await;
        assert_eq!(run_rest(t, &mut session).await, ["1", "2"]);
        assert!(has_no_rows(t, &q).await);
    });
}

#[test]
fn items_that_are_ready_again_at_once_hold_nothing_and_come_first() {
    on_database(async |t| {
        let (q, mut session) = queue(t, ordered(), &["1", "2"]).await;
        run_one(t, &mut session, "1", &ItemOutcome::Release).await;
        let retry = ItemOutcome::Retry { due: None, failure: Failure::new(from_millis(1), 1, "no") };
        run_one(t, &mut session, "1", &retry).await;
        assert!(held(t, &q).await.is_empty());
        assert_eq!(run_rest(t, &mut session).await, ["1", "2"]);
    });
}

#[test]
fn an_item_of_an_expired_lease_holds_its_key_while_it_waits() {
    on_database(async |t| {
        let (q, mut session) = queue(t, blocking(), &["1", "2"]).await;
        let retry = RetryRules { base: Duration::from_secs(1), max_attempts: 2, ..RetryRules::default() };
        let rules = rules().with_retry(retry);
        assert_eq!(names(t.lease_for(&q, 5, SHORT).await.as_ref()), ["1"]);
        t.sweep_leases(&q, 1, &rules).await;
        assert!(is_idle(t, &mut session).await);
        promote(t, &q, 10_000).await;
        // Its last attempt makes it a dead letter, which blocks the key.
        assert_eq!(names(t.lease_for(&q, 5, SHORT).await.as_ref()), ["1"]);
        t.sweep_leases(&q, 1, &at_most(2)).await;
        assert!(is_idle(t, &mut session).await);
        assert_eq!(blocked(t, &q).await, 1);
        assert!(unblock(t, &q, "a").await);
        assert_eq!(run_rest(t, &mut session).await, ["2"]);
    });
}

#[test]
fn a_dead_letter_blocks_its_key_if_the_rule_blocks() {
    on_database(async |t| {
        let (q, mut session) = queue(t, ordered(), &["1", "2"]).await;
        run_one(t, &mut session, "1", &dead()).await;
        assert_eq!((held(t, &q).await, blocked(t, &q).await), (vec![], 0));
        limit(t, &q, "*", blocking()).await;
        let second = run_one(t, &mut session, "2", &dead()).await;
        push(t, &q, "a", ["3"]).await;
        assert!(is_idle(t, &mut session).await);
        assert_eq!(held(t, &q).await, [(b"a".to_vec(), HeldBy::Dead(second.clone()))]);
        assert_eq!(blocked(t, &q).await, 1);
        // The key goes on, and the dead letter stays one.
        let watch = idle(t, &q).await;
        assert!(unblock(t, &q, "a").await && !unblock(t, &q, "a").await);
        is_woken(watch).await;
        assert_eq!(run_rest(t, &mut session).await, ["3"]);
        assert!(has_no_rows(t, &q).await);
        assert_eq!(t.run(async |tr| q.counts(tr).await).await.dead, 2);
    });
}

/// What an operator does about a dead letter.
#[derive(Debug, Clone, Copy)]
enum Deed {
    Retry,
    RetryInTransaction,
    RetryAll,
    Purge,
    PurgeInTransaction,
    PurgeAll,
    MoveAway,
}

impl Deed {
    async fn act(self, t: &TestDb, q: &Queue, id: &ItemId) {
        let policy = RetryPolicy::default();
        match self {
            Deed::Retry => {
                assert_eq!(
                    q.retry_dead(&t.db, &policy, id).await.unwrap(),
                    ItemChange::Done(ItemState::Dead)
                );
            }
            Deed::Purge => {
                assert_eq!(
                    q.purge_dead(&t.db, &policy, id).await.unwrap(),
                    ItemChange::Done(ItemState::Dead)
                );
            }
            Deed::RetryAll => assert_eq!(q.retry_all_dead(&t.db, &policy, None).await.unwrap().moved, 1),
            Deed::PurgeAll => assert_eq!(q.purge_all_dead(&t.db, &policy, None).await.unwrap().moved, 1),
            Deed::RetryInTransaction => {
                assert!(t.run(async |tr| Ok(q.dead_retry(tr, id).await.unwrap())).await);
            }
            Deed::PurgeInTransaction => assert!(t.run(async |tr| q.dead_purge(tr, id).await).await),
            Deed::MoveAway => {
                let mut mover = Mover::new(q.clone(), t.queue("other"), Movable::Dead).unwrap();
                assert_eq!(mover.page(&t.db, &policy, k(9)).await.unwrap().unwrap().moved, 1);
                mover.close(&t.db, &policy).await.unwrap();
            }
        }
    }
}

#[test]
fn a_key_goes_on_when_its_dead_letter_is_retried_or_gone() {
    on_database(async |t| {
        let retries = [Deed::Retry, Deed::RetryInTransaction, Deed::RetryAll];
        let ends = [Deed::Purge, Deed::PurgeInTransaction, Deed::PurgeAll, Deed::MoveAway];
        let cases = retries.map(|deed| (deed, vec!["1", "2"])).into_iter();
        for (deed, expected) in cases.chain(ends.map(|deed| (deed, vec!["2"]))) {
            let (q, mut session) = queue(t, blocking(), &["1", "2"]).await;
            let id = run_one(t, &mut session, "1", &dead()).await;
            assert!(is_idle(t, &mut session).await, "{deed:?}");
            deed.act(t, &q, &id).await;
            assert_eq!(run_rest(t, &mut session).await, expected, "{deed:?}");
            assert!(has_no_rows(t, &q).await, "{deed:?}");
        }
    });
}

#[test]
fn a_key_goes_on_when_its_scheduled_item_is_deleted_or_made_ready() {
    on_database(async |t| {
        let policy = RetryPolicy::default();
        for case in 0..3 {
            let (q, mut session) = queue(t, ordered(), &["1", "2"]).await;
            let id = run_one(t, &mut session, "1", &later(10)).await;
            assert!(is_idle(t, &mut session).await);
            let expected = match case {
                0 => {
                    assert!(matches!(q.delete_item(&t.db, &policy, &id).await.unwrap(), ItemChange::Done(_)));
                    vec!["2"]
                }
                1 => {
                    assert!(matches!(q.retry_item(&t.db, &policy, &id).await.unwrap(), ItemChange::Done(_)));
                    vec!["1", "2"]
                }
                _ => {
                    assert_eq!(q.requeue_scheduled(&t.db, &policy, None).await.unwrap().moved, 1);
                    vec!["1", "2"]
                }
            };
            assert_eq!(run_rest(t, &mut session).await, expected, "{case}");
            assert!(has_no_rows(t, &q).await, "{case}");
        }
    });
}

#[test]
fn an_unblocked_key_runs_its_scheduled_item_first_when_its_time_comes() {
    on_database(async |t| {
        let (q, mut session) = queue(t, ordered(), &["1", "2", "3"]).await;
        run_one(t, &mut session, "1", &later(10)).await;
        assert!(unblock(t, &q, "a").await);
        run_one(t, &mut session, "2", &ItemOutcome::Done).await;
        promote(t, &q, 10).await;
        assert_eq!(run_rest(t, &mut session).await, ["1", "3"]);
    });
}

#[test]
fn a_change_of_the_rules_ends_holds_that_do_not_apply_any_more() {
    on_database(async |t| {
        let not_ordered = Limits::default().with_running(1);
        for (outcome, after) in [(dead(), ordered()), (dead(), not_ordered), (later(10), not_ordered)] {
            let (q, mut session) = queue(t, blocking(), &["1", "2"]).await;
            run_one(t, &mut session, "1", &outcome).await;
            let watch = idle(t, &q).await;
            limit(t, &q, "*", after).await;
            is_woken(watch).await;
            assert_eq!(run_rest(t, &mut session).await, ["2"], "{outcome:?}");
            assert!(has_no_rows(t, &q).await, "{outcome:?}");
            let policy = RetryPolicy::default();
            q.purge_all_dead(&t.db, &policy, None).await.unwrap();
            q.requeue_scheduled(&t.db, &policy, None).await.unwrap();
            run_rest(t, &mut session).await;
        }
        // A hold that still applies stays.
        let (q, mut session) = queue(t, blocking(), &["1", "2"]).await;
        run_one(t, &mut session, "1", &later(10)).await;
        limit(t, &q, "*", ordered()).await;
        assert!(is_idle(t, &mut session).await);
        assert_eq!(held(t, &q).await.len(), 1);
    });
}

#[test]
fn an_unreadable_item_blocks_its_key() {
    on_database(async |t| {
        let (q, mut session) = queue(t, blocking(), &[]).await;
        let bad = NewItem::new("bad").with_key("a").with_attribute("k", "v");
        t.push_items(&q, &[bad]).await;
        push(t, &q, "a", ["good"]).await;
        let record = t.rows().await.into_iter().find(|(key, _)| {
            let records = crate::common::records(&[(key.clone(), Vec::new())], &q, "meta");
            !records.is_empty()
        });
        let key = [t.prefix.clone(), record.unwrap().0].concat();
        t.run(async |tr| {
            tr.set(&key, &[1]);
            Ok(())
        })
        .await;
        assert!(is_idle(t, &mut session).await);
        assert_eq!(blocked(t, &q).await, 1);
        assert!(unblock(t, &q, "a").await);
        assert_eq!(run_rest(t, &mut session).await, ["good"]);
    });
}

/// Keys stay active while their items run, as long as there are other keys to serve. Then fetches park them, in several steps.
#[test]
fn many_keys_whose_items_run_are_parked_and_go_on() {
    on_database(async |t| {
        let (q, mut session) = queue(t, ordered(), &[]).await;
        for key in 0..200 {
            push(t, &q, &format!("k{key}"), ["1", "2"]).await;
        }
        let mut leases = Vec::new();
        while let Some(lease) = fetch(t, &mut session, 50).await {
            leases.push(lease);
        }
        let counts = async |kind| t.records(&q, kind).await.len();
        assert_eq!((counts("active").await, counts("parked").await), (0, 200));
        assert_eq!(leases.iter().map(|lease| lease.items().len()).sum::<usize>(), 200);
        for mut lease in leases {
            t.acknowledge(&mut lease, &ItemOutcome::Done).await;
        }
        assert_eq!((counts("active").await, counts("parked").await), (200, 0));
        assert_eq!(run_rest(t, &mut session).await, vec!["2"; 200]);
        assert!(has_no_rows(t, &q).await);
    });
}

#[test]
fn held_keys_are_listed_in_pages() {
    on_database(async |t| {
        let (q, mut session) = queue(t, blocking(), &[]).await;
        for key in ["a", "b", "c/x", "d"] {
            push_one(t, &q, key).await;
        }
        limit(t, &q, "*/*", ordered()).await;
        let mut lease = fetch(t, &mut session, 9).await.unwrap();
        assert_eq!(lease.items().len(), 4);
        t.acknowledge(&mut lease, &later(10)).await;
        let mut behind: Option<Vec<u8>> = None;
        let mut pages: Vec<Vec<String>> = Vec::new();
        loop {
            let after = behind.as_deref();
            let page = t.run(async |tr| Ok(q.held_keys(tr, after, k(3)).await.unwrap())).await;
            let Some(last) = page.last() else { break };
            behind = Some(last.key.clone());
            pages.push(page.iter().map(|held| String::from_utf8_lossy(&held.key).into_owned()).collect());
        }
        assert_eq!(pages, [vec!["a", "b", "c/x"], vec!["d"]]);
        let fifo = t.queue("fifo");
        let error = t.run(async |tr| Ok(fifo.held_keys(tr, None, k(1)).await.unwrap_err())).await;
        assert!(matches!(error, LimitError::NoKeys { .. }));
    });
}

/// The rows that a program in another language has to know.
#[test]
fn rows_of_a_held_key_are_as_documented() {
    on_database(async |t| {
        let (q, mut session) = queue(t, blocking(), &["1", "2"]).await;
        let id = run_one(t, &mut session, "1", &dead()).await;
        assert!(is_idle(t, &mut session).await);
        assert_eq!(t.records(&q, "hold").await, [(id.as_bytes().to_vec(), vec![2])]);
        let key = foundationdb::tuple::pack(&(foundationdb::tuple::Bytes::from(&b"a"[..]),));
        assert_eq!(t.records(&q, "onhold").await, [(key, (2_u64 << 20).to_le_bytes().to_vec())]);
        assert_eq!(t.records(&q, "nblocked").await, [(vec![], 1_u64.to_le_bytes().to_vec())]);
        let (_, rule) = t.records(&q, "rule").await.swap_remove(0);
        assert_eq!(rule, [3, 1, 0, 0, 0, 1, 4, 1, 0, 0, 0, 1]);
    });
}
