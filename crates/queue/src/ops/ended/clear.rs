//! Clearing ended items that are too old.

use foundationdb::{KeySelector, Transaction};

use super::setting;
use crate::keys::ended::{HOUR, Setting, from_minute, hour, minute};
use crate::keys::{Space, range};
use crate::model::element::split_number;
use crate::model::error::QueueError;
use crate::model::time::Millis;
use crate::run::range_read::RangeRead;
use mutant::{bound, mutant};

/// The most rows of an index that are cleared in a transaction. There may be one for each item, and an engine that goes through them takes about 5 ms for
/// this number.
fn slice_rows() -> usize {
    bound("history-clear-slice", 10_000)
}

/// Takes one step of clearing what is too old: [`slice_rows`] rows of an index if more of them are too old, otherwise an hour of everything. An engine that goes
/// through the rows takes long for more. A sweep continues while more is due. Returns whether anything was due.
pub(crate) async fn clear(space: &Space, tr: &Transaction, now: Millis) -> Result<bool, QueueError> {
    clear_slice(space, tr, now, slice_rows()).await
}

async fn clear_slice(space: &Space, tr: &Transaction, now: Millis, slice: usize) -> Result<bool, QueueError> {
    let Some(mut setting) = setting(space, tr, false).await?.filter(|setting| setting.is_due(now)) else {
        return Ok(false);
    };
    let cleared = clear_until(space, tr, &setting, now).await?;
    // Up to now, and what is ended meanwhile: a sweep must not go on for ever.
    let is_end = setting.retention == 0 && cleared > minute(now);
    let (begin, all) = range(&space.ended_by);
    let end = if is_end { all } else { from_minute(&space.ended_by, hour(cleared)) };
    if let Some(slice_end) = nth_key(tr, (&begin, &end), slice).await? {
        tr.clear_range(&begin, &slice_end);
        // The setting may get a longer time now, and then the groups stay. Without these rows, only a search that reads all finds them.
        setting.indexed.values_mut().for_each(|from| *from = cleared.max(*from));
        tr.set(&space.history, &setting.encode());
        return Ok(true);
    }
    if is_end {
        for prefix in [&space.ended, &space.ended_ids, &space.ended_by, &space.results] {
            let (begin, end) = range(prefix);
            tr.clear_range(&begin, &end);
        }
        tr.clear(&space.history);
        return Ok(true);
    }
    let clear_to = |prefix: &[u8], end: u64| tr.clear_range(&range(prefix).0, &from_minute(prefix, end));
    clear_to(&space.ended, cleared);
    clear_to(&space.ended_ids, hour(cleared));
    if !mutant("index-rows-stay") {
        clear_to(&space.ended_by, hour(cleared));
    }
    if !mutant("results-stay") {
        clear_to(&space.results, cleared);
    }
    tr.set(&space.history, &Setting { cleared, ..setting }.encode());
    Ok(true)
}

/// The minute before which a step clears: at most to the end of the first hour that has rows.
async fn clear_until(
    space: &Space,
    tr: &Transaction,
    setting: &Setting,
    now: Millis,
) -> Result<u64, QueueError> {
    let old_before = if setting.retention == 0 { u64::MAX } else { setting.old_before(now) };
    let until = first_hours_end(space, tr).await?.unwrap_or(u64::MAX).min(old_before);
    // A program whose clock is slow may have written rows to minutes that are cleared: these go, and what is cleared stays cleared. But a sweeper whose clock
    // was far ahead has cleared minutes that are still to come.
    Ok(if setting.is_cleared_ahead(now) { until } else { until.max(setting.cleared) })
}

/// The key of the row with this number in a range, counted from 0; `None` if the range has fewer rows. It reads the rows before that one, since a key selector would go
/// on behind the range.
async fn nth_key(tr: &Transaction, range: (&[u8], &[u8]), n: usize) -> Result<Option<Vec<u8>>, QueueError> {
    let (mut pages, mut before) = (RangeRead::of(range).limit(n + 1).pages(tr), 0);
    while let Some(page) = pages.next_page().await? {
        if let Some(row) = page.iter().nth(n - before) {
            return Ok(Some(row.key().to_vec()));
        }
        before += page.len();
    }
    Ok(None)
}

/// The minute at which the hour of the first row ends; `None` if there is no row.
async fn first_hours_end(space: &Space, tr: &Transaction) -> Result<Option<u64>, QueueError> {
    let first = KeySelector::first_greater_or_equal(space.ended.as_slice());
    let first = tr.get_key(&first, true).await?;
    let minute = first.strip_prefix(space.ended.as_slice()).and_then(split_number).map(|(minute, _)| minute);
    Ok(minute.map(|minute| (hour(minute) + 1).saturating_mul(HOUR)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering::Relaxed;
    use std::time::Duration;

    use bytes::Bytes;

    use super::*;
    use crate::client::queue::Queue;
    use crate::keys::meta;
    use crate::model::history::HistoryIndex;
    use crate::model::id::ItemId;
    use crate::model::meta::Meta;
    use crate::model::recorder::{Recorder, Recording};
    use crate::model::stamp::Stamp;
    use crate::model::time::from_millis;
    use crate::ops::ended::{begin, declare_index, keep};
    use crate::ops::scan::Row;
    use crate::testing::on_database;

    const AN_HOUR: Millis = 3_600_000;
    const START: Millis = 500_000 * AN_HOUR;

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
            endings.add_done_with(&tr, &row.id, &row.meta, b"result");
            endings.write(&tr, None).await.unwrap();
        }
        tr.commit().await.unwrap();
        let tr = db.create_trx().unwrap();
        assert!(clear(space, &tr, START + 48 * AN_HOUR).await.unwrap());
        let size = tr.get_approximate_size().await.unwrap();
        tr.commit().await.unwrap();
        let tr = db.create_trx().unwrap();
        let rows = tr.get_range(&range(&space.queue).into(), 1, true).await.unwrap();
        assert_eq!(rows.len(), 1, "the setting is left");
        size
    }

    #[test]
    fn old_rows_are_cleared_an_hour_at_a_time() {
        on_database(async |db| {
            let clock = Arc::new(AtomicU64::new(START));
            let its = clock.clone();
            let recorder = Recorder::new(Recording::On, None, move || from_millis(its.load(Relaxed)));
            let queue = Queue::new(b"", b"steps").unwrap().with_recorder(&recorder);
            let space = queue.space();
            let tr = db.create_trx().unwrap();
            keep(space, &tr, Duration::from_hours(1)).await.unwrap();
            for n in 0..4 {
                clock.store(START + u64::from(n) * AN_HOUR + 1, Relaxed);
                let mut endings = begin(space, &tr).await.unwrap();
                let id = ItemId::from(Stamp::new([0; 10], n));
                endings.add_done_with(&tr, &id, &[], b"result");
                endings.write(&tr, None).await.unwrap();
            }
            tr.commit().await.unwrap();
            let now = START + 3 * AN_HOUR;
            let step = async || {
                let tr = db.create_trx().unwrap();
                let was_due = clear(space, &tr, now).await.unwrap();
                tr.commit().await.unwrap();
                let tr = db.create_trx().unwrap();
                let left =
                    async |prefix: &[u8]| tr.get_range(&range(prefix).into(), 1, true).await.unwrap().len();
                assert_eq!(left(&space.results).await, left(&space.ended).await);
                (was_due, left(&space.ended).await, left(&space.ended_ids).await)
            };
            // Two hours are older than an hour.
            assert_eq!(step().await, (true, 3, 3));
            assert_eq!(step().await, (true, 2, 2));
            assert_eq!(step().await, (false, 2, 2));
            // Of all, the last step takes the setting along, and what is ended meanwhile.
            let tr = db.create_trx().unwrap();
            keep(space, &tr, Duration::ZERO).await.unwrap();
            tr.commit().await.unwrap();
            assert_eq!(step().await, (true, 1, 1));
            assert_eq!(step().await, (true, 0, 0));
            assert_eq!(step().await, (false, 0, 0));
        });
    }

    #[test]
    fn an_index_is_cleared_in_slices_before_its_hour_is() {
        on_database(async |db| {
            let recorder = Recorder::new(Recording::On, None, || from_millis(START));
            let queue = Queue::new(b"", b"slices").unwrap().with_recorder(&recorder);
            let space = queue.space();
            let tr = db.create_trx().unwrap();
            keep(space, &tr, Duration::from_hours(1)).await.unwrap();
            declare_index(space, &tr, &HistoryIndex::new(["k"]).unwrap(), START).await.unwrap();
            for n in 0..10 {
                let mut endings = begin(space, &tr).await.unwrap();
                let attributes = [("k".to_owned(), n.to_string())].into();
                let meta = meta::encode(&Meta { attributes, ..Meta::default() });
                let id = ItemId::from(Stamp::new([0; 10], n));
                endings.add_done(&id, &meta);
                endings.write(&tr, None).await.unwrap();
            }
            tr.commit().await.unwrap();
            let step = async || {
                let tr = db.create_trx().unwrap();
                let was_due = clear_slice(space, &tr, START + 2 * AN_HOUR, 4).await.unwrap();
                tr.commit().await.unwrap();
                let tr = db.create_trx().unwrap();
                let left =
                    async |prefix: &[u8]| tr.get_range(&range(prefix).into(), 1, true).await.unwrap().len();
                let from = setting(space, &tr, true).await.unwrap().unwrap().indexed["k"];
                (was_due, left(&space.ended_by).await, left(&space.ended).await, from)
            };
            let second_hour = minute(START + AN_HOUR);
            // Of an hour that has lost rows, the index is no longer complete.
            assert_eq!(step().await, (true, 6, 10, second_hour));
            assert_eq!(step().await, (true, 2, 10, second_hour));
            assert_eq!(step().await, (true, 0, 0, second_hour));
            assert_eq!(step().await, (false, 0, 0, second_hour));
        });
    }

    #[test]
    fn cleared_minutes_stay_cleared_if_a_slow_clock_writes_rows_there() {
        on_database(async |db| {
            let recorder = Recorder::new(Recording::On, None, || from_millis(START));
            let queue = Queue::new(b"", b"slow").unwrap().with_recorder(&recorder);
            let space = queue.space();
            let tr = db.create_trx().unwrap();
            keep(space, &tr, Duration::from_hours(1)).await.unwrap();
            tr.commit().await.unwrap();
            let cleared = async |now| {
                let tr = db.create_trx().unwrap();
                let was_due = clear(space, &tr, now).await.unwrap();
                tr.commit().await.unwrap();
                let tr = db.create_trx().unwrap();
                let left = tr.get_range(&range(&space.ended).into(), 1, true).await.unwrap().len();
                (was_due, left, setting(space, &tr, true).await.unwrap().unwrap().cleared)
            };
            let minute_of = |hours: u64| minute(START + hours * AN_HOUR);
            assert_eq!(cleared(START + 4 * AN_HOUR).await, (true, 0, minute_of(3)));
            let tr = db.create_trx().unwrap();
            let mut endings = begin(space, &tr).await.unwrap();
            let id = ItemId::from(Stamp::new([0; 10], 1));
            endings.add_done(&id, &[]);
            endings.write(&tr, None).await.unwrap();
            tr.commit().await.unwrap();
            assert_eq!(cleared(START + 5 * AN_HOUR).await, (true, 0, minute_of(3)));
            assert_eq!(cleared(START + 5 * AN_HOUR).await, (true, 0, minute_of(4)));
        });
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
