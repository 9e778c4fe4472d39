//! Changing schedules: definitions, owners, pauses; and what cannot be read.

use std::collections::BTreeSet;
use std::time::Duration;

use fdb_embedded::Faults;
use foundationdb::tuple::{Bytes, pack};
use kvqueue_queue::schedule::{
    ByHand, Calendar, MAX_SCHEDULES, Outcome, Overlap, PutEffect, ScheduleError, SkipReason,
};
use kvqueue_queue::{Kind, NewItem, Queue, RetryPolicy, from_millis};

use crate::common::rules;
use crate::common::schedules::{HOUR, MINUTE, every, fired, schedule, scheduler, span};
use crate::common::{KINDS, TestDb, k, on_database};
use crate::unknown::scripts;

const LEASE: Duration = Duration::from_secs(30);

fn policy() -> RetryPolicy {
    RetryPolicy::default()
}

#[test]
fn the_same_definition_keeps_the_state_and_another_calendar_goes_on_from_now() {
    on_database(async |t| {
        let q = t.queue("q");
        let one = schedule("s", MINUTE);
        t.put(&q, &one, 0).await;
        t.look(&q, MINUTE).await;
        let before = t.rows().await;
        // A daemon that starts in the middle of an outage does not swallow what was missed.
        assert_eq!(t.put(&q, &one, 5 * MINUTE).await, PutEffect::Unchanged);
        assert_eq!(t.rows().await, before);

        let mut payload = one.clone();
        payload.item = NewItem::new("other");
        assert_eq!(t.put(&q, &payload, 5 * MINUTE).await, PutEffect::Replaced { calendar: false });
        assert_eq!(t.schedule_state(&q, "s").await.next, Some(from_millis(2 * MINUTE)));

        let mut calendar = payload.clone();
        calendar.calendar = every(HOUR);
        assert_eq!(t.put(&q, &calendar, 5 * MINUTE).await, PutEffect::Replaced { calendar: true });
        let state = t.schedule_state(&q, "s").await;
        assert_eq!((state.next, state.occurrences), (Some(from_millis(HOUR)), 1));
        let last = t.schedule_history(&q, "s").await.pop().unwrap();
        assert_eq!(span(&last), (2 * MINUTE, 5 * MINUTE));
        assert_eq!(last.outcome, Outcome::Skipped(SkipReason::Redefined));
        assert_eq!((last.count, last.is_exact), (4, true));
        t.look(&q, HOUR).await;
        assert_eq!(t.list(&q).await, ["payload of s", "other"]);
    });
}

#[test]
fn schedules_belong_to_their_configuration() {
    on_database(async |t| {
        let q = t.queue("q");
        let of = |name: &str, owner: Option<&str>| {
            let mut one = schedule(name, MINUTE);
            one.owner = owner.map(str::to_owned);
            one
        };
        for one in [of("a", Some("one")), of("b", Some("one")), of("c", Some("other")), of("d", None)] {
            t.put(&q, &one, 0).await;
        }
        for other in [of("a", Some("other")), of("a", None), of("d", Some("one"))] {
            let error = t.try_put(&q, &other, 0).await.unwrap_err();
            assert!(matches!(error, ScheduleError::OtherOwner { .. }), "{error}");
        }
        let keep = BTreeSet::from(["b".to_owned()]);
        let removed = q.remove_schedules_of(&t.db, &policy(), "one", &keep).await.unwrap();
        assert_eq!(removed, BTreeSet::from(["a".to_owned()]));
        let names = t.run(async |tr| q.schedules_after(tr, None, k(10)).await).await;
        assert!(names.iter().map(|view| view.name.as_str()).eq(["b", "c", "d"]));
        let page = t.run(async |tr| q.schedules_after(tr, Some("b"), k(1)).await).await;
        assert_eq!(page[0].schedule, Some(of("c", Some("other"))));
    });
}

#[test]
fn a_paused_schedule_fires_nothing_and_goes_on_when_it_is_resumed() {
    on_database(async |t| {
        let q = t.queue("q");
        t.put(&q, &schedule("s", MINUTE), 0).await;
        let pause = async |now| t.run(async |tr| q.pause_schedule(tr, "s", from_millis(now)).await).await;
        let resume = async |now| t.run(async |tr| q.resume_schedule(tr, "s", from_millis(now)).await).await;
        assert_eq!((pause(90_000).await, pause(91_000).await), (Some(true), Some(false)));
        assert_eq!(t.run(async |tr| q.pause_schedule(tr, "none", from_millis(0)).await).await, None);
        let look = t.look(&q, HOUR).await;
        assert_eq!((look.occurrences, look.next), (vec![], None));
        assert_eq!(t.schedule_state(&q, "s").await.paused, Some(from_millis(90_000)));

        let hand = q.fire_schedule(&t.db, &policy(), "s", from_millis(HOUR), None).await.unwrap();
        let stored = t.run(async |tr| q.oldest(tr).await).await;
        assert_eq!(hand, ByHand::Fired { id: stored });
        assert_eq!(
            q.fire_schedule(&t.db, &policy(), "none", from_millis(HOUR), None).await.unwrap(),
            ByHand::Gone
        );

        assert_eq!((resume(HOUR + 1).await, resume(HOUR + 2).await), (Some(true), Some(false)));
        t.look(&q, HOUR + MINUTE).await;
        let history = t.schedule_history(&q, "s").await;
        let skipped = &history[1];
        assert_eq!(skipped.outcome, Outcome::Skipped(SkipReason::Paused));
        assert_eq!((span(skipped), skipped.count), ((MINUTE, HOUR), 60));
        assert_eq!(fired(&history), [HOUR + MINUTE]);
    });
}

/// Replaces the value of a record of a schedule.
async fn overwrite(t: &TestDb, q: &Queue, record: &str, name: &str, value: &[u8]) {
    let key = pack(&(Bytes::from(q.name()), Bytes::from(record.as_bytes()), Bytes::from(name.as_bytes())));
    t.run(async |tr| {
        tr.set(&[t.prefix.as_slice(), &key].concat(), value);
        Ok(())
    })
    .await;
}

#[test]
fn a_schedule_that_cannot_be_read_stays_and_does_not_stop_others() {
    on_database(async |t| {
        let q = t.queue("q");
        for n in 0..60 {
            t.put(&q, &schedule(&format!("later{n}"), MINUTE), 0).await;
            overwrite(t, &q, "schedule", &format!("later{n}"), b"?").await;
        }
        t.put(&q, &schedule("zz", MINUTE), 0).await;
        t.put(&q, &schedule("broken", MINUTE), 0).await;
        overwrite(t, &q, "schedule-state", "broken", b"?").await;
        let before = t.records(&q, "schedule").await;
        let look = t.look(&q, MINUTE).await;
        assert_eq!((look.unusable.len(), look.fired()), (61, vec![MINUTE]));
        // They are looked at again later, and do not stand before the others.
        assert_eq!(look.next, Some(2 * MINUTE));
        assert_eq!(t.look(&q, 2 * MINUTE - 1).await.unusable.len(), 0);
        let look = t.look(&q, 2 * MINUTE).await;
        assert_eq!((look.unusable.len(), look.fired()), (61, vec![2 * MINUTE]));
        assert_eq!(t.records(&q, "schedule").await, before);

        let error = t.try_put(&q, &schedule("later0", HOUR), 0).await.unwrap_err();
        assert!(matches!(error, ScheduleError::Unreadable { .. }), "{error}");
        let shown = t.run(async |tr| q.schedules_after(tr, None, k(100)).await).await;
        let unreadable = shown.iter().filter(|view| view.schedule.is_none()).count();
        assert_eq!((shown.len(), unreadable), (62, 60));
        for name in ["later0", "broken"] {
            assert!(t.run(async |tr| q.remove_schedule(tr, name).await).await);
        }
        assert_eq!(t.records(&q, "schedule-due").await.len(), 60);
    });
}

#[test]
fn a_schedule_that_can_be_read_again_fires_again() {
    on_database(async |t| {
        let q = t.queue("q");
        t.put(&q, &schedule("s", MINUTE), 0).await;
        let state = t.records(&q, "schedule-state").await[0].1.clone();
        overwrite(t, &q, "schedule-state", "s", b"?").await;
        assert_eq!(t.look(&q, MINUTE).await.unusable.len(), 1);
        overwrite(t, &q, "schedule-state", "s", &state).await;
        let look = t.look(&q, 2 * MINUTE).await;
        assert_eq!((look.fired(), look.next), (vec![2 * MINUTE], Some(3 * MINUTE)));
    });
}

#[test]
fn a_schedule_that_cannot_be_pushed_does_not_stop_others() {
    on_database(async |t| {
        let q = t.queue("q");
        let mut bad = schedule("bad", MINUTE);
        bad.overlap = Overlap::Skip;
        t.put(&q, &bad, 0).await;
        t.put(&q, &schedule("good", MINUTE), 0).await;
        t.put(&q, &schedule("other", MINUTE), 0).await;
        // The id of an item of a keyed queue has its unique key.
        let id = [&[0x01, b'k', 0x00, 0x33][..], &[0; 12]].concat();
        let unique = b"\xff\x00schedule\x00bad";
        let key = pack(&(Bytes::from(q.name()), Bytes::from(&b"unique"[..]), Bytes::from(&unique[..])));
        t.run(async |tr| {
            tr.set(&[t.prefix.as_slice(), &key].concat(), &id);
            Ok(())
        })
        .await;
        let look = t.look(&q, MINUTE).await;
        assert_eq!(
            (look.fired(), look.unusable.into_iter().collect::<Vec<_>>()),
            (vec![MINUTE; 2], vec!["bad".to_owned()])
        );
    });
}

#[test]
fn rows_of_another_layout_do_not_keep_a_sweeper_busy() {
    on_database(async |t| {
        let q = t.queue("q");
        t.put(&q, &schedule("s", MINUTE), 0).await;
        let due = pack(&(Bytes::from(q.name()), Bytes::from(&b"schedule-due"[..])));
        // Behind all times; a number that is longer than it need be; no number.
        for (suffix, names_it) in
            [(&[0x30; 17][..], false), (&[0x16, 0, 5, 1, b's', 0], true), (&[1, b's', 0], true)]
        {
            let key = [t.prefix.as_slice(), &due, suffix].concat();
            let write = async |there: bool| {
                t.run(async |tr| {
                    if there {
                        tr.set(&key, b"");
                    } else {
                        tr.clear(&key);
                    }
                    Ok(())
                })
                .await;
            };
            write(true).await;
            let swept =
                scheduler(&q).sweep(&t.db, &|| from_millis(1), &rules().with_lease(LEASE)).await.unwrap();
            assert_eq!(swept.trouble.is_some(), names_it, "{suffix:?}");
            assert!(
                swept.next > Duration::from_secs(1) && swept.attempts.begun < 10,
                "{suffix:?}: {swept:?}"
            );
            write(false).await;
        }
    });
}

#[test]
fn a_schedule_can_be_made_in_a_transaction_that_has_pushed() {
    on_database(async |t| {
        let q = t.queue("q");
        let tr = t.db.create_trx().unwrap();
        q.pusher(&tr).push(b"a").await.unwrap();
        assert_eq!(
            q.put_schedule(&tr, &schedule("s", MINUTE), from_millis(0)).await.unwrap(),
            PutEffect::Created
        );
        tr.commit().await.unwrap();
        assert_eq!(t.look(&q, MINUTE).await.fired(), [MINUTE]);
    });
}

#[test]
fn schedules_of_a_configuration_are_named_when_an_outcome_is_unknown() {
    on_database(async |t| {
        for (i, script) in scripts().into_iter().enumerate() {
            let q = t.queue(format!("q{i}"));
            for name in ["a", "b"] {
                let mut one = schedule(name, MINUTE);
                one.owner = Some("one".to_owned());
                t.put(&q, &one, 0).await;
            }
            if !t.install(Faults::script(script.clone())) {
                return;
            }
            let removed = q.remove_schedules_of(&t.db, &policy(), "one", &BTreeSet::new()).await.unwrap();
            t.end_faults();
            assert_eq!((removed.len(), t.records(&q, "schedule").await.len()), (2, 0), "{script:?}");
        }
    });
}

#[test]
fn a_changed_calendar_skips_what_is_due_and_not_what_jitter_holds_back() {
    on_database(async |t| {
        let q = t.queue("q");
        let mut one = schedule("s", HOUR);
        one.jitter = Duration::from_secs(1_800);
        let offset = one.offset(q.name()).as_millis() as u64;
        assert!(offset > MINUTE);
        t.put(&q, &one, 1).await;
        one.calendar = every(HOUR / 2);
        t.put(&q, &one, HOUR + offset / 2).await;
        assert_eq!(t.schedule_history(&q, "s").await, []);
        assert_eq!(t.look(&q, HOUR + offset).await.fired(), [HOUR]);
        // The same times in other words are no other calendar.
        one.calendar = Calendar::cron("0 * * * *", "UTC").unwrap();
        t.put(&q, &one, HOUR + offset).await;
        one.calendar = Calendar::cron("0  0-23 * * *", "UTC").unwrap();
        assert_eq!(t.put(&q, &one, 3 * HOUR).await, PutEffect::Replaced { calendar: false });
        assert_eq!(t.schedule_state(&q, "s").await.next, Some(from_millis(2 * HOUR)));
    });
}

#[test]
fn a_change_of_a_schedule_wakes_sweepers_and_counts_nothing() {
    on_database(async |t| {
        let q = t.queue("q");
        let swept = t.sweep(&mut scheduler(&q), 0, &rules()).await;
        t.put(&q, &schedule("s", MINUTE), 0).await;
        swept.watch.await.unwrap();
        let counts = t.run(async |tr| q.counts(tr).await).await;
        assert_eq!((counts.waiting, counts.ready, counts.pushed), (0, 0, Some(0)));
    });
}

#[test]
fn a_schedule_of_another_kind_of_queue_stays_and_does_not_fire() {
    on_database(async |t| {
        let mut one = schedule("s", MINUTE);
        one.item = one.item.with_key("tenant");
        t.put(&t.queue_of("q", Kind::Keyed), &one, 0).await;
        let q = t.queue("q");
        assert!(matches!(t.try_put(&q, &one, 0).await.unwrap_err(), ScheduleError::Item(_)));
        let look = t.look(&q, MINUTE).await;
        assert_eq!((look.unusable.len(), look.fired(), t.len(&q).await), (1, vec![], 0));
    });
}

#[test]
fn a_queue_has_a_bounded_number_of_schedules() {
    on_database(async |t| {
        let q = t.queue("q");
        let all: Vec<_> = (0..MAX_SCHEDULES).map(|n| schedule(&format!("s{n:04}"), MINUTE)).collect();
        // A transaction with all of them is too old before it commits, on a cluster that is slow.
        for some in all.chunks(100) {
            let tr = t.db.create_trx().unwrap();
            for one in some {
                q.put_schedule(&tr, one, from_millis(0)).await.unwrap();
            }
            tr.commit().await.unwrap();
        }
        let error = t.try_put(&q, &schedule("one more", MINUTE), 0).await.unwrap_err();
        assert!(matches!(error, ScheduleError::TooMany), "{error}");
        let mut known = schedule("s0999", MINUTE);
        known.item = NewItem::new("other");
        assert_eq!(t.put(&q, &known, 0).await, PutEffect::Replaced { calendar: false });
        let look = t.look(&q, MINUTE).await;
        assert_eq!((look.fired().len(), t.len(&q).await), (1_000, 1_000));
    });
}

#[test]
fn an_item_by_hand_is_pushed_once_under_unknown_outcomes() {
    on_database(async |t| {
        for (i, script) in scripts().into_iter().enumerate() {
            let q = t.queue_of(format!("q{i}"), KINDS[i % KINDS.len()]);
            t.put(&q, &schedule("s", MINUTE), 0).await;
            if !t.install(Faults::script(script.clone())) {
                return;
            }
            let hand = q.fire_schedule(&t.db, &policy(), "s", from_millis(7), None).await.unwrap();
            t.end_faults();
            let stored = t.run(async |tr| q.list(tr).await).await;
            assert_eq!(
                (stored.len(), hand),
                (1, ByHand::Fired { id: Some(stored[0].id.clone()) }),
                "{script:?}"
            );
        }
    });
}

#[test]
fn an_item_by_hand_that_is_reported_as_failed_is_not_pushed() {
    on_database(async |t| {
        let once = RetryPolicy { max_attempts: Some(1), ..RetryPolicy::default() };
        let (mut failed, mut without_id) = (0, 0);
        for seed in 0..100 {
            let q = t.queue(format!("q{seed}"));
            t.put(&q, &schedule("s", MINUTE), 0).await;
            if !t.install(Faults::seeded(seed).read_too_old(0.2)) {
                return;
            }
            let hand = q.fire_schedule(&t.db, &once, "s", from_millis(7), None).await;
            t.end_faults();
            let pushed = match &hand {
                Ok(ByHand::Fired { id }) => {
                    without_id += usize::from(id.is_none());
                    1
                }
                Err(error) => {
                    assert!(!error.is_maybe_committed(), "{error}");
                    failed += 1;
                    0
                }
                other => panic!("{other:?}"),
            };
            assert_eq!(t.len(&q).await, pushed, "seed {seed}: {hand:?}");
        }
        assert!(failed > 0 && without_id > 0, "{failed} failed, {without_id} have no id");
    });
}
