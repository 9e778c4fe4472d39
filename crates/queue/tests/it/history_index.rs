//! The index of ended items by attributes: it finds what a reading of all of them finds, and reads less.

use std::time::Duration;

use kvqueue_queue::{
    Ending, HistoryFilter, HistoryIndex, ItemId, ItemOutcome, NewItem, Pause, Queue, Recording, RetryPolicy,
    Session, from_millis,
};

use crate::common::ordered::dead;
use crate::common::{KINDS, Millis, TestDb, k, kinds_of_records, on_database, record, rules, sweeper};
use crate::history::{Clock, START, all, page};

const LONG: u64 = 3_600_000_000;
const MINUTE: Millis = 60_000;
const HOUR: Millis = 60 * MINUTE;
/// An index is used for what ends so much later.
const COMPLETE: Millis = 10 * MINUTE;

fn of_customer(value: &str) -> HistoryFilter {
    HistoryFilter { attributes: vec![("customer".to_owned(), value.to_owned())], ..HistoryFilter::default() }
}

async fn declare(t: &TestDb, q: &Queue, names: &[&str], now: Millis) -> bool {
    let index = HistoryIndex::new(names.iter().copied()).unwrap();
    t.run(async |tr| q.index_history(tr, &index, from_millis(now)).await).await
}

/// A queue whose history is kept for a day and indexed by the customer, with a recorder and its clock. The index is complete from `START` on.
async fn indexed(t: &TestDb, q: Queue) -> (Queue, Clock) {
    let clock = Clock::new();
    let q = q.with_recorder(&clock.recorder(Recording::On));
    t.run(async |tr| q.keep_history(tr, Duration::from_hours(24)).await).await;
    assert!(declare(t, &q, &["customer"], START - COMPLETE).await);
    (q, clock)
}

/// Pushes items with these customers, and ends them in one transaction. They are in the order of their ids, of a FIFO queue in that of the customers.
async fn end(t: &TestDb, q: &Queue, customers: &[&str]) -> Vec<ItemId> {
    let items: Vec<_> =
        customers.iter().map(|name| NewItem::new("x").with_attribute("customer", *name)).collect();
    t.push_items(q, &items).await;
    let mut lease = t.lease_for(q, items.len(), LONG).await.unwrap();
    t.acknowledge(&mut lease, &ItemOutcome::Done).await;
    let mut ids: Vec<_> = lease.items().iter().map(|item| item.id.clone()).collect();
    ids.sort();
    ids
}

/// The newest first, in pages of one, three and a hundred.
async fn found(t: &TestDb, q: &Queue, filter: &HistoryFilter) -> Vec<ItemId> {
    let ids =
        async |n| -> Vec<ItemId> { all(t, q, filter, n).await.into_iter().map(|item| item.id).collect() };
    let some = ids(3).await;
    assert_eq!(ids(1).await, some);
    assert_eq!(ids(100).await, some);
    some
}

/// Clears the rows of the index, as nothing but a sweeper does.
async fn forget(t: &TestDb, q: &Queue) {
    let rows = t.records(q, "ended-by").await;
    assert!(!rows.is_empty());
    t.run(async |tr| {
        rows.iter().for_each(|(rest, _)| tr.clear(&record(q, "ended-by", rest)));
        Ok(())
    })
    .await;
}

#[test]
fn items_of_a_value_are_found_in_queues_of_all_kinds() {
    on_database(async |t| {
        for kind in KINDS {
            let (q, clock) = indexed(t, t.queue_of(format!("{kind:?}"), kind)).await;
            let mut of_ann = Vec::new();
            for n in 0..70 {
                clock.set(START + n * 37 * MINUTE / 2);
                let names = [["ann", "bob", "ann"], ["bob", "cyd", "cyd"]][usize::from(n % 5 > 0)];
                let ids = end(t, &q, &names).await;
                for id in ids {
                    let item = t.run(async |tr| q.ended_item(tr, &id).await).await.unwrap();
                    of_ann.extend((item.attributes["customer"] == "ann").then_some(id));
                }
            }
            assert_eq!(of_ann.len(), 28);
            of_ann.reverse();
            assert_eq!(found(t, &q, &of_customer("ann")).await, of_ann, "{kind:?}");
            assert_eq!(found(t, &q, &of_customer("an")).await, []);
            // A part of the time.
            let [since, until] = [START + 3 * HOUR, START + 17 * HOUR + MINUTE / 2].map(from_millis);
            let some = HistoryFilter { since: Some(since), until: Some(until), ..of_customer("ann") };
            let expected = all(t, &q, &of_customer("ann"), 100).await;
            let expected = expected.into_iter().filter(|item| (since..until).contains(&item.ended));
            let expected: Vec<_> = expected.map(|item| item.id).collect();
            assert!(expected.len() > 5);
            assert_eq!(found(t, &q, &some).await, expected);
            // Another condition holds, too.
            let dead = HistoryFilter { ending: Some(Ending::Dead), ..of_customer("ann") };
            assert_eq!(found(t, &q, &dead).await, []);
            // The index was used.
            forget(t, &q).await;
            assert_eq!(found(t, &q, &of_customer("ann")).await, []);
        }
    });
}

#[test]
fn every_end_has_its_row() {
    on_database(async |t| {
        let (q, clock) = indexed(t, t.queue("q")).await;
        let policy = RetryPolicy::default();
        let push = async || {
            let item = NewItem::new("x").with_attribute("customer", "ann");
            t.push_items(&q, &[item]).await;
        };
        clock.set(START);
        end(t, &q, &["ann"]).await;
        push().await;
        t.run(async |tr| q.pop(tr).await).await.unwrap();
        push().await;
        assert_eq!(Session::new(q.clone()).take(&t.db, k(1)).await.unwrap().got.len(), 1);
        push().await;
        let id = t.run(async |tr| q.oldest(tr).await).await.unwrap();
        q.cancel_item(&t.db, &policy, &id).await.unwrap();
        push().await;
        let mut lease = t.lease_for(&q, 1, LONG).await.unwrap();
        t.acknowledge(&mut lease, &dead()).await;
        push().await;
        let mut lease = t.lease_for(&q, 1, LONG).await.unwrap();
        t.acknowledge(&mut lease, &ItemOutcome::DoneWith("result".into())).await;
        let found = all(t, &q, &of_customer("ann"), 2).await;
        let endings: Vec<_> = found.iter().map(|item| item.ending).collect();
        let expected =
            [Ending::Done, Ending::Dead, Ending::Cancelled, Ending::Taken, Ending::Taken, Ending::Done];
        assert_eq!(endings, expected);
        assert_eq!(t.records(&q, "ended-by").await.len(), 6);
    });
}

#[test]
fn items_that_ended_before_the_index_was_complete_are_found_by_reading_all() {
    on_database(async |t| {
        let clock = Clock::new();
        let q = t.queue("q").with_recorder(&clock.recorder(Recording::On));
        let keep = async || t.run(async |tr| q.keep_history(tr, Duration::from_hours(24)).await).await;
        // Without a history there is nothing to be indexed.
        assert!(!declare(t, &q, &["customer"], START).await);
        assert!(keep().await);
        let mut ids = end(t, &q, &["ann", "bob"]).await[..1].to_vec();
        assert!(declare(t, &q, &["customer"], START).await);
        assert!(!declare(t, &q, &["customer"], START + HOUR).await);
        // The recorder knows the index of a minute ago.
        ids.insert(0, end(t, &q, &["ann"]).await.remove(0));
        assert_eq!(t.records(&q, "ended-by").await.len(), 0);
        if !t.jump(61_000_000) {
            return;
        }
        clock.set(START + COMPLETE - 1);
        ids.insert(0, end(t, &q, &["ann"]).await.remove(0));
        assert_eq!(t.records(&q, "ended-by").await.len(), 1);
        for at in [COMPLETE, COMPLETE + 1, 2 * HOUR] {
            clock.set(START + at);
            ids.insert(0, end(t, &q, &["bob", "ann"]).await.remove(1));
        }
        assert_eq!(found(t, &q, &of_customer("ann")).await, ids);
        // The index is used for what ended after it was complete, and only for that.
        forget(t, &q).await;
        assert_eq!(found(t, &q, &of_customer("ann")).await, ids[3..]);
    });
}

#[test]
fn a_clock_that_is_behind_does_not_make_an_index_complete_too_early() {
    on_database(async |t| {
        let clock = Clock::new();
        let q = t.queue("q").with_recorder(&clock.recorder(Recording::On));
        t.run(async |tr| q.keep_history(tr, Duration::from_hours(24)).await).await;
        let ids = end(t, &q, &["ann"]).await;
        assert!(declare(t, &q, &["customer"], START - 5 * HOUR).await);
        assert_eq!(found(t, &q, &of_customer("ann")).await, ids);
    });
}

#[test]
fn a_clock_that_is_far_ahead_hides_no_items() {
    on_database(async |t| {
        let (q, clock) = indexed(t, t.queue("q")).await;
        let mut ids = end(t, &q, &["ann"]).await;
        clock.set(START + 3_000 * HOUR);
        ids.insert(0, end(t, &q, &["ann"]).await.remove(0));
        assert_eq!(found(t, &q, &of_customer("ann")).await, ids);
        for id in &ids {
            assert!(t.run(async |tr| q.ended_item(tr, id).await).await.is_some());
        }
        // A new index is complete a day later at most.
        assert!(declare(t, &q, &["order"], START).await);
        assert!(declare(t, &q, &["customer"], START).await);
        clock.set(START + 25 * HOUR);
        ids.insert(1, end(t, &q, &["ann"]).await.remove(0));
        assert_eq!(found(t, &q, &of_customer("ann")).await, ids);
        forget(t, &q).await;
        assert_eq!(found(t, &q, &of_customer("ann")).await, ids[2..]);
    });
}

#[test]
fn a_history_that_is_turned_off_and_on_again_has_a_new_index() {
    on_database(async |t| {
        let clock = Clock::new();
        let q = t.queue("q").with_recorder(&clock.recorder(Recording::AsStored));
        let keep = async |kept| t.run(async |tr| q.keep_history(tr, kept).await).await;
        keep(Duration::from_hours(24)).await;
        assert!(declare(t, &q, &["customer"], START - COMPLETE).await);
        let before = end(t, &q, &["ann"]).await;
        assert_eq!(t.records(&q, "ended-by").await.len(), 1);
        assert_eq!(found(t, &q, &of_customer("ann")).await, before);
        keep(Duration::ZERO).await;
        // Nothing is recorded until it is on again, and then there is no index.
        end(t, &q, &["ann"]).await;
        keep(Duration::from_hours(24)).await;
        let ids = end(t, &q, &["ann"]).await;
        assert_eq!(t.records(&q, "ended-by").await.len(), 1);
        assert_eq!(found(t, &q, &of_customer("ann")).await, [ids.clone(), before].concat());
        assert!(declare(t, &q, &["customer"], START).await);
        // A deleted queue has no index, and a new one of its name none either.
        t.run(async |tr| {
            q.delete(tr);
            Ok(())
        })
        .await;
        assert_eq!(found(t, &q, &of_customer("ann")).await, []);
        assert_eq!(t.run(async |tr| q.history_index(tr).await).await, HistoryIndex::default());
    });
}

#[test]
fn rows_whose_items_are_cleared_already_are_not_read() {
    on_database(async |t| {
        let (q, clock) = indexed(t, t.queue("q")).await;
        t.run(async |tr| q.keep_history(tr, Duration::from_mins(30)).await).await;
        let mut ids = Vec::new();
        for minute in 0..50 {
            clock.set(START + minute * MINUTE);
            ids.extend(end(t, &q, &["ann"]).await);
        }
        t.sweep(&mut sweeper(&q), START + 50 * MINUTE, &rules()).await;
        // The hour is not over.
        assert_eq!(t.records(&q, "ended-by").await.len(), 50);
        let found = found(t, &q, &of_customer("ann")).await;
        ids.reverse();
        assert_eq!(found, ids[..found.len()]);
        assert!((30..=32).contains(&found.len()), "{}", found.len());
        // Until an hour that is at its beginning.
        let until = HistoryFilter { until: Some(from_millis(START + HOUR)), ..of_customer("ann") };
        assert_eq!(all(t, &q, &until, 7).await.len(), found.len());
        let until = HistoryFilter { until: Some(from_millis(START)), ..of_customer("ann") };
        assert_eq!(all(t, &q, &until, 7).await, []);
    });
}

#[test]
fn rows_of_another_layout_are_counted() {
    on_database(async |t| {
        let (q, _) = indexed(t, t.queue("q")).await;
        let ids = end(t, &q, &["ann"]).await;
        let mut row = t.records(&q, "ended-by").await.remove(0).0;
        row.pop();
        let at = row.len() - 25;
        row[at..].fill(0x2a);
        t.run(async |tr| {
            tr.set(&record(&q, "ended-by", &row), b"");
            Ok(())
        })
        .await;
        let page = page(t, &q, &of_customer("ann"), None, 10).await;
        assert_eq!((page.items.len(), page.unreadable), (ids.len(), 1));
    });
}

#[test]
fn a_name_that_is_declared_again_is_complete_later() {
    on_database(async |t| {
        let (q, clock) = indexed(t, t.queue("q")).await;
        let mut ids = end(t, &q, &["ann"]).await;
        // Another name stays as it is.
        assert!(declare(t, &q, &["customer", "order"], START + HOUR).await);
        assert_eq!(found(t, &q, &of_customer("ann")).await, ids);
        assert!(declare(t, &q, &["order"], START + HOUR).await);
        if !t.jump(61_000_000) {
            return;
        }
        clock.set(START + HOUR);
        ids.insert(0, end(t, &q, &["ann"]).await.remove(0));
        assert_eq!(t.records(&q, "ended-by").await.len(), 1);
        assert_eq!(found(t, &q, &of_customer("ann")).await, ids);
        assert!(declare(t, &q, &["customer"], START + 2 * HOUR).await);
        assert_eq!(found(t, &q, &of_customer("ann")).await, ids);
        let names = t.run(async |tr| q.history_index(tr).await).await;
        assert!(names.names().eq(["customer"]));
        // Another time leaves the index as it is.
        t.run(async |tr| q.keep_history(tr, Duration::from_hours(48)).await).await;
        assert!(!declare(t, &q, &["customer"], START + 2 * HOUR).await);
    });
}

#[test]
fn values_that_begin_alike_are_different() {
    on_database(async |t| {
        let (q, _) = indexed(t, t.queue("q")).await;
        let long = "x".repeat(5_000);
        let other = format!("{}y", "x".repeat(4_999));
        let names = [&long, &other, "", "\u{0}", "\u{0}\u{ff}"];
        let ids = end(t, &q, &names).await;
        end(t, &q, &[&other]).await;
        for (name, id) in names.into_iter().zip(ids) {
            let found = found(t, &q, &of_customer(name)).await;
            assert!(
                found.contains(&id) && found.len() == 1 + usize::from(name == other),
                "{name}: {found:?}"
            );
        }
    });
}

#[test]
fn a_frequent_value_has_more_groups_than_are_read_at_once() {
    on_database(async |t| {
        let (q, clock) = indexed(t, t.queue("q")).await;
        let mut ids = Vec::new();
        for n in 0..300 {
            clock.set(START + n * 20_000);
            ids.extend(end(t, &q, &["ann"]).await);
        }
        ids.reverse();
        let ended = all(t, &q, &of_customer("ann"), 7).await;
        assert!(ended.iter().map(|item| &item.id).eq(&ids));
        let page = page(t, &q, &of_customer("ann"), None, 300).await;
        assert_eq!(page.items, ended);
        // None of them matches, and all groups are read.
        let dead = HistoryFilter { ending: Some(Ending::Dead), ..of_customer("ann") };
        assert_eq!(all(t, &q, &dead, 7).await, []);
    });
}

#[test]
fn rows_are_cleared_with_the_items() {
    on_database(async |t| {
        let (q, clock) = indexed(t, t.queue("q")).await;
        for hour in 0..30 {
            clock.set(START + hour * HOUR + MINUTE);
            end(t, &q, &["ann"]).await;
        }
        let mut sweeper = sweeper(&q);
        t.sweep(&mut sweeper, START + 30 * HOUR, &rules()).await;
        assert_eq!(t.records(&q, "ended-by").await.len(), 24);
        assert_eq!(found(t, &q, &of_customer("ann")).await.len(), 24);
        // Turned off, the index is gone with the history.
        t.run(async |tr| q.keep_history(tr, Duration::ZERO).await).await;
        assert_eq!(t.run(async |tr| q.history_index(tr).await).await, HistoryIndex::default());
        t.sweep(&mut sweeper, START + 30 * HOUR, &rules()).await;
        let kinds = kinds_of_records(t, &q).await;
        assert!(!kinds.iter().any(|kind| kind.starts_with("ended") || kind == "history"), "{kinds:?}");
    });
}

#[test]
fn the_index_of_a_frozen_queue_does_not_change() {
    on_database(async |t| {
        let (q, _) = indexed(t, t.queue("q")).await;
        let pause = Pause { frozen: true, ..Pause::default() };
        t.run(async |tr| {
            q.pause(tr, &pause);
            Ok(())
        })
        .await;
        let tr = t.db.create_trx().unwrap();
        q.index_history(&tr, &HistoryIndex::default(), from_millis(START)).await.unwrap_err();
    });
}

#[test]
fn a_setting_that_cannot_be_read_prevents_neither_ends_nor_searches() {
    on_database(async |t| {
        let (q, _) = indexed(t, t.queue("q")).await;
        t.run(async |tr| {
            tr.set(&record(&q, "history", b""), b"\x01");
            Ok(())
        })
        .await;
        let ids = end(t, &q, &["ann"]).await;
        assert_eq!(found(t, &q, &of_customer("ann")).await, ids);
    });
}
