//! Results of items: kept with the history, written once with the item's end.

use std::time::Duration;

use bytes::Bytes;
use fdb_embedded::Faults;
use kvqueue_queue::{
    EndedItem, ItemId, ItemOutcome, MAX_RESULT, Queue, Recording, RetryPolicy, acknowledge_together,
};

use crate::common::{KINDS, TestDb, kinds_of_records, on_database, rules, sweeper};
use crate::history::{Clock, START};
use crate::unknown::scripts;

const LONG: u64 = 3_600_000_000;

fn recorded(queue: &Queue) -> Queue {
    queue.clone().with_recorder(&Clock::new().recorder(Recording::On))
}

fn done_with(result: &[u8]) -> ItemOutcome {
    ItemOutcome::DoneWith(Bytes::copy_from_slice(result))
}

async fn ended(t: &TestDb, q: &Queue, id: &ItemId) -> EndedItem {
    t.run(async |tr| q.ended_item(tr, id).await).await.unwrap()
}

/// What the history has of an item's result: its length, and its bytes.
async fn result(t: &TestDb, q: &Queue, id: &ItemId) -> (Option<usize>, Option<Bytes>) {
    let item = ended(t, q, id).await;
    let bytes = t.run(async |tr| q.result(tr, &item).await).await;
    (item.result, bytes)
}

#[test]
fn a_result_is_written_once_with_the_end_in_queues_of_all_kinds() {
    on_database(async |t| {
        let scripts: Vec<_> = scripts().into_iter().filter(|script| script.len() < 3).collect();
        for (i, (kind, script)) in
            KINDS.into_iter().flat_map(|kind| scripts.iter().map(move |script| (kind, script))).enumerate()
        {
            let q = recorded(&t.queue_of(format!("q{i}"), kind));
            t.fill(&q, &["a", "b", "c", "d"]).await;
            let mut lease = t.lease_for(&q, 3, LONG).await.unwrap();
            let other = t.lease_for(&q, 1, LONG).await.unwrap();
            let ids: Vec<_> = lease.items().iter().map(|item| item.id.clone()).collect();
            if !t.install(Faults::script(script.clone())) {
                return;
            }
            let policy = RetryPolicy::default();
            let outcomes = [(0, done_with(b"one")), (1, ItemOutcome::Done), (2, done_with(b""))];
            lease.acknowledge(&t.db, &policy, &outcomes).await.unwrap();
            t.end_faults();
            let id = other.items()[0].id.clone();
            t.install(Faults::script(script.clone()));
            let mut together = vec![(other, vec![(0, done_with(b"four"))])];
            for result in acknowledge_together(&t.db, &policy, &mut together).await {
                result.unwrap();
            }
            t.end_faults();
            let text = format!("{kind:?} {script:?}");
            assert_eq!(result(t, &q, &ids[0]).await, (Some(3), Some("one".into())), "{text}");
            assert_eq!(result(t, &q, &ids[1]).await, (None, None), "{text}");
            assert_eq!(result(t, &q, &ids[2]).await, (Some(0), Some("".into())), "{text}");
            assert_eq!(result(t, &q, &id).await, (Some(4), Some("four".into())), "{text}");
            assert_eq!(t.records(&q, "result").await.len(), 3, "{text}");
        }
    });
}

#[test]
fn a_result_that_is_too_long_leaves_its_mark_alone() {
    on_database(async |t| {
        let q = recorded(&t.queue("q"));
        t.push(&q, &["a", "b"]).await;
        let mut lease = t.lease_for(&q, 2, LONG).await.unwrap();
        let ids: Vec<_> = lease.items().iter().map(|item| item.id.clone()).collect();
        let longest = vec![b'r'; MAX_RESULT];
        let longer = vec![b'r'; MAX_RESULT + 10];
        let outcomes = [(0, done_with(&longest)), (1, done_with(&longer))];
        lease.acknowledge(&t.db, &RetryPolicy::default(), &outcomes).await.unwrap();
        assert_eq!(result(t, &q, &ids[0]).await, (Some(MAX_RESULT), Some(longest.into())));
        assert_eq!(result(t, &q, &ids[1]).await, (Some(MAX_RESULT + 1), None));
    });
}

#[test]
fn a_queue_without_a_history_keeps_no_results() {
    on_database(async |t| {
        let plain = t.queue("q");
        let off = plain.clone().with_recorder(&Clock::new().recorder(Recording::Off));
        let unset = plain.clone().with_recorder(&Clock::new().recorder(Recording::AsStored));
        for q in [&plain, &off, &unset] {
            t.push(q, &["a"]).await;
            let mut lease = t.lease_for(q, 1, LONG).await.unwrap();
            t.acknowledge(&mut lease, &done_with(b"lost")).await;
            assert_eq!(t.len(q).await, 0);
        }
        assert_eq!(t.counter(&plain, "ndone").await, 3);
        let kinds = kinds_of_records(t, &plain).await;
        assert!(!kinds.iter().any(|kind| kind == "result"), "{kinds:?}");
    });
}

#[test]
fn more_results_than_one_transaction_holds_are_written_in_several() {
    on_database(async |t| {
        let q = recorded(&t.queue("q"));
        let longest = vec![b'r'; MAX_RESULT];
        t.push(&q, &["x"; 150]).await;
        let mut lease = t.lease_for(&q, 150, LONG).await.unwrap();
        let outcomes: Vec<_> = (0..150).map(|index| (index, done_with(&longest))).collect();
        let policy = RetryPolicy::default();
        let written = lease.acknowledge_some(&t.db, &policy, &outcomes).await.unwrap();
        assert!((5..15).contains(&written), "{written}");
        lease.acknowledge(&t.db, &policy, &outcomes[written..]).await.unwrap();
        assert!(lease.is_acknowledged());
        assert_eq!(t.records(&q, "result").await.len(), 150);
    });
}

#[test]
fn a_transaction_of_the_callers_has_the_result_with_the_end() {
    on_database(async |t| {
        let q = recorded(&t.queue("q"));
        t.push(&q, &["a"]).await;
        let lease = t.lease_for(&q, 1, LONG).await.unwrap();
        let outcomes = [(0, done_with(b"mine"))];
        let tr = t.db.create_trx().unwrap();
        let acknowledgement = lease.acknowledge_in(&tr, &outcomes).await.unwrap();
        drop((tr, acknowledgement));
        assert_eq!(t.records(&q, "result").await.len(), 0, "it was not committed");
        let tr = t.db.create_trx().unwrap();
        drop(lease.acknowledge_in(&tr, &outcomes).await.unwrap());
        tr.commit().await.unwrap();
        assert_eq!(result(t, &q, &lease.items()[0].id).await.1, Some("mine".into()));
    });
}

#[test]
fn results_are_removed_with_the_history() {
    on_database(async |t| {
        let q = recorded(&t.queue("q"));
        t.run(async |tr| q.keep_history(tr, Duration::from_hours(1)).await).await;
        t.push(&q, &["a"]).await;
        let mut lease = t.lease_for(&q, 1, LONG).await.unwrap();
        t.acknowledge(&mut lease, &done_with(b"r")).await;
        let item = ended(t, &q, &lease.items()[0].id).await;
        let mut sweeper = sweeper(&q);
        t.sweep(&mut sweeper, START + 50 * 60_000, &rules()).await;
        assert_eq!(t.run(async |tr| q.result(tr, &item).await).await, Some("r".into()));
        t.sweep(&mut sweeper, START + 70 * 60_000, &rules()).await;
        assert_eq!(t.run(async |tr| q.result(tr, &item).await).await, None);
        let kinds = kinds_of_records(t, &q).await;
        assert!(!kinds.iter().any(|kind| kind == "result" || kind == "ended"), "{kinds:?}");
    });
}
