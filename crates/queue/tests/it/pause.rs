//! Pausing a queue.

use std::time::Duration;

use foundationdb::Transaction;
use futures::FutureExt;
use kvqueue_queue::{Pause, Queue, Watch, queues};

use crate::common::{TestDb, kinds_of_records, on_database, record};

async fn woken(watch: Watch) {
    tokio::time::timeout(Duration::from_secs(30), watch).await.expect("the watch fires").unwrap();
}

/// Writes in a transaction of its own.
async fn write(t: &TestDb, body: impl Fn(&Transaction)) {
    t.run(async |tr| {
        body(tr);
        Ok(())
    })
    .await;
}

async fn found(t: &TestDb) -> usize {
    t.run(async |tr| queues(tr, &t.prefix).await).await.len()
}

#[test]
fn a_queue_is_paused_until_it_is_resumed() {
    on_database(async |t| {
        let (q, other) = (t.queue("q"), t.queue("q2"));
        let paused = async |queue: &Queue| t.run(async |tr| queue.paused(tr).await).await;
        assert_eq!(paused(&q).await, None);
        let first = Pause { at: 5, frozen: false, reason: "maintenance".to_owned() };
        write(t, |tr| q.pause(tr, &first)).await;
        assert_eq!((paused(&q).await, paused(&other).await), (Some(first), None));
        let second = Pause { at: 6, frozen: true, reason: "moving".to_owned() };
        write(t, |tr| q.pause(tr, &second)).await;
        assert_eq!(paused(&q).await, Some(second));
        write(t, |tr| q.resume(tr)).await;
        assert_eq!(paused(&q).await, None);
        assert!(t.rows().await.is_empty());
    });
}

#[test]
fn pause_and_resume_wake_who_watches_and_items_do_not() {
    on_database(async |t| {
        let q = t.queue("q");
        let watched = async || {
            let tr = t.db.create_trx().unwrap();
            let watch = (q.watch_pause(&tr),);
            tr.commit().await.unwrap();
            watch
        };
        let mut paused = watched().await.0;
        t.push(&q, &["item"]).await;
        t.run(async |tr| q.pop(tr).await).await;
        assert!((&mut paused).now_or_never().is_none());
        write(t, |tr| q.pause(tr, &Pause::default())).await;
        woken(paused).await;
        let resumed = watched().await.0;
        write(t, |tr| q.resume(tr)).await;
        woken(resumed).await;
    });
}

#[test]
fn a_pause_makes_no_queue_and_goes_with_it() {
    on_database(async |t| {
        let q = t.queue("q");
        write(t, |tr| q.pause(tr, &Pause::default())).await;
        assert_eq!(found(t).await, 0);
        t.push(&q, &["item"]).await;
        assert_eq!(found(t).await, 1);
        assert!(kinds_of_records(t, &q).await.contains("pause"));
        write(t, |tr| q.delete(tr)).await;
        assert!(t.rows().await.is_empty());
    });
}

#[test]
fn a_pause_that_cannot_be_read_is_one() {
    on_database(async |t| {
        let q = t.queue("q");
        write(t, |tr| tr.set(&record(&q, "pause", b""), b"\x09later version")).await;
        let unknown = Pause { at: 0, frozen: true, reason: String::new() };
        assert_eq!(t.run(async |tr| q.paused(tr).await).await, Some(unknown));
    });
}
