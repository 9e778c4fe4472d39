//! A queue that was restored into a database whose versions are behind its items.

use kvqueue_queue::{ItemId, Kind, Packing, PushError, Queue, QueueError, RetryError, Stamp, from_millis};

use crate::common::{TestDb, on_database, record, rules, sweeper};

/// How far the item that was restored is ahead, in versions: more than any test lasts.
const AHEAD: u64 = 3_600_000_000;

/// Stores an item as a restore does.
async fn restore(t: &TestDb, queue: &Queue) -> u64 {
    let version = t.version().await + AHEAD;
    let mut stamp = [0; Stamp::LEN];
    stamp[..8].copy_from_slice(&version.to_be_bytes());
    let id = ItemId::from(Stamp::from(stamp));
    t.run(async |tr| {
        tr.set(&record(queue, "val", id.as_bytes()), b"restored");
        tr.set(&record(queue, "npush", b""), &1_u64.to_le_bytes());
        Ok(())
    })
    .await;
    version
}

fn names_version(error: &QueueError, version: u64) -> bool {
    let text = error.to_string();
    matches!(error, QueueError::VersionsWentBack { item, advance, .. } if *item == version && *advance > version)
        && text.contains("advanceversion")
}

#[test]
fn pushes_are_refused_while_stored_items_have_higher_versions() {
    on_database(async |t| {
        let q = t.queue("q");
        let version = restore(t, &q).await;
        let error = t.session(&q).push(&t.db, &["new"]).await.unwrap_err();
        let PushError::Retry(RetryError { error, .. }) = error else { panic!("{error}") };
        assert!(names_version(&error, version), "{error}");
        let tr = t.db.create_trx().unwrap();
        let error = q.check_versions(&tr).await.unwrap_err();
        assert!(names_version(&error, version), "{error}");
        assert_eq!(t.list(&q).await, ["restored"]);
        // What was restored can be taken; then versions are ahead of all that is left.
        assert!(t.lease(&q, 1).await.is_some());
        t.push(&q, &["new"]).await;
        assert_eq!(t.list(&q).await, ["new"]);
    });
}

#[test]
fn pushes_succeed_after_versions_are_advanced() {
    on_database(async |t| {
        if t.close_gate().is_none() {
            return;
        }
        let q = t.queue("q");
        restore(t, &q).await;
        let mut session = t.session(&q);
        session.push(&t.db, &["new"]).await.unwrap_err();
        t.jump(AHEAD);
        session.push(&t.db, &["new"]).await.unwrap();
        assert_eq!(t.list(&q).await, ["restored", "new"]);
        assert!(t.sweep(&mut sweeper(&q), 0, &rules()).await.trouble.is_none());
    });
}

#[test]
fn a_sweep_reports_that_versions_went_back_and_does_its_other_work() {
    on_database(async |t| {
        let q = t.queue("q");
        t.put_aside(&q, &[("later", 5)]).await;
        let version = restore(t, &q).await;
        let swept = sweeper(&q).sweep(&t.db, &|| from_millis(5), &rules()).await.unwrap();
        assert_eq!(swept.moved.promoted, 1);
        assert!(swept.trouble.is_some_and(|trouble| names_version(&trouble.error, version)));
    });
}

#[test]
fn queues_without_versionstamps_pass_the_version_check() {
    on_database(async |t| {
        let q = t.queue_of("q", Kind::Recipe(Packing::Raw));
        t.push(&q, &["a"]).await;
        t.push(&q, &["b"]).await;
        let tr = t.db.create_trx().unwrap();
        q.check_versions(&tr).await.unwrap();
    });
}
