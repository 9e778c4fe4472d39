//! Schedules: firing, missed occurrences, history, and queues that have schedules.

use std::collections::BTreeSet;
use std::time::Duration;

use fdb_embedded::Faults;
use foundationdb::tuple::{Bytes, pack};
use kvqueue_queue::schedule::{MissReason, Missed, MissedPolicy, Outcome, PutEffect, ScheduleError};
use kvqueue_queue::{
    ItemId, Kind, NewItem, Partitions, Pause, QueueError, RetryPolicy, from_millis, migration, queues,
};

use crate::common::gate::overlaps;
use crate::common::rules;
use crate::common::schedules::{HOUR, MINUTE, fired, schedule, scheduler, span};
use crate::common::{KINDS, k, on_database};
use crate::unknown::scripts;

fn policy() -> RetryPolicy {
    RetryPolicy::default()
}

fn missed(policy: MissedPolicy, window: Option<u64>, most: u32) -> Missed {
    Missed { policy, window: window.map(Duration::from_millis), most }
}

#[test]
fn a_schedule_pushes_an_item_at_each_of_its_times() {
    on_database(async |t| {
        for (i, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{i}"), kind);
            let mut one = schedule("s", MINUTE);
            one.item = NewItem::new("v").with_attribute("k", "w").with_content_type("text/plain");
            if kind == Kind::Keyed {
                one.item = one.item.with_key("tenant");
            }
            assert_eq!(t.put(&q, &one, MINUTE / 2).await, PutEffect::Created);
            let look = t.look(&q, MINUTE - 1).await;
            assert_eq!((look.occurrences.len(), look.next), (0, Some(MINUTE)));
            for n in 1..=3 {
                let look = t.look(&q, n * MINUTE + 5).await;
                assert_eq!((look.fired(), look.next), (vec![n * MINUTE], Some((n + 1) * MINUTE)), "{kind}");
                let again = t.look(&q, n * MINUTE + 6).await;
                assert_eq!(again.occurrences, [], "{kind}");
            }
            let items = t.run(async |tr| q.list(tr).await).await;
            let history = t.schedule_history(&q, "s").await;
            assert_eq!((items.len(), fired(&history)), (3, vec![MINUTE, 2 * MINUTE, 3 * MINUTE]), "{kind}");
            for (n, record) in (1..).zip(&history) {
                let item = items.iter().find(|item| record.outcome.id() == Some(&item.id)).unwrap();
                let meta = item.meta.as_ref().unwrap();
                assert_eq!(item.payload, "v");
                assert_eq!(meta.content_type.as_deref(), Some("text/plain"));
                assert_eq!(meta.enqueued_at, Some(from_millis(n * MINUTE + 5)));
                let attributes = ["schedule", "schedule-time", "schedule-occurrence", "k"];
                let of = attributes.map(|name| meta.attributes[name].clone());
                assert_eq!(of, ["s".to_owned(), (n * MINUTE).to_string(), n.to_string(), "w".to_owned()]);
            }
            let state = t.schedule_state(&q, "s").await;
            assert_eq!(state.last, history[2].outcome.id().map(|id| (from_millis(3 * MINUTE), id.clone())));
            assert_eq!((state.occurrences, state.next), (3, Some(from_millis(4 * MINUTE))));
        }
    });
}

#[test]
fn each_occurrence_fires_once_under_unknown_outcomes() {
    on_database(async |t| {
        for (i, script) in scripts().into_iter().enumerate() {
            let q = t.queue_of(format!("q{i}"), KINDS[i % KINDS.len()]);
            t.put(&q, &schedule("s", MINUTE), 0).await;
            if !t.install(Faults::script(script.clone())) {
                return;
            }
            let look = t.look(&q, MINUTE).await;
            t.end_faults();
            assert_eq!(look.fired(), [MINUTE], "{script:?}");
            assert_eq!(t.list(&q).await.len(), 1, "{script:?}");
            assert_eq!(fired(&t.schedule_history(&q, "s").await), [MINUTE], "{script:?}");
        }
    });
}

#[test]
fn of_two_sweeps_at_the_same_time_one_fires() {
    on_database(async |t| {
        let q = t.queue("q");
        t.put(&q, &schedule("s", MINUTE), 0).await;
        let Some(gate) = t.close_gate() else { return };
        let (late, early) = (t.look(&q, MINUTE), t.look(&q, MINUTE + 1));
        let (conflicted, late, early) = overlaps(gate, late, early).await;
        assert_eq!((conflicted, late.fired(), early.fired()), (true, vec![], vec![MINUTE]));
        assert_eq!(t.list(&q).await.len(), 1);
    });
}

#[test]
fn a_removed_or_paused_schedule_does_not_fire_by_a_sweep_that_overlaps() {
    on_database(async |t| {
        let q = t.queue("q");
        for name in ["removed", "paused"] {
            t.put(&q, &schedule(name, MINUTE), 0).await;
            let Some(gate) = t.close_gate() else { return };
            let change = async {
                match name {
                    "removed" => assert!(t.run(async |tr| q.remove_schedule(tr, name).await).await),
                    _ => assert_eq!(
                        t.run(async |tr| q.pause_schedule(tr, name, from_millis(7)).await).await,
                        Some(true)
                    ),
                }
            };
            let (conflicted, look, ()) = overlaps(gate, t.look(&q, MINUTE), change).await;
            assert_eq!((conflicted, look.occurrences.len(), t.list(&q).await.len()), (true, 0, 0), "{name}");
        }
    });
}

#[test]
fn missed_occurrences_fire_by_their_policy_and_are_recorded() {
    on_database(async |t| {
        let q = t.queue("q");
        let fired_of = async |name: &str, missed: Missed| {
            let mut one = schedule(name, MINUTE);
            one.missed = missed;
            t.put(&q, &one, 0).await;
            // The daemon is back after an hour.
            t.look(&q, HOUR + 1).await;
            let history = t.schedule_history(&q, name).await;
            let accounted: u64 = history.iter().map(|record| record.count).sum();
            assert_eq!(accounted, 60, "{name}: {history:?}");
            let reasons = history.iter().filter_map(|record| match record.outcome {
                Outcome::Missed(reason) => {
                    let (from, to) = span(record);
                    Some((reason, from / MINUTE, to / MINUTE))
                }
                _ => None,
            });
            (fired(&history).len(), reasons.collect::<Vec<_>>())
        };
        let policy = |policy| missed(policy, None, 100);
        let rest = vec![(MissReason::Policy, 1, 59)];
        assert_eq!(fired_of("skip", policy(MissedPolicy::Skip)).await, (1, rest.clone()));
        assert_eq!(fired_of("once", policy(MissedPolicy::Once)).await, (1, rest));
        assert_eq!(fired_of("all", policy(MissedPolicy::All)).await, (60, vec![]));
        let bounded = missed(MissedPolicy::All, Some(10 * MINUTE + 1), 3);
        let reasons = vec![(MissReason::Window, 1, 49), (MissReason::Maximum, 50, 57)];
        assert_eq!(fired_of("bounded", bounded).await, (3, reasons));
    });
}

#[test]
fn a_year_of_missed_seconds_is_one_record() {
    on_database(async |t| {
        let q = t.queue("q");
        t.put(&q, &schedule("s", 1_000), 0).await;
        let year = 365 * 24 * HOUR;
        t.look(&q, year).await;
        let history = t.schedule_history(&q, "s").await;
        assert_eq!((history.len(), fired(&history)), (2, vec![year]));
        assert_eq!(span(&history[0]), (1_000, year - 1_000));
        assert_eq!((history[0].count, history[0].is_exact), (year / 1_000 - 1, true));
    });
}

#[test]
fn one_sweep_fires_more_than_a_transaction_holds() {
    on_database(async |t| {
        let q = t.queue("q");
        for n in 0..120 {
            t.put(&q, &schedule(&format!("s{n}"), MINUTE), 0).await;
        }
        let mut catching_up = schedule("catching up", 1_000);
        catching_up.missed = missed(MissedPolicy::All, None, 250);
        t.put(&q, &catching_up, 0).await;
        let look = t.look(&q, 300_000).await;
        assert!(look.unusable.is_empty() && look.next > Some(300_000));
        assert_eq!(t.len(&q).await, 120 + 250);
        let times = fired(&t.schedule_history(&q, "catching up").await);
        assert_eq!(times, (51..=300).map(|n| n * 1_000).collect::<Vec<_>>());
    });
}

#[test]
fn the_history_of_a_schedule_is_bounded_and_has_pages() {
    on_database(async |t| {
        let q = t.queue("q");
        let mut one = schedule("s", 1_000);
        one.missed = missed(MissedPolicy::All, None, 1_000);
        t.put(&q, &one, 0).await;
        t.look(&q, 1_000_000).await;
        t.look(&q, 1_100_000).await;
        let history = t.schedule_history(&q, "s").await;
        assert_eq!((history.len(), history[0].number, history[999].number), (1_000, 100, 1_099));
        let page = t.run(async |tr| q.schedule_history(tr, "s", Some(1_000), k(10)).await).await;
        assert!(page.iter().map(|record| record.number).eq((990..1_000).rev()));
    });
}

#[test]
fn schedules_of_a_frozen_queue_neither_fire_nor_change() {
    on_database(async |t| {
        let q = t.queue("q");
        t.put(&q, &schedule("s", MINUTE), 0).await;
        t.run(async |tr| {
            q.pause(tr, &Pause { frozen: true, ..Pause::default() });
            Ok(())
        })
        .await;
        let before = t.rows().await;
        let swept = scheduler(&q).sweep(&t.db, &|| from_millis(MINUTE), &rules()).await.unwrap();
        let refused = swept.trouble.unwrap();
        assert!(refused.error.frozen().is_some(), "{refused}");
        let refused = q.fire_schedule(&t.db, &policy(), "s", from_millis(1), None).await.unwrap_err();
        assert!(refused.error.frozen().is_some(), "{refused}");
        let error = t.try_put(&q, &schedule("t", MINUTE), 0).await.unwrap_err();
        assert!(matches!(error, ScheduleError::Queue(QueueError::Frozen { .. })), "{error}");
        assert_eq!(t.put(&q, &schedule("s", MINUTE), 0).await, PutEffect::Unchanged);
        let tr = t.db.create_trx().unwrap();
        assert!(q.remove_schedule(&tr, "s").await.unwrap_err().frozen().is_some());
        assert!(q.pause_schedule(&tr, "s", from_millis(0)).await.unwrap_err().frozen().is_some());
        assert_eq!(t.rows().await, before);
    });
}

#[test]
fn a_paused_queue_gets_the_items_of_its_schedules() {
    on_database(async |t| {
        let q = t.queue("q");
        t.put(&q, &schedule("s", MINUTE), 0).await;
        t.run(async |tr| {
            q.pause(tr, &Pause::default());
            Ok(())
        })
        .await;
        t.look(&q, MINUTE).await;
        assert_eq!(t.len(&q).await, 1);
    });
}

#[test]
fn a_queue_with_nothing_but_a_schedule_exists_is_copied_and_is_deleted() {
    on_database(async |t| {
        let q = t.queue("q");
        t.put(&q, &schedule("s", MINUTE), 0).await;
        let names = async || t.run(async |tr| queues(tr, &t.prefix).await).await;
        assert_eq!(names().await, [b"q".to_vec()]);
        assert!(t.run(async |tr| q.exists(tr).await).await);
        t.look(&q, MINUTE).await;
        let page = t.run(async |tr| migration::page(&q, tr, b"").await).await;
        for record in ["schedule", "schedule-state", "schedule-due", "schedule-log"] {
            assert_eq!(t.records(&q, record).await.len(), 1, "{record}");
            let key = pack(&(Bytes::from(&b"q"[..]), Bytes::from(record.as_bytes())));
            let key = [t.prefix.as_slice(), &key].concat();
            assert!(page.rows.iter().any(|(row, _)| row.starts_with(&key)), "{record}");
        }
        t.run(async |tr| {
            q.delete(tr);
            Ok(())
        })
        .await;
        assert_eq!(t.rows().await, []);
        let look = t.look(&q, HOUR).await;
        assert_eq!((look.occurrences, look.next), (vec![], None));
        assert_eq!(t.rows().await, []);
    });
}

#[test]
fn jitter_moves_a_schedule_by_a_fixed_time() {
    on_database(async |t| {
        let q = t.queue("q");
        let mut one = schedule("s", HOUR);
        one.jitter = Duration::from_secs(600);
        t.put(&q, &one, 1).await;
        let due = t.first_row(&q).await.unwrap();
        assert_eq!(from_millis(due), from_millis(HOUR) + one.offset(q.name()));
        assert!((HOUR + 1..HOUR + 600_000).contains(&due), "{due}");
        assert_eq!(t.look(&q, due - 1).await.fired(), []);
        let look = t.look(&q, due).await;
        assert_eq!((look.fired(), look.next), (vec![HOUR], Some(due + HOUR)));
    });
}

#[test]
fn a_queue_without_schedules_stores_nothing_for_them() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["a"]).await;
        let before = t.rows().await;
        let look = t.look(&q, HOUR).await;
        assert_eq!((look.occurrences, look.next), (vec![], None));
        assert_eq!(t.rows().await, before);
    });
}

#[test]
fn items_of_a_schedule_go_to_all_partitions_and_their_records_name_them() {
    on_database(async |t| {
        let q = t.queue("q");
        let partitions = Partitions::new(8, Duration::ZERO).unwrap();
        t.run(async |tr| q.set_partitions(tr, partitions).await).await;
        let mut one = schedule("s", 1_000);
        one.missed = missed(MissedPolicy::All, None, 1_000);
        t.put(&q, &one, 0).await;
        t.look(&q, 900_000).await;
        let stored: BTreeSet<_> =
            t.run(async |tr| q.list(tr).await).await.into_iter().map(|item| item.id).collect();
        let history = t.schedule_history(&q, "s").await;
        let recorded: BTreeSet<_> =
            history.iter().filter_map(|record| record.outcome.id().cloned()).collect();
        assert_eq!((stored.len(), &recorded), (900, &stored));
        let used: BTreeSet<_> = stored.iter().map(ItemId::partition).collect();
        assert!(used.len() > 1, "{used:?}");
    });
}
