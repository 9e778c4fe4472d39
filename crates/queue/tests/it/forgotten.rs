//! Operations that are old enough are forgotten, and no others.

use fdb_embedded::Fault::{self, Conflict, UnknownCommitted, UnknownNotCommitted};
use fdb_embedded::Faults;
use kvqueue_queue::{ItemId, Queue, Stamp, SweepRules};

use crate::common::{TestDb, on_database, record, rules, sweeper};

/// How long operations are kept here, in versions: longer than a test takes, and less than the age of any database.
const KEPT: u64 = 40_000_000;

/// Stores operations as if each had been pushed so long ago.
async fn store(t: &TestDb, queue: &Queue, ages: impl Iterator<Item = u64> + Clone) {
    let now = t.run(async |tr| Ok(tr.get_read_version().await?)).await.cast_unsigned();
    t.run(async |tr| {
        for (n, age) in ages.clone().enumerate() {
            let mut stamp = [0; Stamp::LEN];
            stamp[..8].copy_from_slice(&(now - age).to_be_bytes());
            stamp[8..].copy_from_slice(&(n as u32).to_be_bytes());
            let (id, log) = (format!("op{n}"), ItemId::from(Stamp::from(stamp)));
            tr.set(&record(queue, "op", &[b"\x01", id.as_bytes(), b"\0"].concat()), &[0; 16]);
            tr.set(&record(queue, "oplog", log.as_bytes()), id.as_bytes());
        }
        Ok(())
    })
    .await;
}

async fn left(t: &TestDb, queue: &Queue) -> (usize, usize) {
    (t.records(queue, "op").await.len(), t.records(queue, "oplog").await.len())
}

#[test]
fn old_operations_are_forgotten_and_young_ones_kept() {
    on_database(async |t| {
        let q = t.queue("q");
        let rules = SweepRules { operations_kept: KEPT, ..rules() };
        store(t, &q, [2 * KEPT, KEPT + 1, KEPT / 2, 0].into_iter()).await;
        assert_eq!(t.sweep(&mut sweeper(&q), 0, &rules).await.moved.operations, 2);
        assert_eq!(left(t, &q).await, (2, 2));
        assert_eq!(t.sweep(&mut sweeper(&q), 0, &rules).await.moved.operations, 0);
    });
}

#[test]
fn more_operations_than_one_transaction_forgets() {
    on_database(async |t| {
        let q = t.queue("q");
        store(t, &q, std::iter::repeat_n(2 * KEPT, 2_500)).await;
        let rules = SweepRules { operations_kept: KEPT, ..rules() };
        assert_eq!(t.sweep(&mut sweeper(&q), 0, &rules).await.moved.operations, 2_500);
        assert_eq!(left(t, &q).await, (0, 0));
    });
}

#[test]
fn operations_are_forgotten_once_under_unknown_outcomes() {
    on_database(async |t| {
        let scripts: [&[Fault]; 3] =
            [&[UnknownCommitted], &[UnknownNotCommitted, UnknownCommitted], &[Conflict, UnknownNotCommitted]];
        for script in scripts {
            let q = t.queue(format!("{script:?}"));
            store(t, &q, [2 * KEPT, 0].into_iter()).await;
            if !t.install(Faults::script(script.to_vec())) {
                return;
            }
            let rules = SweepRules { operations_kept: KEPT, ..rules() };
            let forgotten = t.sweep(&mut sweeper(&q), 0, &rules).await.moved.operations;
            t.end_faults();
            assert_eq!((forgotten, left(t, &q).await), (1, (1, 1)), "{script:?}");
        }
    });
}
