//! Keys of a keyed queue whose next items are suspects: they get out of the way of other keys, and come back.

use kvqueue_queue::{ItemOutcome, NewItem, Quarantine, Queue, RetryPolicy, SweepCounts};

use crate::common::keyed::{acknowledge, fetch, keyed, limit, names, push_one, running};
use crate::common::{SHORT, TestDb, on_database, rules, sweeper};

/// More keys than one fetch looks at.
const SUSPECTS: usize = 2_300;
const OTHERS: usize = 300;

/// Pushes an item of each of these keys, and lets all of them crash together.
async fn crash(t: &TestDb, q: &Queue, keys: &[String]) {
    for keys in keys.chunks(500) {
        let items: Vec<_> = keys.iter().map(|key| NewItem::new(key.clone()).with_key(key.clone())).collect();
        t.push_items(q, &items).await;
    }
    while t.lease_for(q, 2_000, SHORT).await.is_some() {}
    let (mut sweeper, mut moved) = (sweeper(q), SweepCounts::default());
    while moved.returned < keys.len() {
        moved += t.sweep(&mut sweeper, 0, &rules()).await.moved;
    }
}

/// How many rows there are under (q, `second`).
async fn rows(t: &TestDb, q: &Queue, second: &str) -> usize {
    t.records(q, second).await.len()
}

#[test]
fn suspects_of_two_thousand_keys_starve_no_other_key() {
    on_database(async |t| {
        let q = keyed(t);
        crash(t, &q, &(0..SUSPECTS).map(|n| format!("a{n}")).collect::<Vec<_>>()).await;
        let quarantine = Quarantine::default();
        let mut session = t.session(&q).with_quarantine(&quarantine);
        let held = fetch(t, &mut session, 1).await.unwrap();
        assert!(held.is_in_quarantine());
        let others: Vec<_> = (0..OTHERS).map(|n| NewItem::new("other").with_key(format!("b{n}"))).collect();
        t.push_items(&q, &others).await;
        for n in 0..OTHERS {
            let Some(lease) = fetch(t, &mut session, 1).await else {
                panic!("{n} of {OTHERS} items of other keys are fetched, and the others wait for suspects");
            };
            assert_eq!(names(Some(&lease)), ["other"]);
            acknowledge(t, lease).await;
            if n == 1 {
                // From now on fetches do not come across the suspects.
                let active = rows(t, &q, "active").await;
                assert!(active <= OTHERS, "{active} keys are active");
            }
        }
        assert!(fetch(t, &mut session, 1).await.is_none());
        acknowledge(t, held).await;
        // One after the other, or in groups, the suspects are handled, too.
        let mut handled = 1;
        while let Some(mut lease) = fetch(t, &mut session, 2_000).await {
            assert!(lease.is_in_quarantine());
            handled += lease.items().len();
            t.acknowledge(&mut lease, &ItemOutcome::Done).await;
        }
        assert_eq!(handled, SUSPECTS);
        for second in ["kval", "listed", "active", "parked", "running"] {
            assert_eq!(rows(t, &q, second).await, 0, "{second}");
        }
    });
}

#[test]
fn a_slot_that_a_suspect_gets_and_may_not_use_goes_to_the_next_key_of_its_tenant() {
    on_database(async |t| {
        let q = keyed(t);
        push_one(t, &q, "t/x").await;
        let slot = fetch(t, &mut t.session(&q), 1).await.unwrap();
        let suspects = (0..20).map(|n| format!("t/s{n}"));
        crash(t, &q, &std::iter::once("a".to_owned()).chain(suspects).collect::<Vec<_>>()).await;
        let mut session = t.session(&q);
        let held = fetch(t, &mut session, 1).await.unwrap();
        assert!(held.is_in_quarantine());
        assert_eq!(names(Some(&held)), ["a"]);
        limit(t, &q, "t", running(1)).await;
        push_one(t, &q, "t/y").await;
        assert!(fetch(t, &mut session, 1).await.is_none(), "the tenant has no slot");
        acknowledge(t, slot).await;
        // Of the keys that wait for a slot, one gets it: most of them have suspects.
        assert_eq!(names(fetch(t, &mut session, 1).await.as_ref()), ["t/y"], "a slot is free");
    });
}

/// A process that has a suspect, and the key `k`, whose first item is another one, with a healthy item behind it.
async fn behind_a_suspect(t: &TestDb, q: &Queue) -> (kvqueue_queue::Session, kvqueue_queue::Lease) {
    crash(t, q, &["a", "k"].map(str::to_owned)).await;
    crate::common::keyed::push(t, q, "k", ["behind"]).await;
    let mut session = t.session(q);
    let held = fetch(t, &mut session, 1).await.unwrap();
    assert_eq!(names(Some(&held)), ["a"]);
    assert!(fetch(t, &mut session, 9).await.is_none());
    (session, held)
}

#[test]
fn a_key_goes_on_when_its_suspect_is_cancelled_or_put_off() {
    on_database(async |t| {
        for is_cancelled in [true, false] {
            let q = t.queue_of(format!("q{is_cancelled}"), kvqueue_queue::Kind::Keyed);
            let (mut session, _held) = behind_a_suspect(t, &q).await;
            let ready = t.run(async |tr| q.list(tr).await).await;
            let suspect = ready.iter().find(|item| item.payload == "k").unwrap().id.clone();
            let policy = RetryPolicy::default();
            if is_cancelled {
                q.cancel_item(&t.db, &policy, &suspect).await.unwrap();
            } else {
                let due = std::time::SystemTime::now() + std::time::Duration::from_secs(1_000);
                q.reschedule_item(&t.db, &policy, &suspect, Some(due)).await.unwrap();
            }
            assert_eq!(names(fetch(t, &mut session, 9).await.as_ref()), ["behind"]);
        }
    });
}

#[test]
fn an_item_that_is_returned_before_a_suspect_of_its_key_does_not_wait_for_it() {
    on_database(async |t| {
        let q = keyed(t);
        push_one(t, &q, "k").await;
        let mut first = fetch(t, &mut t.session(&q), 1).await.unwrap();
        let (mut session, _held) = behind_a_suspect(t, &q).await;
        t.acknowledge(&mut first, &ItemOutcome::Release).await;
        let lease = fetch(t, &mut session, 9).await.unwrap();
        assert_eq!(lease.items().iter().map(|item| &item.id).collect::<Vec<_>>(), [&first.items()[0].id]);
        assert!(fetch(t, &mut session, 9).await.is_none(), "the next one is the suspect");
    });
}

/// An idle consumer that may not have suspects is woken when a process that may have them takes the suspect before its items.
#[test]
fn an_idle_consumer_is_woken_when_the_suspect_before_an_item_is_taken() {
    on_database(async |t| {
        let q = keyed(t);
        let (mut session, _held) = behind_a_suspect(t, &q).await;
        let mut approach = kvqueue_queue::Approach::Front;
        let mut options = crate::common::fetch_options(9, 30_000_000, &mut approach, true);
        let idle = session.fetch(&t.db, &mut options).await.unwrap();
        assert!(idle.got.is_none());
        let other = fetch(t, &mut t.session(&q), 1).await;
        assert_eq!(names(other.as_ref()), ["k"]);
        crate::common::keyed::is_woken(idle.watch.unwrap()).await;
        assert_eq!(names(fetch(t, &mut session, 9).await.as_ref()), ["behind"]);
    });
}
