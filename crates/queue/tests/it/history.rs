//! Ended items: each end is recorded once, in the order of time, and is found by its id until it is too old.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fdb_embedded::Faults;
use kvqueue_queue::{
    CancelFilter, Canceller, EndedItem, Ending, Failure, HistoryCursor, HistoryFilter, HistoryPage,
    ItemChange, ItemOutcome, ItemState, Kind, MAX_WORKER, NewItem, OnExpiry, Pause, Queue, Recorder,
    Recording, RetryPolicy, Session, acknowledge_together, from_millis, millis,
};

use crate::common::{
    KINDS, Millis, TestDb, at_most, k, kinds_of_records, later, on_database, record, rules, sweeper,
};
use crate::unknown::scripts;

const LONG: u64 = 3_600_000_000;
const MINUTE: Millis = 60_000;
const HOUR: Millis = 60 * MINUTE;
/// When the tests begin: at the beginning of an hour.
pub(crate) const START: Millis = 500_000 * HOUR;

/// A recorder's clock, which the test sets.
#[derive(Clone)]
pub(crate) struct Clock(Arc<AtomicU64>);

impl Clock {
    pub(crate) fn new() -> Clock {
        Clock(Arc::new(AtomicU64::new(START)))
    }

    pub(crate) fn set(&self, at: Millis) {
        self.0.store(at, Ordering::Relaxed);
    }

    pub(crate) fn recorder(&self, recording: Recording) -> Recorder {
        let clock = self.clone();
        Recorder::new(recording, Some("w".to_owned()), move || from_millis(clock.0.load(Ordering::Relaxed)))
    }
}

/// The queue with a recorder that is on.
fn recorded(queue: &Queue) -> (Queue, Clock) {
    let clock = Clock::new();
    (queue.clone().with_recorder(&clock.recorder(Recording::On)), clock)
}

pub(crate) async fn page(
    t: &TestDb,
    q: &Queue,
    filter: &HistoryFilter,
    before: Option<&HistoryCursor>,
    n: usize,
) -> HistoryPage {
    t.run(async |tr| q.history(tr, filter, before, k(n)).await).await
}

/// All ended items that match, the newest first, in pages of `n`.
pub(crate) async fn all(t: &TestDb, q: &Queue, filter: &HistoryFilter, n: usize) -> Vec<EndedItem> {
    let (mut items, mut before) = (Vec::new(), None);
    loop {
        let page = page(t, q, filter, before.as_ref(), n).await;
        assert!(page.items.len() <= n && page.unreadable == 0, "{page:?}");
        items.extend(page.items);
        // As a client sends it back.
        before = page.next.map(|next| next.to_string().parse().unwrap());
        if before.is_none() {
            return items;
        }
    }
}

async fn endings(t: &TestDb, q: &Queue) -> Vec<Ending> {
    all(t, q, &HistoryFilter::default(), 100).await.iter().map(|item| item.ending).collect()
}

fn dead() -> ItemOutcome {
    ItemOutcome::Dead(Failure::new(from_millis(1), 1, "no"))
}

#[test]
fn a_queue_without_a_recorder_keeps_no_history() {
    on_database(async |t| {
        let q = t.queue("q");
        let quiet = q.clone().with_recorder(&Clock::new().recorder(Recording::Off));
        let unset = q.clone().with_recorder(&Clock::new().recorder(Recording::AsStored));
        for q in [&q, &quiet, &unset] {
            t.push(q, &["a", "b"]).await;
            let mut lease = t.lease_for(q, 1, LONG).await.unwrap();
            t.acknowledge(&mut lease, &ItemOutcome::Done).await;
            t.run(async |tr| q.pop(tr).await).await.unwrap();
        }
        let kinds = kinds_of_records(t, &q).await;
        assert!(!kinds.iter().any(|kind| kind.starts_with("ended") || kind == "history"), "{kinds:?}");
        assert_eq!(endings(t, &q).await, []);
    });
}

#[test]
fn every_way_to_end_leaves_one_record_in_queues_of_all_kinds() {
    on_database(async |t| {
        for (i, kind) in KINDS.into_iter().enumerate() {
            let (q, clock) = recorded(&t.queue_of(format!("q{i}"), kind));
            let policy = RetryPolicy::default();
            let mut expected = Vec::new();
            let fetch = async || {
                t.push_by(&q, 1, "x").await;
                t.lease_for(&q, 1, LONG).await.unwrap()
            };
            let mut at = START;
            let mut next = |ending: Ending, id: &kvqueue_queue::ItemId| {
                expected.push((id.clone(), ending, at));
                at += 1_000;
                clock.set(at);
            };
            for (outcome, ending) in [(ItemOutcome::Done, Ending::Done), (dead(), Ending::Dead)] {
                let mut lease = fetch().await;
                t.acknowledge(&mut lease, &outcome).await;
                next(ending, &lease.items()[0].id);
            }
            // What goes on leaves no record.
            let mut lease = fetch().await;
            t.acknowledge(&mut lease, &ItemOutcome::Release).await;
            let mut lease = t.lease_for(&q, 1, LONG).await.unwrap();
            t.acknowledge(&mut lease, &later(9_999_999_999_999)).await;
            let id = lease.items()[0].id.clone();
            q.cancel_item(&t.db, &policy, &id).await.unwrap();
            next(Ending::Cancelled, &id);
            let lease = fetch().await;
            let id = lease.items()[0].id.clone();
            q.cancel_item(&t.db, &policy, &id).await.unwrap();
            next(Ending::Cancelled, &id);
            t.push_by(&q, 1, "x").await;
            let id = t.run(async |tr| q.oldest(tr).await).await.unwrap();
            q.cancel_item(&t.db, &policy, &id).await.unwrap();
            next(Ending::Cancelled, &id);
            t.push_by(&q, 1, "x").await;
            let id = t.run(async |tr| q.oldest(tr).await).await.unwrap();
            q.delete_item(&t.db, &policy, &id).await.unwrap();
            next(Ending::Cancelled, &id);
            // All at once.
            t.push_by(&q, 1, "x").await;
            let id = t.run(async |tr| q.oldest(tr).await).await.unwrap();
            let mut canceller = Canceller::new(q.clone(), CancelFilter::default());
            while canceller.page(&t.db, &policy).await.unwrap().is_some() {}
            next(Ending::Cancelled, &id);
            t.push_by(&q, 1, "x").await;
            let item = t.run(async |tr| q.pop(tr).await).await.unwrap();
            next(Ending::Taken, &item.id);
            t.push_by(&q, 1, "x").await;
            let taken = Session::new(q.clone()).take(&t.db, k(1)).await.unwrap();
            next(Ending::Taken, &taken.got[0].id);
            t.push_by(&q, 1, "x").await;
            let lease = t.lease_for(&q, 1, 1).await.unwrap();
            t.sweep_leases(&q, 1, &at_most(1)).await;
            next(Ending::Dead, &lease.items()[0].id);
            let found = all(t, &q, &HistoryFilter::default(), 3).await;
            let found: Vec<_> =
                found.into_iter().map(|item| (item.id, item.ending, millis(item.ended))).rev().collect();
            assert_eq!(found, expected, "{kind:?}");
            for (id, ending, at) in &expected {
                let item = t.run(async |tr| q.ended_item(tr, id).await).await.unwrap();
                assert_eq!((&item.id, item.ending, millis(item.ended)), (id, *ending, *at), "{kind:?}");
            }
        }
    });
}

#[test]
fn an_item_that_expires_is_recorded_once_wherever_it_is() {
    on_database(async |t| {
        for (i, kind) in KINDS.into_iter().enumerate() {
            for (on_expiry, ending) in [(OnExpiry::Drop, Ending::Expired), (OnExpiry::Dead, Ending::Dead)] {
                let (q, clock) = recorded(&t.queue_of(format!("{i}{on_expiry:?}"), kind));
                let item = |payload: &str| NewItem::new(payload.to_owned()).with_expiry(from_millis(START));
                t.push_items(&q, &[item("held")]).await;
                let mut held = t.lease_for(&q, 1, LONG).await.unwrap();
                let scheduled = item("scheduled").with_due(from_millis(START - 1));
                let pushed = t.push_items(&q, &[item("ready"), scheduled]).await;
                clock.set(START + 1);
                t.jump(3_000_000);
                let rules = rules().with_on_expiry(on_expiry);
                // It is not due yet, so that it expires as a scheduled item.
                let swept = t.sweep(&mut sweeper(&q), START, &rules).await.moved;
                assert_eq!(swept.expired, 2, "{kind:?}");
                let outcome = ItemOutcome::Expired { at: from_millis(START), on_expiry };
                t.acknowledge(&mut held, &outcome).await;
                let mut expected: Vec<_> = pushed.each().map(|item| (item.id.unwrap(), ending, 0)).collect();
                expected.push((held.items()[0].id.clone(), ending, 0));
                expected.sort_by(|a, b| a.0.cmp(&b.0));
                let found = all(t, &q, &HistoryFilter::default(), 3).await;
                let mut found: Vec<_> =
                    found.into_iter().map(|item| (item.id, item.ending, item.attempts)).collect();
                found.sort_by(|a, b| a.0.cmp(&b.0));
                assert_eq!(found, expected, "{kind:?}");
            }
        }
    });
}

#[test]
fn changes_that_end_no_item_leave_no_record() {
    on_database(async |t| {
        for (i, kind) in KINDS.into_iter().enumerate() {
            let (q, _) = recorded(&t.queue_of(format!("q{i}"), kind));
            let (db, policy) = (&t.db, RetryPolicy::default());
            t.push_by(&q, 1, "x").await;
            let id = t.run(async |tr| q.oldest(tr).await).await.unwrap();
            let done =
                |change: ItemChange| assert!(matches!(change, ItemChange::Done(_)), "{kind:?}: {change:?}");
            done(q.edit_item(db, &policy, &id, b"y").await.unwrap());
            done(q.reschedule_item(db, &policy, &id, Some(from_millis(START))).await.unwrap());
            done(q.retry_item(db, &policy, &id).await.unwrap());
            let mut lease = t.lease_for(&q, 1, LONG).await.unwrap();
            t.acknowledge(&mut lease, &later(9_999_999_999_999)).await;
            done(q.retry_item(db, &policy, &id).await.unwrap());
            t.lease_for(&q, 1, 1).await.unwrap();
            t.sweep_leases(&q, 1, &rules()).await;
            done(q.reschedule_item(db, &policy, &id, None).await.unwrap());
            assert_eq!(endings(t, &q).await, [], "{kind:?}");
            let mut lease = t.lease_for(&q, 1, LONG).await.unwrap();
            t.acknowledge(&mut lease, &dead()).await;
            done(q.edit_item(db, &policy, &id, b"z").await.unwrap());
            q.retry_dead(db, &policy, &id).await.unwrap();
            let mut lease = t.lease_for(&q, 1, LONG).await.unwrap();
            t.acknowledge(&mut lease, &dead()).await;
            q.purge_dead(db, &policy, &id).await.unwrap();
            assert_eq!(endings(t, &q).await, [Ending::Dead, Ending::Dead], "{kind:?}");
        }
    });
}

#[test]
fn items_that_are_cancelled_together_in_any_state_are_recorded_once() {
    on_database(async |t| {
        for (i, kind) in KINDS.into_iter().enumerate() {
            let (q, clock) = recorded(&t.queue_of(format!("q{i}"), kind));
            t.fill(&q, &["a", "b", "c", "d", "e"]).await;
            let mut ids: Vec<_> =
                t.run(async |tr| q.list(tr).await).await.into_iter().map(|it| it.id).collect();
            let mut retrying = t.lease_for(&q, 1, LONG).await.unwrap();
            t.acknowledge(&mut retrying, &later(9_999_999_999_999)).await;
            let (mut lease, expired) =
                (t.lease_for(&q, 2, LONG).await.unwrap(), t.lease_for(&q, 1, 1).await.unwrap());
            assert_eq!((lease.items().len(), expired.items().len()), (2, 1));
            let mut canceller = Canceller::new(q.clone(), CancelFilter::default());
            while canceller.page(&t.db, &RetryPolicy::default()).await.unwrap().is_some() {}
            // Their holders learn of it. Neither they nor the sweeper record the ends once more.
            clock.set(START + HOUR);
            t.acknowledge(&mut lease, &ItemOutcome::Done).await;
            t.sweep_leases(&q, 0, &at_most(1)).await;
            let found = all(t, &q, &HistoryFilter::default(), 2).await;
            assert!(
                found.iter().all(|item| (item.ending, item.ended) == (Ending::Cancelled, from_millis(START))),
                "{found:?}"
            );
            let mut cancelled: Vec<_> = found.into_iter().map(|item| item.id).collect();
            ids.sort();
            cancelled.sort();
            assert_eq!(cancelled, ids, "{kind:?}");
        }
    });
}

#[test]
fn a_worker_that_a_lease_names_is_recorded_with_a_bounded_name() {
    on_database(async |t| {
        let (q, _) = recorded(&t.queue("q"));
        t.push(&q, &["a", "b", "c"]).await;
        for name in ["somebody".to_owned(), format!("a{}", "\u{e4}".repeat(MAX_WORKER))] {
            let mut lease = t.lease_for(&q, 1, LONG).await.unwrap();
            lease.note_worker(|| name);
            t.acknowledge(&mut lease, &ItemOutcome::Done).await;
        }
        let quiet = q.clone().with_recorder(&Clock::new().recorder(Recording::Off));
        let mut lease = t.lease_for(&quiet, 1, LONG).await.unwrap();
        lease.note_worker(|| panic!("the name is not needed"));
        t.acknowledge(&mut lease, &ItemOutcome::Done).await;
        let found = all(t, &q, &HistoryFilter::default(), 9).await;
        let workers: Vec<_> = found.iter().map(|item| item.worker.as_deref().unwrap()).collect();
        let cut = format!("a{}", "\u{e4}".repeat((MAX_WORKER - 1) / 2));
        assert_eq!(workers, [&*cut, "somebody"]);
        assert_eq!(found[0].started, Some(from_millis(START)));
    });
}

#[test]
fn a_record_tells_the_times_the_attempts_the_worker_the_reason_and_the_attributes() {
    on_database(async |t| {
        let (q, clock) = recorded(&t.queue("q"));
        let pushed = NewItem::new("x").with_attribute("k", "v").with_enqueued_at(from_millis(START - 7));
        t.push_items(&q, &[pushed, NewItem::new("y")]).await;
        let mut lease = t.lease_for(&q, 2, LONG).await.unwrap();
        clock.set(START + 5);
        let failure = Failure::new(from_millis(START + 4), 1, "no luck");
        let outcomes = [(0, ItemOutcome::Dead(failure)), (1, ItemOutcome::Done)];
        lease.acknowledge(&t.db, &RetryPolicy::default(), &outcomes).await.unwrap();
        let items = all(t, &q, &HistoryFilter::default(), 9).await;
        let [done, dead] = &items[..] else { panic!("{items:?}") };
        assert_eq!((dead.ending, dead.attempts, dead.reason.as_deref()), (Ending::Dead, 1, Some("no luck")));
        let [pushed, started, ended] = [START - 7, START, START + 5].map(from_millis);
        assert_eq!((dead.pushed, dead.started, dead.ended), (Some(pushed), Some(started), ended));
        assert_eq!((dead.worker.as_deref(), dead.attributes["k"].as_str()), (Some("w"), "v"));
        assert_eq!((done.ending, done.attempts, done.reason.as_deref()), (Ending::Done, 1, None));
        // By the versions, which the embedded engine advances with the clock.
        let age = done.ended.duration_since(done.pushed.unwrap()).unwrap();
        assert!(age < Duration::from_mins(1), "{age:?}");
        assert!(done.attributes.is_empty() && done.worker.as_deref() == Some("w"));
        // A dead letter that is retried ends once more, at its second attempt.
        let id = dead.id.clone();
        q.retry_item(&t.db, &RetryPolicy::default(), &id).await.unwrap();
        let mut lease = t.lease_for(&q, 1, LONG).await.unwrap();
        t.acknowledge(&mut lease, &later(1)).await;
        t.sweep(&mut sweeper(&q), 2, &rules()).await;
        let mut lease = t.lease_for(&q, 1, LONG).await.unwrap();
        t.acknowledge(&mut lease, &ItemOutcome::Done).await;
        let last = t.run(async |tr| q.ended_item(tr, &id).await).await.unwrap();
        assert_eq!((last.ending, last.attempts), (Ending::Done, 2));
        assert_eq!(endings(t, &q).await, [Ending::Done, Ending::Done, Ending::Dead]);
    });
}

#[test]
fn an_end_of_unknown_outcome_is_recorded_once_in_queues_of_all_kinds() {
    on_database(async |t| {
        let scripts: Vec<_> = scripts().into_iter().filter(|script| script.len() < 3).collect();
        for (i, (kind, script)) in
            KINDS.into_iter().flat_map(|kind| scripts.iter().map(move |script| (kind, script))).enumerate()
        {
            let (q, _) = recorded(&t.queue_of(format!("q{i}"), kind));
            t.fill(&q, &["a", "b", "c", "d", "e"]).await;
            let mut lease = t.lease_for(&q, 2, LONG).await.unwrap();
            let policy = RetryPolicy::default();
            let faults = || t.install(Faults::script(script.clone()));
            if !faults() {
                return;
            }
            lease.acknowledge(&t.db, &policy, &[(0, ItemOutcome::Done), (1, dead())]).await.unwrap();
            t.end_faults();
            let id = t.run(async |tr| q.oldest(tr).await).await.unwrap();
            faults();
            q.cancel_item(&t.db, &policy, &id).await.unwrap();
            t.end_faults();
            let mut session = Session::new(q.clone());
            faults();
            let mut taken = session.take(&t.db, k(1)).await.unwrap().got;
            t.end_faults();
            let mut one = vec![(t.lease_for(&q, 1, LONG).await.unwrap(), vec![(0, ItemOutcome::Done)])];
            faults();
            for result in acknowledge_together(&t.db, &policy, &mut one).await {
                result.unwrap();
            }
            t.end_faults();
            let found = all(t, &q, &HistoryFilter::default(), 2).await;
            let mut ids: Vec<_> = found.iter().map(|item| item.id.clone()).collect();
            let mut expected: Vec<_> = lease.items().iter().map(|item| item.id.clone()).collect();
            expected.extend([id, taken.pop().unwrap().id, one[0].0.items()[0].id.clone()]);
            ids.sort();
            expected.sort();
            assert_eq!(ids, expected, "{kind:?} {script:?}");
            let ends: Vec<_> = found.iter().rev().map(|item| item.ending).collect();
            assert_eq!(&ends[2..], [Ending::Cancelled, Ending::Taken, Ending::Done], "{kind:?} {script:?}");
        }
    });
}

#[test]
fn pages_meet_at_the_borders_of_groups_and_filters_apply_to_them() {
    on_database(async |t| {
        let (q, clock) = recorded(&t.queue("q"));
        // Groups of five, a minute and a half apart: long ones fill several rows.
        for group in 0..6_u64 {
            clock.set(START + group * 90_000);
            let item = |n: u64| {
                let parity = ["even", "odd"][(n % 2) as usize];
                NewItem::new("x").with_attribute("parity", parity).with_attribute("n", n.to_string())
            };
            let item =
                |n| if group == 3 { item(n).with_attribute("long", "l".repeat(5_000)) } else { item(n) };
            t.push_items(&q, &(0..5).map(|n| item(5 * group + n)).collect::<Vec<_>>()).await;
            let mut lease = t.lease_for(&q, 5, LONG).await.unwrap();
            let outcome = if group == 4 { dead() } else { ItemOutcome::Done };
            t.acknowledge(&mut lease, &outcome).await;
        }
        let numbers = |items: &[EndedItem]| -> Vec<u64> {
            items.iter().map(|item| item.attributes["n"].parse().unwrap()).collect()
        };
        let of = async |filter: &HistoryFilter, n| numbers(&all(t, &q, filter, n).await);
        let none = HistoryFilter::default();
        let newest: Vec<u64> = (0..30).rev().collect();
        assert!(t.records(&q, "ended").await.len() > 6);
        for n in [1, 2, 4, 5, 6, 10, 29, 30, 31] {
            assert_eq!(of(&none, n).await, newest, "pages of {n}");
        }
        let filter = HistoryFilter { ending: Some(Ending::Dead), ..none.clone() };
        assert_eq!(of(&filter, 2).await, [24, 23, 22, 21, 20]);
        let attributes = vec![("parity".to_owned(), "odd".to_owned())];
        let filter = HistoryFilter { attributes, ..filter };
        assert_eq!(of(&filter, 1).await, [23, 21]);
        let [since, until] = [START + 90_000, START + 3 * 90_000].map(|at| Some(from_millis(at)));
        let filter = HistoryFilter { since, until, ..none.clone() };
        assert_eq!(of(&filter, 3).await, (5..15).rev().collect::<Vec<_>>());
        // The third group ended as a minute began.
        for (until, n) in [(3 * MINUTE, 10), (3 * MINUTE + 1, 15)] {
            let filter = HistoryFilter { until: Some(from_millis(START + until)), ..none.clone() };
            assert_eq!(of(&filter, 7).await, (0..n).rev().collect::<Vec<_>>());
        }
        let filter = HistoryFilter {
            since: Some(from_millis(START + 90_001)),
            until: Some(from_millis(START + 90_001)),
            ..none.clone()
        };
        assert_eq!(of(&filter, 3).await, []);
        let filter = HistoryFilter { schedule: Some("s".to_owned()), ..none };
        assert_eq!(of(&filter, 3).await, []);
    });
}

#[test]
fn a_page_reads_a_bounded_part_of_a_history_in_which_nothing_matches() {
    on_database(async |t| {
        let (q, _) = recorded(&t.queue("q"));
        let item = NewItem::new("x").with_attribute("long", "l".repeat(10_000));
        for _ in 0..4 {
            t.push_items(&q, &vec![item.clone(); 50]).await;
            let mut lease = t.lease_for(&q, 50, LONG).await.unwrap();
            t.acknowledge(&mut lease, &ItemOutcome::Done).await;
        }
        let filter = HistoryFilter { ending: Some(Ending::Taken), ..HistoryFilter::default() };
        let first = page(t, &q, &filter, None, 10).await;
        assert!(first.items.is_empty() && first.next.is_some());
        let second = page(t, &q, &filter, first.next.as_ref(), 10).await;
        assert!(second.items.is_empty() && second.next != first.next);
        assert_eq!(all(t, &q, &filter, 10).await, []);
        assert_eq!(all(t, &q, &HistoryFilter::default(), 7).await.len(), 200);
    });
}

#[test]
fn items_of_many_pushes_and_partitions_are_found_by_their_ids() {
    on_database(async |t| {
        let (q, clock) = recorded(&t.queue("q"));
        let partitions = kvqueue_queue::Partitions::new(3, Duration::ZERO).unwrap();
        t.run(async |tr| q.set_partitions(tr, partitions).await).await;
        let mut ids = Vec::new();
        for n in 0..12_u64 {
            clock.set(START + n * 17 * MINUTE);
            t.push(&q, &["x"; 130]).await;
            let mut lease = t.lease_for(&q, 130, LONG).await.unwrap();
            ids.extend(lease.items().iter().map(|item| item.id.clone()));
            t.acknowledge(&mut lease, &ItemOutcome::Done).await;
        }
        assert!(ids.iter().any(|id| id.partition() > 0));
        for id in ids.iter().step_by(3) {
            let item = t.run(async |tr| q.ended_item(tr, id).await).await.unwrap();
            assert_eq!(&item.id, id);
        }
        // One that was never there.
        let id = "000000000000000100020003".parse().unwrap();
        assert_eq!(t.run(async |tr| q.ended_item(tr, &id).await).await, None);
    });
}

#[test]
fn an_item_is_looked_for_in_hours_from_a_day_before_its_push_on() {
    on_database(async |t| {
        let (q, clock) = recorded(&t.queue("q"));
        let month = START + 30 * 24 * HOUR;
        // A sweeper had read a version below all of these at this time.
        let times = [&[1][..], &t.version().await.to_le_bytes(), &month.to_le_bytes()].concat();
        t.run(async |tr| {
            tr.set(&record(&q, "times", b""), &times);
            Ok(())
        })
        .await;
        // The clocks of processes that end items may be slow.
        for (ended, is_found) in [(month + HOUR, true), (month - 23 * HOUR, true), (START, false)] {
            clock.set(ended);
            t.push(&q, &["x"]).await;
            let mut lease = t.lease_for(&q, 1, LONG).await.unwrap();
            t.acknowledge(&mut lease, &ItemOutcome::Done).await;
            let id = &lease.items()[0].id;
            let found = t.run(async |tr| q.ended_item(tr, id).await).await;
            assert_eq!(found.map(|item| item.ended), is_found.then_some(ended).map(from_millis));
        }
    });
}

#[test]
fn a_stored_setting_turns_the_history_on_and_old_items_are_cleared_by_the_sweeper() {
    on_database(async |t| {
        let clock = Clock::new();
        let q = t.queue("q").with_recorder(&clock.recorder(Recording::AsStored));
        let day = Duration::from_hours(24);
        assert!(t.run(async |tr| q.keep_history(tr, day).await).await);
        assert!(!t.run(async |tr| q.keep_history(tr, day).await).await);
        // The setting makes no queue.
        assert!(!t.run(async |tr| q.exists(tr).await).await);
        let names = t.run(async |tr| kvqueue_queue::queues(tr, &t.prefix).await).await;
        assert_eq!(names, [[0_u8; 0]; 0]);
        let mut ids = Vec::new();
        for hour in 0..30 {
            clock.set(START + hour * HOUR + MINUTE);
            t.push(&q, &["x"]).await;
            ids.push(t.run(async |tr| q.pop(tr).await).await.unwrap().id);
        }
        let found = async |id: &kvqueue_queue::ItemId| t.run(async |tr| q.ended_item(tr, id).await).await;
        assert_eq!(all(t, &q, &HistoryFilter::default(), 100).await.len(), 30);
        let mut sweeper = sweeper(&q);
        t.sweep(&mut sweeper, START + 30 * HOUR, &rules()).await;
        assert_eq!(all(t, &q, &HistoryFilter::default(), 100).await.len(), 24);
        assert!(found(&ids[5]).await.is_none() && found(&ids[6]).await.is_some());
        let rows = t.rows().await;
        // Within the hour nothing is written for it.
        t.sweep(&mut sweeper, START + 31 * HOUR - MINUTE, &rules()).await;
        let ended = |rows: &[(Vec<u8>, Vec<u8>)]| crate::common::records(rows, &q, "ended").len();
        assert_eq!(ended(&t.rows().await), ended(&rows));
        t.sweep(&mut sweeper, START + 31 * HOUR, &rules()).await;
        assert_eq!(ended(&t.rows().await), 23);
        // Turned off, it is gone, and so is the setting.
        assert!(t.run(async |tr| q.keep_history(tr, Duration::ZERO).await).await);
        assert_eq!(t.run(async |tr| q.history_kept(tr).await).await, None);
        t.push(&q, &["x"]).await;
        t.run(async |tr| q.pop(tr).await).await.unwrap();
        t.sweep(&mut sweeper, START + 31 * HOUR, &rules()).await;
        let kinds = kinds_of_records(t, &q).await;
        assert!(!kinds.iter().any(|kind| kind.starts_with("ended") || kind == "history"), "{kinds:?}");
        assert!(!t.run(async |tr| q.keep_history(tr, Duration::ZERO).await).await);
        // A process that goes on recording leaves rows without a setting. Storing the setting again clears them.
        let recording = q.clone().with_recorder(&Clock::new().recorder(Recording::On));
        t.push(&recording, &["x"]).await;
        t.run(async |tr| recording.pop(tr).await).await.unwrap();
        assert!(t.run(async |tr| q.keep_history(tr, Duration::ZERO).await).await);
        t.sweep(&mut sweeper, START + 62 * HOUR, &rules()).await;
        let kinds = kinds_of_records(t, &q).await;
        assert!(!kinds.iter().any(|kind| kind.starts_with("ended") || kind == "history"), "{kinds:?}");
    });
}

#[test]
fn the_setting_of_a_frozen_queue_does_not_change() {
    on_database(async |t| {
        let q = t.queue("q");
        let pause = Pause { frozen: true, ..Pause::default() };
        t.run(async |tr| {
            q.pause(tr, &pause);
            Ok(())
        })
        .await;
        let tr = t.db.create_trx().unwrap();
        q.keep_history(&tr, Duration::from_hours(1)).await.unwrap_err();
    });
}

#[test]
fn a_transaction_that_ends_items_twice_records_both() {
    on_database(async |t| {
        let (q, _) = recorded(&t.queue_of("q", Kind::Fifo));
        t.push(&q, &["a", "b", "c"]).await;
        t.run(async |tr| {
            q.pop(tr).await?;
            q.pop(tr).await
        })
        .await;
        assert_eq!(endings(t, &q).await, [Ending::Taken; 2]);
        let left = t.run(async |tr| q.view(tr, ItemState::Ready, None, k(9)).await).await;
        assert_eq!(left.items.len(), 1);
    });
}
