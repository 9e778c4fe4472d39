//! Keyed queues beyond one page of rows and one reply of the database.

use std::time::Duration;

use kvqueue_queue::{ItemOutcome, NewItem, Scope};
use mutant::Bounds;

use crate::common::keyed::{fetch, keyed};
use crate::common::on_database;

#[test]
fn throttles_are_kept_when_their_timers_fill_several_replies() {
    let _bounds = Bounds::default().with("reply-bytes", 500).enter();
    on_database(async |t| {
        let q = keyed(t);
        let items: Vec<_> = (0..60).map(|n| NewItem::new("x").with_key(format!("k{n}"))).collect();
        t.push_items(&q, &items).await;
        let mut session = t.session(&q);
        let throttle = ItemOutcome::Throttle { scope: Scope::Key, wait: Duration::from_secs(1_000) };
        let mut calls = 0;
        // Each item is called once.
        while let Some(mut lease) = fetch(t, &mut session, 100).await {
            calls += lease.items().len();
            assert!(calls <= 60, "items are called although their keys are throttled");
            t.acknowledge(&mut lease, &throttle).await;
        }
        assert_eq!(calls, 60);
    });
}

#[test]
fn slots_of_many_keys_that_become_free_together_are_all_passed_on() {
    let _bounds = Bounds::default().with("reply-bytes", 300).enter();
    on_database(async |t| {
        let q = keyed(t);
        crate::common::keyed::limit(t, &q, "t", crate::common::keyed::running(40)).await;
        let items: Vec<_> = (0..80).map(|n| NewItem::new("x").with_key(format!("t/{n}"))).collect();
        t.push_items(&q, &items).await;
        let mut session = t.session(&q);
        let mut lease = fetch(t, &mut session, 80).await.unwrap();
        assert_eq!(lease.items().len(), 40);
        // Parks the other keys.
        assert!(fetch(t, &mut session, 80).await.is_none());
        t.acknowledge(&mut lease, &ItemOutcome::Done).await;
        assert_eq!(fetch(t, &mut session, 80).await.unwrap().items().len(), 40);
    });
}

#[test]
fn a_fetch_of_a_thousand_keys_gets_as_many_items_as_their_places_allow() {
    on_database(async |t| {
        for (key, least) in [(10, 1_000), (30, 1_000), (100, 800), (200, 500)] {
            let q = t.queue_of(format!("q{key}"), kvqueue_queue::Kind::Keyed);
            for from in [0, 500] {
                let item = |n: usize| NewItem::new("x").with_key(format!("{n:0>key$}"));
                t.push_items(&q, &(from..from + 500).map(item).collect::<Vec<_>>()).await;
            }
            let got = fetch(t, &mut t.session(&q), 1_000).await.unwrap().items().len();
            assert!(got >= least, "{got} items of keys of {key} bytes");
        }
    });
}
