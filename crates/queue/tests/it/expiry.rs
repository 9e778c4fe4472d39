//! Items that expire: which end when a sweeper looks, which do not, what goes with them, and what commits at the same time.

use std::collections::BTreeSet;
use std::time::Duration;

use fdb_embedded::Faults;
use kvqueue_queue::{
    Failure, ItemChange, ItemId, ItemOutcome, ItemState, Kind, Movable, Mover, NewItem, OnExpiry,
    PushOptions, Queue, RetryPolicy, StoredItem, SweepRules, from_millis,
};

use crate::common::gate::overlaps;
use crate::common::schedules::{MINUTE, schedule, scheduler};
use crate::common::states::records_left;
use crate::common::{KINDS, Millis, SHORT, TestDb, alone, k, later, on_database, rules, sweeper};
use crate::restored::restore;
use crate::unknown::scripts;

const HOUR: u64 = 3_600_000_000;

fn item(payload: &str, expires: Millis) -> NewItem {
    NewItem::new(payload.to_owned()).with_expiry(from_millis(expires))
}

fn dead_rules() -> SweepRules {
    rules().with_on_expiry(OnExpiry::Dead)
}

/// Sweeps at a time, and says how many items expired.
async fn expire(t: &TestDb, q: &Queue, now: Millis, rules: &SweepRules) -> usize {
    t.end_claim(q).await;
    t.sweep(&mut sweeper(q), now, rules).await.moved.expired
}

async fn state(t: &TestDb, q: &Queue, id: &ItemId) -> Option<ItemState> {
    t.run(async |tr| q.view_item(tr, id).await).await.map(|view| view.state)
}

async fn rows(t: &TestDb, q: &Queue) -> usize {
    t.records(q, "expiry").await.len()
}

/// Nothing is left of any item.
async fn check_empty(t: &TestDb, q: &Queue) {
    assert_eq!(records_left(t, q).await, [""; 0]);
    assert_eq!(t.list(q).await.len(), 0);
}

#[test]
fn an_item_that_no_attempt_has_begun_with_expires_at_its_time() {
    on_database(async |t| {
        for (n, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{n}"), kind);
            let long = "x".repeat(250_000);
            let items = [
                item("a", 10).with_unique("u"),
                item(&long, 11),
                NewItem::new("stays"),
                item("b", 12).with_due(from_millis(5)),
            ];
            let pushed = t.push_items(&q, &items).await;
            assert_eq!((pushed.items, rows(t, &q).await), (4, 3));
            assert_eq!(expire(t, &q, 9, &rules()).await, 0);
            assert_eq!(expire(t, &q, 11, &rules()).await, 2);
            // The unique key is free.
            assert_eq!(t.push_items(&q, &[item("a", 20).with_unique("u")]).await.items, 1);
            // It has become ready at 5, and expires all the same.
            assert_eq!(expire(t, &q, 20, &rules()).await, 2);
            let counts = t.run(async |tr| q.counts(tr).await).await;
            assert_eq!((counts.ready, counts.waiting, counts.dead), (1, 0, 0), "{kind}");
            assert_eq!(rows(t, &q).await, 0);
            assert_eq!(t.session(&q).take(&t.db, k(9)).await.unwrap().got.len(), 1);
            check_empty(t, &q).await;
        }
    });
}

#[test]
fn a_scheduled_item_expires_before_it_is_due() {
    on_database(async |t| {
        for (n, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{n}"), kind);
            let pushed = t.push_items(&q, &[item("a", 50).with_due(from_millis(5)), item("b", 9)]).await;
            let ids: Vec<_> =
                t.run(async |tr| q.view(tr, ItemState::Scheduled, None, k(9)).await).await.items;
            assert_eq!((pushed.items, ids.len()), (2, 1));
            let (id, policy) = (ids[0].id.clone(), RetryPolicy::default());
            let reschedule =
                async |due| q.reschedule_item(&t.db, &policy, &id, Some(from_millis(due))).await.unwrap();
            for late in [50, 100] {
                assert_eq!(reschedule(late).await, ItemChange::ExpiresFirst(from_millis(50)), "{kind}");
            }
            assert_eq!(reschedule(49).await, ItemChange::Done(ItemState::Scheduled));
            // Its time has come, and no sweeper has looked.
            assert_eq!(expire(t, &q, 50, &rules()).await, 2);
            check_empty(t, &q).await;
        }
    });
}

#[test]
fn an_item_that_cannot_expire_any_more_gets_any_time() {
    on_database(async |t| {
        let (q, policy) = (t.queue("q"), RetryPolicy::default());
        t.push_items(&q, &[item("a", 50)]).await;
        let ready = t.run(async |tr| q.view(tr, ItemState::Ready, None, k(9)).await).await.items.remove(0).id;
        let late = Some(from_millis(100));
        assert_eq!(
            q.reschedule_item(&t.db, &policy, &ready, late).await.unwrap(),
            ItemChange::ExpiresFirst(from_millis(50))
        );
        let mut lease = t.lease_for(&q, 1, HOUR).await.unwrap();
        t.acknowledge(&mut lease, &later(7)).await;
        let done = ItemChange::Done(ItemState::Retrying);
        assert_eq!(q.reschedule_item(&t.db, &policy, &ready, late).await.unwrap(), done);
        assert_eq!(expire(t, &q, 99, &rules()).await, 0);
    });
}

#[test]
fn an_expired_item_becomes_a_dead_letter_by_its_rules() {
    on_database(async |t| {
        for (n, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{n}"), kind);
            let scheduled = item("b", 60).with_due(from_millis(5)).with_unique("v");
            t.push_items(&q, &[item("a", 10).with_unique("u"), scheduled]).await;
            let view = t.run(async |tr| q.view(tr, ItemState::Scheduled, None, k(9)).await).await;
            let policy = RetryPolicy::default();
            q.reschedule_item(&t.db, &policy, &view.items[0].id, Some(from_millis(59))).await.unwrap();
            assert_eq!(expire(t, &q, 60, &dead_rules()).await, 2, "{kind}");
            let letters = t.run(async |tr| q.dead_list(tr, None, k(9)).await).await;
            let deaths: Vec<_> = letters.iter().map(|letter| letter.meta.death.clone().unwrap()).collect();
            let death = Failure::new(from_millis(60), 0, "expired: no attempt began in time");
            assert_eq!(deaths, [death.clone(), death], "{kind}");
            assert!(letters.iter().all(|letter| letter.meta.attempts == 0));
            let counts = t.run(async |tr| q.counts(tr).await).await;
            assert_eq!((counts.ready, counts.waiting, counts.dead), (0, 0, 2), "{kind}");
            assert_eq!((rows(t, &q).await, t.records(&q, "unique").await.len()), (0, 0));
            // One that is retried has all its attempts before it, and does not expire once more.
            for letter in &letters {
                let retried = q.retry_item(&t.db, &policy, &letter.id).await.unwrap();
                assert_eq!(retried, ItemChange::Done(ItemState::Dead));
            }
            assert_eq!((expire(t, &q, 99, &dead_rules()).await, t.list(&q).await.len()), (0, 2));
            let lease = t.lease_for(&q, 2, HOUR).await.unwrap();
            let metas = lease.items().iter().map(|item| item.meta.as_ref().unwrap());
            assert!(metas.clone().all(|meta| meta.expires.is_none() && !meta.may_expire()));
        }
    });
}

#[test]
fn an_item_that_was_begun_does_not_expire() {
    on_database(async |t| {
        for (n, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{n}"), kind);
            t.push_items(&q, &[item("a", 10)]).await;
            let mut lease = t.lease_for(&q, 1, HOUR).await.unwrap();
            assert_eq!((expire(t, &q, 10, &rules()).await, rows(t, &q).await), (0, 0));
            t.acknowledge(&mut lease, &later(20)).await;
            assert_eq!(expire(t, &q, 30, &rules()).await, 0);
            assert_eq!(t.list(&q).await, ["a"], "{kind}");
            let mut lease = t.lease_for(&q, 1, HOUR).await.unwrap();
            t.acknowledge(&mut lease, &ItemOutcome::Done).await;
            check_empty(t, &q).await;
            // Its worker dies.
            t.push_items(&q, &[item("b", 10)]).await;
            t.lease_for(&q, 1, SHORT).await.unwrap();
            assert_eq!(t.sweep_leases(&q, 1, &rules()).await.returned, 1);
            assert_eq!((expire(t, &q, 10, &rules()).await, rows(t, &q).await), (0, 0), "{kind}");
            assert_eq!(t.list(&q).await, ["b"]);
        }
    });
}

#[test]
fn an_item_that_is_released_after_its_expiry_expires() {
    on_database(async |t| {
        for (n, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{n}"), kind);
            let postpone = ItemOutcome::Postpone { due: from_millis(99) };
            for (outcome, rules) in [(ItemOutcome::Release, rules()), (postpone, dead_rules())] {
                t.push_items(&q, &[item("a", 10)]).await;
                let mut lease = t.lease_for(&q, 1, HOUR).await.unwrap();
                assert_eq!((expire(t, &q, 10, &rules).await, rows(t, &q).await), (0, 0));
                t.acknowledge(&mut lease, &outcome).await;
                assert_eq!(expire(t, &q, 10, &rules).await, 1, "{kind} {outcome:?}");
            }
            assert_eq!(t.run(async |tr| q.counts(tr).await).await.dead, 1);
        }
    });
}

#[test]
fn every_end_of_an_item_removes_its_row() {
    on_database(async |t| {
        for (n, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{n}"), kind);
            let policy = RetryPolicy::default();
            let on_lease = async |outcome: ItemOutcome| {
                t.push_items(&q, &[item("a", 10)]).await;
                let mut lease = t.lease_for(&q, 1, HOUR).await.unwrap();
                assert_eq!(rows(t, &q).await, 1, "a fetch leaves the row");
                t.acknowledge(&mut lease, &outcome).await;
                assert_eq!(rows(t, &q).await, 0, "{outcome:?}");
            };
            on_lease(ItemOutcome::Done).await;
            on_lease(ItemOutcome::Expired { at: from_millis(10), on_expiry: OnExpiry::Drop }).await;
            assert_eq!(t.counter(&q, "ndone").await, 1);
            check_empty(t, &q).await;
            on_lease(ItemOutcome::Dead(Failure::new(from_millis(1), 1, "no"))).await;
            on_lease(ItemOutcome::Expired { at: from_millis(10), on_expiry: OnExpiry::Dead }).await;
            assert_eq!(t.run(async |tr| q.counts(tr).await).await.dead, 2);
            for due in [None, Some(from_millis(5))] {
                let mut item = item("a", 10);
                item.due = due;
                t.push_items(&q, &[item]).await;
                let state = if due.is_some() { ItemState::Scheduled } else { ItemState::Ready };
                let view = t.run(async |tr| q.view(tr, state, None, k(1)).await).await;
                let cancelled = q.cancel_item(&t.db, &policy, &view.items[0].id).await.unwrap();
                assert_eq!((cancelled, rows(t, &q).await), (ItemChange::Done(state), 0));
            }
            t.push_items(&q, &[item("a", 10)]).await;
            assert_eq!(t.session(&q).take(&t.db, k(1)).await.unwrap().got.len(), 1);
            assert_eq!(rows(t, &q).await, 0, "{kind}");
        }
    });
}

/// Each change of a waiting item, then its expiry: the row has to lead the sweeper to the item where it is.
#[test]
fn an_item_that_was_changed_expires_all_the_same() {
    on_database(async |t| {
        for (n, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{n}"), kind);
            let policy = &RetryPolicy::default();
            let (now, later) = (None, Some(from_millis(99)));
            // Whether the item is scheduled, what is done with it, and its state afterwards.
            type Changes<'a> = &'a [(&'a str, Option<std::time::SystemTime>)];
            let cases: [(bool, Changes<'_>, ItemState); 7] = [
                (false, &[("reschedule", later)], ItemState::Scheduled),
                (false, &[("reschedule", later), ("reschedule", now)], ItemState::Ready),
                (false, &[("edit", None), ("reschedule", later), ("edit", None)], ItemState::Scheduled),
                (false, &[("edit", None)], ItemState::Ready),
                (true, &[("retry", None)], ItemState::Ready),
                (true, &[("reschedule", now), ("edit", None)], ItemState::Ready),
                (true, &[("edit", None), ("reschedule", later)], ItemState::Scheduled),
            ];
            for (is_scheduled, changes, after) in cases {
                let mut one = item("a", 100).with_unique("u");
                one.due = is_scheduled.then(|| from_millis(50));
                t.push_items(&q, &[one]).await;
                let before = if is_scheduled { ItemState::Scheduled } else { ItemState::Ready };
                let id = t.run(async |tr| q.view(tr, before, None, k(1)).await).await.items[0].id.clone();
                for (what, due) in changes {
                    let done = match *what {
                        "reschedule" => q.reschedule_item(&t.db, policy, &id, *due).await,
                        "retry" => q.retry_item(&t.db, policy, &id).await,
                        _ => q.edit_item(&t.db, policy, &id, &[b'x'; 250_000]).await,
                    };
                    assert!(matches!(done.unwrap(), ItemChange::Done(_)), "{kind} {changes:?}");
                    assert_eq!(rows(t, &q).await, 1, "{kind} {changes:?}");
                }
                assert_eq!(state(t, &q, &id).await, Some(after), "{kind} {changes:?}");
                assert_eq!(expire(t, &q, 98, &rules()).await, 0, "{kind} {changes:?}");
                assert_eq!(expire(t, &q, 100, &rules()).await, 1, "{kind} {changes:?}");
                check_empty(t, &q).await;
            }
        }
    });
}

#[test]
fn a_cancelled_item_has_no_row_in_any_state() {
    on_database(async |t| {
        for (n, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{n}"), kind);
            let policy = RetryPolicy::default();
            for before in [ItemState::Ready, ItemState::Scheduled, ItemState::Running, ItemState::Retrying] {
                let mut one = item("a", 100);
                one.due = (before == ItemState::Scheduled).then(|| from_millis(50));
                t.push_items(&q, &[one]).await;
                if matches!(before, ItemState::Running | ItemState::Retrying) {
                    let mut lease = t.lease_for(&q, 1, HOUR).await.unwrap();
                    if before == ItemState::Retrying {
                        t.acknowledge(&mut lease, &later(20)).await;
                    }
                }
                let id = t.run(async |tr| q.view(tr, before, None, k(1)).await).await.items[0].id.clone();
                assert_eq!(rows(t, &q).await, 1, "{kind} {before}");
                let cancelled = q.cancel_item(&t.db, &policy, &id).await.unwrap();
                assert_eq!((cancelled, rows(t, &q).await), (ItemChange::Done(before), 0), "{kind} {before}");
            }
        }
    });
}

#[test]
fn items_of_schedules_have_the_ttl_of_the_rules() {
    on_database(async |t| {
        for (n, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{n}"), kind);
            t.put(&q, &schedule("s", MINUTE), 0).await;
            let ttl = Duration::from_secs(30);
            let by_rules = rules().with_ttl(Some(ttl));
            let fired = t.sweep(&mut scheduler(&q), MINUTE, &by_rules).await;
            assert_eq!((fired.occurrences.len(), rows(t, &q).await), (1, 1), "{kind}");
            q.fire_schedule(&t.db, &RetryPolicy::default(), "s", from_millis(MINUTE + 1), Some(ttl))
                .await
                .unwrap();
            let items = t.run(async |tr| q.list(tr).await).await;
            let expiries: BTreeSet<_> =
                items.iter().map(|item| item.meta.as_ref().unwrap().expires).collect();
            assert_eq!(
                expiries,
                [MINUTE + 30_000, MINUTE + 30_001].map(from_millis).map(Some).into(),
                "{kind}"
            );
            assert_eq!(expire(t, &q, MINUTE + 30_001, &by_rules).await, 2, "{kind}");
            // Without a ttl they never expire.
            t.end_claim(&q).await;
            assert_eq!(t.look(&q, 2 * MINUTE).await.fired(), [2 * MINUTE]);
            assert_eq!((t.list(&q).await.len(), rows(t, &q).await), (1, 0), "{kind}");
        }
    });
}

#[test]
fn moved_and_imported_items_keep_their_expiry() {
    on_database(async |t| {
        for (n, kind) in KINDS.into_iter().enumerate() {
            let (from, to) = (t.queue_of(format!("q{n}"), kind), t.queue_of(format!("to{n}"), kind));
            t.push_items(&from, &[item("a", 10), item("b", 30)]).await;
            let mut mover = Mover::new(from.clone(), to.clone(), Movable::Ready).unwrap();
            let policy = RetryPolicy::default();
            while mover.page(&t.db, &policy, k(9)).await.unwrap().is_some() {}
            mover.close(&t.db, &policy).await.unwrap();
            check_empty(t, &from).await;
            assert_eq!((rows(t, &to).await, expire(t, &to, 10, &rules()).await), (2, 1), "{kind}");
            let view = t.run(async |tr| to.view(tr, ItemState::Ready, None, k(1)).await).await;
            let read = view.items[0].item.as_ref().unwrap();
            let meta = read.meta.as_deref().unwrap().clone();
            assert_eq!(meta.expires, Some(from_millis(30)));
            // As an import puts it back.
            let stored = StoredItem { payload: "b".into(), meta, ..StoredItem::default() };
            assert_eq!(restore(t, &from, &[stored]).await, 1);
            assert_eq!((rows(t, &from).await, expire(t, &from, 30, &rules()).await), (1, 1), "{kind}");
        }
    });
}

#[test]
fn a_dead_letter_of_an_ordered_key_that_expired_blocks_it_by_its_rule() {
    use crate::common::keyed::{fetch, limit, names};
    on_database(async |t| {
        let q = t.queue_of("q", Kind::Keyed);
        limit(t, &q, "*", kvqueue_queue::Limits::default().with_ordered(true).with_blocks_on_dead(true))
            .await;
        t.push_items(&q, &[item("a", 10).with_key("k"), NewItem::new("b").with_key("k")]).await;
        assert_eq!(expire(t, &q, 10, &dead_rules()).await, 1);
        let mut session = t.session(&q);
        assert!(fetch(t, &mut session, 5).await.is_none());
        assert_eq!(t.counter(&q, "nblocked").await, 1);
        // One that just leaves does not.
        t.push_items(&q, &[item("c", 10).with_key("l"), NewItem::new("d").with_key("l")]).await;
        assert_eq!(expire(t, &q, 10, &rules()).await, 1);
        assert_eq!(names(fetch(t, &mut session, 5).await.as_ref()), ["d"]);
    });
}

#[test]
fn many_items_expire_in_bounded_transactions() {
    on_database(async |t| {
        let q = t.queue("q");
        for _ in 0..12 {
            let items: Vec<_> = (0..100).map(|_| item(&"x".repeat(10_000), 10)).collect();
            t.push_items(&q, &items).await;
        }
        assert_eq!(expire(t, &q, 10, &dead_rules()).await, 1_200);
        assert_eq!(t.run(async |tr| q.counts(tr).await).await.dead, 1_200);
        assert_eq!((t.len(&q).await, rows(t, &q).await), (0, 0));
    });
}

#[test]
fn items_expire_once_under_unknown_outcomes() {
    on_database(async |t| {
        for (i, script) in scripts().into_iter().enumerate() {
            for rules in [rules(), dead_rules()] {
                let q = t.queue(format!("q{i} {:?}", rules.on_expiry));
                t.push_items(&q, &[item("a", 1), item("b", 2), item("c", 3)]).await;
                if !t.install(Faults::script(script.clone())) {
                    return;
                }
                // With no other transaction than the looks and this one.
                let rules = rules.with_lease(alone().lease);
                let expired = t.sweep(&mut sweeper(&q), 2, &rules).await.moved.expired;
                t.end_faults();
                let dead = if rules.on_expiry == OnExpiry::Dead { 2 } else { 0 };
                let counts = t.run(async |tr| q.counts(tr).await).await;
                assert_eq!((expired, counts.ready, counts.dead), (2, 1, dead), "{script:?}");
                assert_eq!(
                    (t.list(&q).await, t.counter(&q, "npop").await),
                    (vec!["c".into()], 2),
                    "{script:?}"
                );
            }
        }
    });
}

#[test]
fn an_acknowledgement_of_an_expired_item_of_unknown_outcome_is_written_once() {
    on_database(async |t| {
        for (i, script) in scripts().into_iter().enumerate() {
            let q = t.queue(format!("q{i}"));
            t.push_items(&q, &[item("a", 1), item("b", 1)]).await;
            let mut lease = t.lease_for(&q, 2, HOUR).await.unwrap();
            if !t.install(Faults::script(script.clone())) {
                return;
            }
            let dead = ItemOutcome::Expired { at: from_millis(1), on_expiry: OnExpiry::Dead };
            t.acknowledge(&mut lease, &dead).await;
            t.end_faults();
            let counts = t.run(async |tr| q.counts(tr).await).await;
            assert_eq!((counts.dead, counts.running, rows(t, &q).await), (2, 0, 0), "{script:?}");
        }
    });
}

/// Transactions that have read the item as it waits, and commit after it has expired.
#[test]
fn a_change_of_an_item_conflicts_with_its_expiry() {
    on_database(async |t| {
        for (n, kind) in KINDS.into_iter().enumerate() {
            for rules in [rules(), dead_rules()] {
                let q = t.queue_of(format!("q{n} {:?}", rules.on_expiry), kind);
                t.push_items(&q, &[item("a", 10)]).await;
                let view = t.run(async |tr| q.view(tr, ItemState::Ready, None, k(1)).await).await;
                let id = &view.items[0].id;
                let (cancel, pop) = (t.db.create_trx().unwrap(), t.db.create_trx().unwrap());
                assert_eq!(q.cancel(&cancel, id).await.unwrap(), ItemChange::Done(ItemState::Ready));
                assert!(q.pop(&pop).await.unwrap().is_some());
                assert_eq!(expire(t, &q, 10, &rules).await, 1);
                assert!(cancel.commit().await.is_err(), "{kind}");
                assert!(pop.commit().await.is_err(), "{kind}");
                let dead = (rules.on_expiry == OnExpiry::Dead).then_some(ItemState::Dead);
                assert_eq!(state(t, &q, id).await, dead);
                assert_eq!(t.counter(&q, "npop").await, 1);
            }
        }
    });
}

/// The sweeper finds an item running and removes the row; a release that commits before writes the row once more, and it has to stay.
#[test]
fn a_release_during_a_sweep_keeps_the_expiry() {
    on_database(async |t| {
        for (n, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{n}"), kind);
            t.push_items(&q, &[item("a", 10)]).await;
            let mut lease = t.lease_for(&q, 1, HOUR).await.unwrap();
            let Some(gate) = t.close_gate() else { return };
            let mut by = sweeper(&q);
            let rules = alone();
            let sweep = t.sweep(&mut by, 10, &rules);
            let release = t.acknowledge(&mut lease, &ItemOutcome::Release);
            let (conflicted, swept, ()) = overlaps(gate, sweep, release).await;
            assert_eq!((conflicted, swept.moved.expired), (true, 1), "{kind}");
            check_empty(t, &q).await;
        }
    });
}

#[test]
fn an_expiry_before_the_due_time_is_refused() {
    on_database(async |t| {
        let q = t.queue("q");
        let wrong = item("a", 5).with_due(from_millis(5));
        let refused = t.session(&q).push_items(&t.db, &[wrong], &PushOptions::default()).await.unwrap_err();
        assert!(refused.to_string().contains("would expire at 5"), "{refused}");
        assert_eq!(rows(t, &q).await, 0);
    });
}
