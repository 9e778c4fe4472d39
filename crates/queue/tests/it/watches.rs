//! Waiting for pushes: no wake-up is lost, and none comes for nothing.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use fdb_embedded::Faults;
use foundationdb::options::DatabaseOption;
use futures::{FutureExt, poll};
use kvqueue_queue::{Approach, Watch};

use crate::common::{TestDb, fetch_options, k, on_database, payloads, rules, sweeper};

/// Waits for a watch; a wake-up that does not come in this time is a lost one.
async fn woken(watch: Watch) {
    tokio::time::timeout(Duration::from_secs(30), watch).await.expect("the watch fires").unwrap();
}

#[test]
fn consume_k_returns_a_watch_if_it_finds_fewer_items() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["a", "b", "c"]).await;
        let consume_k = async |n| {
            let tr = t.db.create_trx().unwrap();
            let (items, watch) = q.consume_k(&tr, k(n)).await.unwrap();
            tr.commit().await.unwrap();
            (payloads(&items), watch)
        };
        let (items, watch) = consume_k(2).await;
        assert_eq!((items, watch.is_none()), (vec!["a".to_owned(), "b".to_owned()], true));
        let (items, watch) = consume_k(2).await;
        assert_eq!(items, ["c"]);
        let watch = watch.expect("fewer than two were there");
        t.push(&q, &["d"]).await;
        woken(watch).await;
        assert_eq!(consume_k(1).await.0, ["d"]);
    });
}

#[test]
fn a_pop_that_finds_fewer_does_not_conflict_with_pushes() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["a"]).await;
        let pops = [t.db.create_trx().unwrap(), t.db.create_trx().unwrap()];
        for tr in &pops {
            let popped = q.pop_k(tr, k(3)).await.unwrap();
            assert_eq!((payloads(&popped.items), popped.short), (vec!["a".to_owned()], true));
        }
        t.push(&q, &["b"]).await;
        let [first, second] = pops;
        first.commit().await.unwrap();
        let conflict = second.commit().await.unwrap_err();
        assert_eq!(conflict.code(), 1020, "the item is popped once");
        assert_eq!(payloads(&t.run(async |tr| q.pop_k(tr, k(3)).await).await.items), ["b"]);
    });
}

#[test]
fn pops_do_not_fire_watches() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["a"]).await;
        let tr = t.db.create_trx().unwrap();
        let mut watch = q.watch(&tr);
        tr.commit().await.unwrap();
        t.run(async |tr| q.pop(tr).await).await;
        assert!((&mut watch).now_or_never().is_none());
        t.push(&q, &["b"]).await;
        woken(watch).await;
    });
}

#[test]
fn a_push_between_an_empty_pop_and_its_watch_fires_the_watch() {
    on_database(async |t| {
        let q = t.queue("q");
        let tr = t.db.create_trx().unwrap();
        assert!(q.pop(&tr).await.unwrap().is_none());
        let watch = q.watch(&tr);
        // Committed after what `tr` reads, before `tr` itself.
        t.push(&q, &["a"]).await;
        tr.commit().await.unwrap();
        woken(watch).await;
    });
}

#[test]
fn one_push_wakes_every_idle_session() {
    on_database(async |t| {
        let q = t.queue("q");
        let mut watches = Vec::new();
        for _ in 0..10 {
            watches.push(t.session(&q).take(&t.db, k(1)).await.unwrap().watch.unwrap());
        }
        t.push(&q, &["a"]).await;
        for watch in watches {
            woken(watch).await;
        }
    });
}

#[test]
fn deleting_the_queue_fires_watches() {
    on_database(async |t| {
        let q = t.queue("q");
        t.push(&q, &["a"]).await;
        let mut session = t.session(&q);
        drop(session.take(&t.db, k(1)).await.unwrap());
        let watch = session.take(&t.db, k(1)).await.unwrap().watch.unwrap();
        t.run(async |tr| {
            q.delete(tr);
            Ok(())
        })
        .await;
        woken(watch).await;
    });
}

#[test]
fn no_wake_up_is_lost_under_faults() {
    on_database(async |t| {
        let faults = Faults::seeded(11).unknown_committed(0.2).unknown_not_committed(0.2).conflict(0.1);
        if t.install(faults) {
            rounds(t).await;
        }
    });
}

/// A consumer that idles on its watches alone, against a producer that waits for it.
async fn rounds(t: &TestDb) {
    let q = t.queue("q");
    let (mut consumer, mut producer) = (t.session(&q), t.session(&q));
    for round in 0..200 {
        let watch = loop {
            let taken = consumer.take(&t.db, k(3)).await.unwrap();
            if let Some(watch) = taken.watch {
                break watch;
            }
        };
        assert_eq!(t.len(&q).await, 0, "round {round}");
        producer.push(&t.db, &["a", "b"]).await.unwrap();
        woken(watch).await;
    }
}

#[test]
fn a_refused_watch_pauses_before_it_resolves() {
    on_database(async |t| {
        t.db.set_option(DatabaseOption::MaxWatches(1)).unwrap();
        let q = t.queue("q");
        let _only = t.session(&q).take(&t.db, k(1)).await.unwrap().watch.unwrap();
        let Some(gate) = t.close_gate() else { return };
        let taken = t.session(&q).take(&t.db, k(1)).await.unwrap().watch;
        let mut approach = Approach::Front;
        let mut take = fetch_options(1, 1, &mut approach, true);
        let leased = t.session(&q).fetch(&t.db, &mut take).await.unwrap().watch;
        let swept = t.sweep(&mut sweeper(&q), 1, &rules()).await.watch;
        for watch in [taken.unwrap(), leased.unwrap(), swept] {
            let (mut watch, mut pauses) = (pin!(watch), 0);
            let end = loop {
                match poll!(watch.as_mut()) {
                    Poll::Ready(end) => break end,
                    // Without the gate each would be twice as long as the one before.
                    Poll::Pending => pauses += gate.backoffs().len(),
                }
                tokio::task::yield_now().await;
            };
            assert_eq!((end.unwrap_err().code(), pauses), (1032, 7));
        }
    });
}
