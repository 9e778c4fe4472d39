//! Cancelling running items: what their holders find, and what commits at the same time.

use std::time::Duration;

use fdb_embedded::Faults;
use kvqueue_queue::{
    Approach, CancelFilter, Canceller, CommitStatus, FetchOptions, ItemChange, ItemId, ItemOutcome,
    ItemState, Lease, LeaseError, Queue, RetryPolicy, Session,
};

use crate::common::{TestDb, k, later, on_database, record, rules, sweeper};
use crate::unknown::scripts;

const HOUR: u64 = 3_600_000_000;

async fn cancel(t: &TestDb, q: &Queue, id: &ItemId) -> ItemChange {
    q.cancel_item(&t.db, &RetryPolicy::default(), id).await.unwrap()
}

async fn state(t: &TestDb, q: &Queue, id: &ItemId) -> Option<ItemState> {
    t.run(async |tr| q.view_item(tr, id).await).await.map(|view| view.state)
}

/// A lease on so many items.
async fn lease(t: &TestDb, q: &Queue, n: usize) -> (Lease, Vec<ItemId>) {
    let payloads: Vec<String> = (0..n).map(|n| n.to_string()).collect();
    t.session(q).push(&t.db, &payloads).await.unwrap();
    let lease = t.lease_for(q, n, HOUR).await.unwrap();
    let ids = lease.items().iter().map(|item| item.id.clone()).collect();
    (lease, ids)
}

/// The items that are known to be cancelled.
fn cancelled(lease: &Lease) -> Vec<usize> {
    (0..lease.items().len()).filter(|index| lease.is_cancelled(*index)).collect()
}

const DONE: ItemOutcome = ItemOutcome::Done;

#[test]
fn a_holder_finds_out_about_a_cancellation_when_it_acknowledges_or_extends() {
    on_database(async |t| {
        let (q, policy) = (t.queue("q"), RetryPolicy::default());
        let (mut lease, ids) = lease(t, &q, 4).await;
        assert_eq!(cancel(t, &q, &ids[1]).await, ItemChange::Done(ItemState::Running));
        assert_eq!(cancelled(&lease), [0; 0]);
        // Its outcome is passed over, and that of the other is written.
        lease.acknowledge(&t.db, &policy, &[(0, DONE), (1, later(5))]).await.unwrap();
        assert_eq!((cancelled(&lease), lease.open().collect::<Vec<_>>()), (vec![1], vec![2, 3]));
        assert_eq!((state(t, &q, &ids[1]).await, t.counter(&q, "ndone").await), (None, 1));
        cancel(t, &q, &ids[2]).await;
        lease.extend(&t.db, &policy).await.unwrap();
        assert_eq!((cancelled(&lease), lease.open().collect::<Vec<_>>()), (vec![1, 2], vec![3]));
        // The last one ends the lease, which is not lost.
        cancel(t, &q, &ids[3]).await;
        assert!(t.records(&q, "lease").await.is_empty());
        assert_eq!(t.records(&q, "cancelled").await.len(), 1);
        lease.acknowledge(&t.db, &policy, &[(3, DONE)]).await.unwrap();
        assert_eq!((cancelled(&lease), lease.is_acknowledged()), (vec![1, 2, 3], true));
        assert_eq!(t.counter(&q, "ndone").await, 1);
        assert!(t.records(&q, "cancelled").await.is_empty());
    });
}

#[test]
fn the_record_of_cancelled_items_ends_with_the_lease() {
    on_database(async |t| {
        let (q, policy) = (t.queue("q"), RetryPolicy::default());
        let (mut lease, ids) = lease(t, &q, 2).await;
        cancel(t, &q, &ids[0]).await;
        lease.acknowledge(&t.db, &policy, &[(1, DONE)]).await.unwrap();
        assert_eq!(cancelled(&lease), [0]);
        assert!(lease.is_acknowledged());
        for kind in ["lease", "held", "cancelled"] {
            assert!(t.records(&q, kind).await.is_empty(), "{kind}");
        }
    });
}

#[test]
fn a_holder_can_look_for_cancelled_items() {
    on_database(async |t| {
        let (q, policy) = (t.queue("q"), RetryPolicy::default());
        let (mut lease, ids) = lease(t, &q, 3).await;
        lease.acknowledge(&t.db, &policy, &[(0, DONE)]).await.unwrap();
        lease.look_for_cancelled(&t.db, &policy).await.unwrap();
        assert_eq!(cancelled(&lease), [0; 0]);
        cancel(t, &q, &ids[1]).await;
        lease.look_for_cancelled(&t.db, &policy).await.unwrap();
        assert_eq!((cancelled(&lease), lease.is_acknowledged()), (vec![1], false));
        cancel(t, &q, &ids[2]).await;
        lease.look_for_cancelled(&t.db, &policy).await.unwrap();
        assert_eq!((cancelled(&lease), lease.is_acknowledged()), (vec![1, 2], true));
        assert!(t.records(&q, "cancelled").await.is_empty());
    });
}

#[test]
fn a_cancellation_wakes_those_who_watch_for_one() {
    on_database(async |t| {
        let q = t.queue("q");
        let (_lease, ids) = lease(t, &q, 1).await;
        let tr = t.db.create_trx().unwrap();
        let watch = q.watch_cancellations(&tr);
        tr.commit().await.unwrap();
        cancel(t, &q, &ids[0]).await;
        tokio::time::timeout(Duration::from_secs(10), watch).await.unwrap().unwrap();
    });
}

/// A handler's own writes must not commit with an item that is cancelled before.
#[test]
fn a_transaction_with_an_acknowledgement_does_not_commit_after_the_cancellation() {
    on_database(async |t| {
        let q = t.queue("q");
        // Of one item, whose lease is then over, and of two.
        for n in [1, 2] {
            let (mut lease, ids) = lease(t, &q, n).await;
            let effect = [t.prefix.as_slice(), b"zz effect"].concat();
            // It has read the lease before the cancellation commits.
            let early = t.db.create_trx().unwrap();
            early.set(&effect, b"early");
            let acknowledgement = lease.acknowledge_in(&early, &[(0, DONE)]).await.unwrap();
            assert!(acknowledgement.is_some());
            // It has read something else before.
            let between = t.db.create_trx().unwrap();
            between.get(&effect, false).await.unwrap();
            assert_eq!(cancel(t, &q, &ids[0]).await, ItemChange::Done(ItemState::Running));
            assert!(early.commit().await.unwrap_err().is_retryable_not_committed());
            // Its snapshot is from before the cancellation, so it finds the item open; it conflicts.
            between.set(&effect, b"between");
            assert!(lease.acknowledge_in(&between, &[(0, DONE)]).await.unwrap().is_some());
            assert!(between.commit().await.is_err());
            // And one that begins afterwards gets an error.
            let late = t.db.create_trx().unwrap();
            late.set(&effect, b"late");
            let refused = lease.acknowledge_in(&late, &[(0, DONE)]).await.unwrap_err();
            assert!(matches!(&refused, LeaseError::Cancelled { items } if *items == [0]), "{refused}");
            // So is one that asks what became of its commit.
            let tr = t.db.create_trx().unwrap();
            assert_eq!(lease.find_out(&tr, &[(0, DONE)]).await.unwrap(), CommitStatus::NotCommitted, "{n}");
            assert!(t.run(async |tr| Ok(tr.get(&effect, false).await?.is_none())).await);
            let rest: Vec<_> = lease.open().map(|index| (index, DONE)).collect();
            assert_eq!(rest.len(), n - 1);
            lease.acknowledge(&t.db, &RetryPolicy::default(), &rest).await.unwrap();
        }
    });
}

/// An acknowledgement of another item of the lease finds the cancellation first.
#[test]
fn a_transaction_is_refused_also_if_an_earlier_one_of_the_lease_has_found_the_cancellation() {
    on_database(async |t| {
        let q = t.queue("q");
        // The lease goes on after the second item, or is over.
        for n in [3, 2] {
            let (mut lease, ids) = lease(t, &q, n).await;
            assert_eq!(cancel(t, &q, &ids[0]).await, ItemChange::Done(ItemState::Running));
            let other = t.db.create_trx().unwrap();
            let acknowledgement = lease.acknowledge_in(&other, &[(1, DONE)]).await.unwrap().unwrap();
            other.commit().await.unwrap();
            lease.acknowledged(acknowledgement);
            assert!(lease.is_cancelled(0) && !lease.is_cancelled(1));
            let tr = t.db.create_trx().unwrap();
            let refused = lease.acknowledge_in(&tr, &[(0, DONE)]).await.unwrap_err();
            assert!(matches!(&refused, LeaseError::Cancelled { items } if *items == [0]), "{refused}");
            assert_eq!(lease.open().count(), n - 2);
        }
    });
}

#[test]
fn an_item_that_was_acknowledged_first_is_not_cancelled() {
    on_database(async |t| {
        let (q, policy) = (t.queue("q"), RetryPolicy::default());
        let (mut lease, ids) = lease(t, &q, 2).await;
        let tr = t.db.create_trx().unwrap();
        assert_eq!(q.cancel(&tr, &ids[0]).await.unwrap(), ItemChange::Done(ItemState::Running));
        lease.acknowledge(&t.db, &policy, &[(0, DONE)]).await.unwrap();
        assert!(tr.commit().await.is_err());
        assert_eq!(cancel(t, &q, &ids[0]).await, ItemChange::Gone);
        assert_eq!((t.counter(&q, "ndone").await, t.counter(&q, "ncancel").await), (1, 0));
    });
}

#[test]
fn a_cancellation_conflicts_with_a_promotion_and_a_fetch() {
    on_database(async |t| {
        let q = t.queue("q");
        let cancelled_in = async |id: &ItemId| {
            let tr = t.db.create_trx().unwrap();
            assert!(matches!(q.cancel(&tr, id).await.unwrap(), ItemChange::Done(_)));
            tr
        };
        t.put_aside(&q, &[("a", 5)]).await;
        let page = t.run(async |tr| q.view(tr, ItemState::Retrying, None, k(1)).await).await;
        let view = &page.items[0];
        let tr = cancelled_in(&view.id).await;
        t.sweep(&mut sweeper(&q), 10, &rules()).await;
        assert_eq!(state(t, &q, &view.id).await, Some(ItemState::Ready));
        assert!(tr.commit().await.is_err());
        let tr = cancelled_in(&view.id).await;
        let lease = t.lease_for(&q, 1, HOUR).await;
        assert!(lease.is_some() && tr.commit().await.is_err());
        assert_eq!(state(t, &q, &view.id).await, Some(ItemState::Running));
    });
}

#[test]
fn an_expired_lease_returns_all_but_cancelled_items() {
    on_database(async |t| {
        let q = t.queue("q");
        let payloads = ["a", "b", "c"];
        t.push(&q, &payloads).await;
        let lease = t.lease_for(&q, 3, 1).await.unwrap();
        assert_eq!(cancel(t, &q, &lease.items()[1].id).await, ItemChange::Done(ItemState::Running));
        assert_eq!(t.sweep_leases(&q, 1, &rules()).await.returned, 2);
        let left = t.list(&q).await.len() + t.records(&q, "later").await.len();
        assert_eq!(left, 2);
        assert_eq!(state(t, &q, &lease.items()[1].id).await, None);
    });
}

#[test]
fn a_fetch_of_unknown_outcome_does_not_hand_out_a_cancelled_item() {
    on_database(async |t| {
        for (i, script) in scripts().into_iter().enumerate() {
            let q = t.queue(format!("q{i}"));
            t.push(&q, &["a", "b"]).await;
            // A single attempt, whose outcome the next fetch finds out.
            let once = RetryPolicy { max_attempts: Some(1), ..RetryPolicy::default() };
            let mut session: Session = t.session(&q).with_policy(once);
            if !t.install(Faults::script(script.clone())) {
                return;
            }
            let mut approach = Approach::Front;
            let mut take = FetchOptions::new(k(2), Duration::from_secs(3_600), &mut approach);
            let first = session.fetch(&t.db, &mut take).await;
            t.end_faults();
            let running = t.run(async |tr| q.view(tr, ItemState::Running, None, k(9)).await).await;
            let Some(item) = running.items.first().filter(|_| first.is_err()) else { continue };
            assert_eq!(cancel(t, &q, &item.id).await, ItemChange::Done(ItemState::Running));
            let again = session.fetch(&t.db, &mut take).await.unwrap().got.unwrap();
            let open: Vec<_> = again.open().map(|index| again.items()[index].id.clone()).collect();
            assert!(!open.contains(&item.id) && open.len() == 1, "{script:?}");
            assert_eq!(cancelled(&again), [0], "{script:?}");
        }
    });
}

#[test]
fn a_holder_tells_its_acknowledgement_of_unknown_outcome_from_a_cancellation() {
    on_database(async |t| {
        for (i, script) in scripts().into_iter().enumerate() {
            for n in [1, 2] {
                let q = t.queue(format!("q{i} {n}"));
                let (mut lease, ids) = lease(t, &q, n).await;
                if !t.install(Faults::script(script.clone())) {
                    return;
                }
                let once = RetryPolicy { max_attempts: Some(1), ..RetryPolicy::default() };
                let first = lease.acknowledge(&t.db, &once, &[(0, DONE)]).await;
                t.end_faults();
                let cancelled_now = cancel(t, &q, &ids[0]).await == ItemChange::Done(ItemState::Running);
                assert!(!(first.is_ok() && cancelled_now), "{script:?}");
                lease.acknowledge(&t.db, &RetryPolicy::default(), &[(0, DONE)]).await.unwrap();
                assert_eq!(lease.is_cancelled(0), cancelled_now, "{script:?}, {n}");
                assert_eq!(t.counter(&q, "ndone").await, i64::from(!cancelled_now), "{script:?}, {n}");
            }
        }
    });
}

#[test]
fn sweepers_clear_records_of_cancellations_after_a_while() {
    on_database(async |t| {
        let q = t.queue("q");
        let (lease, ids) = lease(t, &q, 1).await;
        cancel(t, &q, &ids[0]).await;
        drop(lease);
        t.sweep(&mut sweeper(&q), 0, &rules()).await;
        assert_eq!(t.records(&q, "cancelled").await.len(), 1);
        if !t.jump(HOUR + 120_000_000) {
            return;
        }
        t.sweep(&mut sweeper(&q), 0, &rules()).await;
        assert!(t.records(&q, "cancelled").await.is_empty());
    });
}

/// Versions jump as in a recovery, and the holder counts on its lease by its own clock.
#[test]
fn the_record_of_a_cancellation_stays_while_the_lease_is_there_however_versions_jump() {
    on_database(async |t| {
        let q = t.queue("q");
        let (lease, ids) = lease(t, &q, 3).await;
        let (other, others) = self::lease(t, &q, 2).await;
        cancel(t, &q, &ids[0]).await;
        t.jump(HOUR + 120_000_000);
        // Each cancellation clears old records, perhaps its own.
        cancel(t, &q, &others[0]).await;
        cancel(t, &q, &ids[1]).await;
        assert_eq!(t.records(&q, "lease").await.len(), 2);
        for (lease, index) in [(&lease, 0), (&lease, 1), (&other, 0)] {
            let tr = t.db.create_trx().unwrap();
            let refused = lease.acknowledge_in(&tr, &[(index, DONE)]).await.unwrap_err();
            assert!(matches!(&refused, LeaseError::Cancelled { items } if *items == [index]), "{refused}");
        }
    });
}

/// So its holder finds out why it is gone.
#[test]
fn the_record_of_a_cancellation_after_a_jump_stays_a_while_though_the_lease_is_over() {
    on_database(async |t| {
        let q = t.queue("q");
        let (mut lease, ids) = lease(t, &q, 1).await;
        t.jump(HOUR + 120_000_000);
        cancel(t, &q, &ids[0]).await;
        lease.acknowledge(&t.db, &RetryPolicy::default(), &[(0, DONE)]).await.unwrap();
        assert_eq!(cancelled(&lease), [0]);
    });
}

/// So the end of the last item is not taken for the end of the lease.
#[test]
fn a_transaction_that_ends_a_lease_is_found_out_though_another_item_was_cancelled() {
    on_database(async |t| {
        let q = t.queue("q");
        let (mut lease, ids) = lease(t, &q, 2).await;
        cancel(t, &q, &ids[1]).await;
        // It commits, and its holder does not get the answer.
        let tr = t.db.create_trx().unwrap();
        assert!(lease.acknowledge_in(&tr, &[(0, DONE)]).await.unwrap().is_some());
        tr.commit().await.unwrap();
        let tr = t.db.create_trx().unwrap();
        assert_eq!(lease.find_out(&tr, &[(0, DONE)]).await.unwrap(), CommitStatus::Committed);
        assert_eq!(cancelled(&lease), [1]);
    });
}

#[test]
fn leases_behind_many_that_cannot_be_read_are_found_by_a_cancellation_of_all() {
    on_database(async |t| {
        let q = t.queue("q");
        let (_lease, ids) = lease(t, &q, 3).await;
        // More than a page of leases of another layout, before those of today.
        t.run(async |tr| {
            (0..=100).for_each(|n: u8| tr.set(&record(&q, "lease", &[0x15, n.max(1), n]), b"?"));
            Ok(())
        })
        .await;
        let mut canceller = Canceller::new(q.clone(), CancelFilter::default());
        let mut cancelled = 0;
        while let Some(page) = canceller.page(&t.db, &RetryPolicy::default()).await.unwrap() {
            cancelled += page.cancelled;
        }
        assert_eq!((cancelled, t.records(&q, "lease").await.len()), (ids.len(), 101));
    });
}
