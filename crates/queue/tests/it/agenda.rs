//! What happens at a time: rows that nobody can read are named, stop nobody, and keep no sweeper busy.

use std::time::Duration;

use foundationdb::tuple::pack;
use kvqueue_queue::{NewItem, Queue, QueueError, SweepRules, Swept, from_millis};

use crate::common::{TestDb, on_database, record, sweeper};

/// The events, by the elements of their keys, which a unit test compares with `docs/KEYSPACE.md`.
fn events() -> Vec<&'static str> {
    let page = include_str!("../../../../docs/KEYSPACE.md");
    let (_, agenda) = page.split_once("### Agenda").unwrap();
    let rows = agenda.split("\n#").next().unwrap().split("\n| `(q, \"").skip(1);
    let events: Vec<_> = rows.filter_map(|row| row.split('"').next()).collect();
    assert!(events.contains(&"later"), "{events:?}");
    events
}

/// The time of the sweeps.
const NOW: u64 = 1_000;

/// Puts a row of no event at a place behind the kind.
async fn put_alien(t: &TestDb, q: &Queue, event: &str, place: &[u8]) {
    let key = record(q, event, place);
    t.run(async |tr| {
        tr.set(&key, b"");
        Ok(())
    })
    .await;
}

/// A sweep as a daemon's, whose trouble is the test's. It has no others to compare its clock with.
async fn sweep(t: &TestDb, q: &Queue, now: u64) -> Swept {
    let rules = SweepRules::default().with_clock_tolerance(Duration::MAX);
    sweeper(q).sweep(&t.db, &|| from_millis(now), &rules).await.unwrap()
}

#[test]
fn a_row_that_cannot_be_read_is_named_when_it_is_due_and_keeps_no_sweeper_busy() {
    on_database(async |t| {
        // A time without an id; and a number that no program writes, which sorts behind now.
        let places = [pack(&(NOW / 2)), b"\x1b\x00\x00\x00\x00\x00\x00\x07".to_vec()];
        for (event, place) in
            events().into_iter().flat_map(|event| places.iter().map(move |place| (event, place)))
        {
            let q = t.queue(format!("{event} {place:?}"));
            put_alien(t, &q, event, place).await;
            let swept = sweep(t, &q, NOW).await;
            let trouble = swept.trouble.expect("it names the row").error;
            assert!(matches!(&trouble, QueueError::Unreadable { .. }), "{trouble:?}");
            assert!(trouble.to_string().contains(event), "{trouble}");
            assert!(swept.next > Duration::from_secs(1), "{event} {place:?}: again after {:?}", swept.next);
        }
    });
}

#[test]
fn a_row_that_cannot_be_read_waits_for_its_time_and_delays_nothing_before_it() {
    on_database(async |t| {
        for event in events() {
            let q = t.queue(event);
            put_alien(t, &q, event, &pack(&(NOW * 1_000))).await;
            let mut sweeper = sweeper(&q);
            let rules = SweepRules::default().with_clock_tolerance(Duration::MAX);
            let swept = sweeper.sweep(&t.db, &|| from_millis(NOW), &rules).await.unwrap();
            assert!(swept.trouble.is_none() && swept.next > Duration::from_secs(1), "{event}: {swept:?}");
            t.push_items(&q, &[NewItem::new("x").with_due(from_millis(NOW + 1))]).await;
            let swept = sweeper.sweep(&t.db, &|| from_millis(NOW + 1), &rules).await.unwrap();
            assert_eq!((swept.moved.promoted, swept.trouble.is_none()), (1, true), "{event}");
        }
    });
}

#[test]
fn a_row_that_cannot_be_read_stops_none_of_the_others() {
    on_database(async |t| {
        let q = t.queue("q");
        for event in events() {
            put_alien(t, &q, event, &pack(&0)).await;
        }
        let items = [
            NewItem::new("ready").with_due(from_millis(NOW - 1)),
            NewItem::new("expired").with_due(from_millis(NOW + 1)).with_expiry(from_millis(NOW + 2)),
        ];
        t.push_items(&q, &items).await;
        let swept = sweep(t, &q, NOW + 3).await;
        assert_eq!((swept.moved.promoted, swept.moved.expired, t.len(&q).await), (2, 1, 1));
    });
}

#[test]
fn a_row_behind_all_times_is_nobodys() {
    on_database(async |t| {
        for event in events() {
            let q = t.queue(event);
            put_alien(t, &q, event, &pack(&"a text")).await;
            put_alien(t, &q, event, b"\xfe").await;
            let swept = sweep(t, &q, NOW).await;
            // A text stands before all numbers.
            assert!(swept.trouble.is_some(), "{event}");
            let text = record(&q, event, &pack(&"a text"));
            t.run(async |tr| {
                tr.clear(&text);
                Ok(())
            })
            .await;
            let swept = sweep(t, &q, NOW).await;
            assert!(swept.trouble.is_none(), "{event}: {:?}", swept.trouble);
        }
    });
}
