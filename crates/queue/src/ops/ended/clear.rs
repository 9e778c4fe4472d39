//! Clearing ended items that are too old.

use foundationdb::Transaction;

use super::setting;
use crate::error::QueueError;
use crate::keys::ended::{Setting, from_minute, hour};
use crate::keys::{Space, range};
use crate::meta::Millis;
use mutant::mutant;

/// Clears what is too old, in three ranges, however many items that are. Returns whether anything was due.
pub(crate) async fn clear(space: &Space, tr: &Transaction, now: Millis) -> Result<bool, QueueError> {
    let Some(setting) = setting(space, tr, false).await?.filter(|setting| setting.is_due(now)) else {
        return Ok(false);
    };
    let (groups, runs, results) = (range(&space.ended), range(&space.ended_ids), range(&space.results));
    if setting.retention == 0 {
        tr.clear_range(&groups.0, &groups.1);
        tr.clear_range(&runs.0, &runs.1);
        tr.clear_range(&results.0, &results.1);
        tr.clear(&space.history);
        return Ok(true);
    }
    let cleared = setting.old_before(now);
    tr.clear_range(&groups.0, &from_minute(&space.ended, cleared));
    tr.clear_range(&runs.0, &from_minute(&space.ended_ids, hour(cleared)));
    if !mutant("results-stay") {
        tr.clear_range(&results.0, &from_minute(&space.results, cleared));
    }
    tr.set(&space.history, &Setting { cleared, ..setting }.encode());
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;

    use super::*;
    use crate::history::{Recorder, Recording};
    use crate::id::ItemId;
    use crate::item::Stamp;
    use crate::ops::ended::{begin, keep};
    use crate::ops::scan::Row;
    use crate::queue::Queue;
    use crate::testing::on_database;
    use crate::time::from_millis;

    const HOUR: Millis = 3_600_000;
    const START: Millis = 500_000 * HOUR;

    /// What the removal of one day reads and writes, in bytes, after so many transactions that ended items in it.
    async fn cost(db: &foundationdb::Database, name: &str, transactions: u16) -> i64 {
        let recorder = Recorder::new(Recording::On, None, || from_millis(START));
        let queue = Queue::new(b"", name.as_bytes()).unwrap().with_recorder(&recorder);
        let space = queue.space();
        let tr = db.create_trx().unwrap();
        keep(space, &tr, Duration::from_hours(24)).await.unwrap();
        for n in 0..transactions {
            let mut endings = begin(space, &tr).await.unwrap();
            let id = ItemId::from(Stamp::new([0; 10], n));
            let row = Row { id, value: Bytes::new(), meta: Bytes::new() };
            endings.add_done_with(&tr, &row, b"result");
            endings.write(&tr, None).await.unwrap();
        }
        tr.commit().await.unwrap();
        let tr = db.create_trx().unwrap();
        assert!(clear(space, &tr, START + 48 * HOUR).await.unwrap());
        let size = tr.get_approximate_size().await.unwrap();
        tr.commit().await.unwrap();
        let tr = db.create_trx().unwrap();
        let rows = tr.get_range(&range(&space.queue).into(), 1, true).await.unwrap();
        assert_eq!(rows.len(), 1, "the setting is left");
        size
    }

    #[test]
    fn removing_a_day_costs_the_same_however_many_items_ended_in_it() {
        on_database(async |db| {
            let few = cost(db, "a", 1).await;
            assert!(few < 1_000, "{few}");
            assert_eq!(cost(db, "b", 5_000).await, few);
        });
    }
}
