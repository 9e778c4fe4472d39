//! Items that join a batch after they were pushed, and items that are pushed after others.

use fdb_embedded::Faults;
use kvqueue_queue::item_batch::{
    BatchCounts, BatchError, BatchId, CloseReason, Join, MAX_AFTER, MAX_ITEM_BATCHES, Missing, NewBatch,
};
use kvqueue_queue::{
    CancelFilter, Canceller, Ending, Failure, Item, ItemChange, ItemId, ItemOutcome, ItemState, Kind,
    OnExpiry, Queue, QueueError, Recording, from_millis,
};

use crate::batches::{NOW, counts, finish, left, new, policy};
use crate::common::gate::overlaps;
use crate::common::{KINDS, SHORT, TestDb, at_most, k, later, on_database, rules, sweeper};
use crate::history::Clock;
use crate::unknown::scripts;

impl TestDb {
    async fn join(&self, queue: &Queue, id: &BatchId, items: &[ItemId]) -> Vec<Join> {
        self.run(async |tr| queue.join_batch(tr, id, items).await).await
    }

    /// The id of the item that was pushed last.
    async fn push_one(&self, queue: &Queue) -> ItemId {
        let list = async || self.run(async |tr| queue.list(tr).await).await;
        let before = list().await;
        self.push_by(queue, 0, "x").await;
        let is_new = |item: &Item| before.iter().all(|known| known.id != item.id);
        list().await.into_iter().find(is_new).unwrap().id
    }

    async fn counts(&self, home: &Queue, id: &BatchId) -> BatchCounts {
        self.batch(home, id).await.unwrap().counts
    }
}

fn failure() -> Failure {
    Failure::new(from_millis(1), 1, "no")
}

#[test]
fn an_item_joins_whatever_it_is_doing_and_is_counted_when_it_ends() {
    on_database(async |t| {
        for (i, kind) in KINDS.into_iter().enumerate() {
            let (home, work) = (t.queue(format!("h{i}")), t.queue_of(format!("w{i}"), kind));
            let id = t.new_batch(&home, &new()).await;
            let ready = t.push_one(&work).await;
            let mut lease = t.lease(&work, 1).await.unwrap();
            let (scheduled, mut running) = (ready, Vec::new());
            t.acknowledge(&mut lease, &ItemOutcome::Postpone { due: from_millis(5) }).await;
            let retrying = t.push_one(&work).await;
            let mut lease = t.lease(&work, 1).await.unwrap();
            t.acknowledge(&mut lease, &later(5)).await;
            for _ in 0..2 {
                running.push(t.push_one(&work).await);
            }
            let mut lease = t.lease(&work, 2).await.unwrap();
            let ready = t.push_one(&work).await;
            let all = [&running[0], &scheduled, &ready, &retrying, &running[1]].map(Clone::clone);
            let states = [
                ItemState::Running,
                ItemState::Scheduled,
                ItemState::Ready,
                ItemState::Retrying,
                ItemState::Running,
            ];
            let joined = states.map(Join::Joined);
            assert_eq!(t.join(&work, &id, &all).await, joined, "{kind}");
            assert_eq!(t.join(&work, &id, &all).await, [Join::WasMember; 5], "{kind}");
            let view = t.run(async |tr| work.view_item(tr, &running[0]).await).await.unwrap();
            let meta = view.item.unwrap().meta.unwrap();
            assert_eq!(meta.batches, std::slice::from_ref(&id), "{kind}");
            t.commit_batch(&home, &id).await;
            assert_eq!(t.counts(&home, &id).await, counts(5, 0), "{kind}");
            t.acknowledge(&mut lease, &ItemOutcome::Done).await;
            assert_eq!(t.counts(&home, &id).await, counts(5, 2), "{kind}");
            assert_eq!(t.sweep(&mut sweeper(&work), 5, &rules()).await.moved.promoted, 2);
            finish(t, &work, 3).await;
            assert_eq!(t.close(&home, NOW).await, [(id, CloseReason::Complete, counts(5, 5))], "{kind}");
            assert!(t.records(&work, "meta").await.is_empty());
            assert_eq!(left(t, &home).await, [0; 3]);
        }
    });
}

/// Lets an item that has joined while it was running end in one way after the other, and returns how often.
async fn end_joined(t: &TestDb, work: &Queue, id: &BatchId) -> u64 {
    let mut members = 0;
    let mut lease = async |length: u64| {
        members += 1;
        let item = t.push_one(work).await;
        let lease = t.lease_for(work, 1, length).await.unwrap();
        assert_eq!(t.join(work, id, std::slice::from_ref(&item)).await, [Join::Joined(ItemState::Running)]);
        (item, lease)
    };
    let hour = 3_600_000_000;
    for outcome in [
        ItemOutcome::Done,
        ItemOutcome::DoneWith("result".into()),
        ItemOutcome::Dead(failure()),
        ItemOutcome::Expired { at: from_millis(7), on_expiry: OnExpiry::Drop },
        ItemOutcome::Expired { at: from_millis(7), on_expiry: OnExpiry::Dead },
    ] {
        let (_, mut lease) = lease(hour).await;
        // An extension writes the header, too.
        lease.extend(&t.db, &policy()).await.unwrap();
        t.acknowledge(&mut lease, &outcome).await;
    }
    for outcome in [ItemOutcome::Release, ItemOutcome::Retry { due: None, failure: failure() }] {
        let (_, mut lease) = lease(hour).await;
        t.acknowledge(&mut lease, &outcome).await;
        finish(t, work, 1).await;
    }
    for outcome in [ItemOutcome::Postpone { due: from_millis(5) }, later(5)] {
        let (_, mut lease) = lease(hour).await;
        t.acknowledge(&mut lease, &outcome).await;
        t.end_claim(work).await;
        assert_eq!(t.sweep(&mut sweeper(work), 5, &rules()).await.moved.promoted, 1);
        // Taken for good.
        assert_eq!(t.run(async |tr| work.pop_k(tr, k(1)).await).await.items.len(), 1);
    }
    let (item, _running) = lease(hour).await;
    let cancelled = work.cancel_item(&t.db, &policy(), &item).await.unwrap();
    assert_eq!(cancelled, ItemChange::Done(ItemState::Running));
    // A lease that expires: the item has no other attempt; or it has.
    let (_, _lost) = lease(SHORT).await;
    t.end_claim(work).await;
    assert_eq!(t.sweep_leases(work, 1, &at_most(1)).await.dead, 1);
    let (_, _lost) = lease(SHORT).await;
    t.end_claim(work).await;
    assert_eq!(t.sweep_leases(work, 1, &rules()).await.leases, 1);
    finish(t, work, 1).await;
    members
}

#[test]
fn every_way_to_end_counts_an_item_that_joined_while_it_was_running_once() {
    on_database(async |t| {
        for (i, recording) in [None, Some(Recording::On)].into_iter().enumerate() {
            let (home, work) = (t.queue(format!("h{i}")), t.queue(format!("w{i}")));
            let clock = Clock::new();
            let work = recording.map_or(work.clone(), |of| work.clone().with_recorder(&clock.recorder(of)));
            let id = t.new_batch(&home, &new()).await;
            let members = end_joined(t, &work, &id).await;
            let ended =
                BatchCounts { done: 5, dead: 3, cancelled: 1, expired: 1, taken: 2, ..counts(members, 0) };
            assert_eq!((t.counts(&home, &id).await, members), (ended, 12));
            assert!(t.records(&work, "lease").await.is_empty());
        }
    });
}

#[test]
fn an_item_that_has_ended_counts_at_once_if_that_is_known() {
    on_database(async |t| {
        let clock = Clock::new();
        let (home, plain) = (t.queue("home"), t.queue("plain"));
        let work = t.queue("work").with_recorder(&clock.recorder(Recording::On));
        let id = t.new_batch(&home, &new()).await;
        for (queue, done) in [(&plain, Join::Gone), (&work, Join::Ended(Ending::Done))] {
            let dead = t.push_one(queue).await;
            let mut lease = t.lease(queue, 1).await.unwrap();
            t.acknowledge(&mut lease, &ItemOutcome::Dead(failure())).await;
            let finished = t.push_one(queue).await;
            finish(t, queue, 1).await;
            let never = crate::common::id(7);
            let joined = t.join(queue, &id, &[dead, never, finished]).await;
            assert_eq!(joined, [Join::Ended(Ending::Dead), Join::Gone, done]);
        }
        assert_eq!(t.counts(&home, &id).await, BatchCounts { dead: 2, ..counts(3, 1) });
        t.commit_batch(&home, &id).await;
        assert_eq!(t.close(&home, NOW).await.len(), 1);
    });
}

#[test]
fn an_item_can_be_a_member_of_several_batches_and_of_so_many() {
    on_database(async |t| {
        let (home, work) = (t.queue("home"), t.queue("work"));
        for is_running in [false, true] {
            let item = t.push_one(&work).await;
            let mut lease = if is_running { t.lease(&work, 1).await } else { None };
            let ids = std::slice::from_ref(&item);
            let mut batches = Vec::new();
            let refused = loop {
                let id = BatchId::new(home.name());
                let joined = t.db.create_trx().unwrap();
                home.new_batch(&joined, &id, &new(), from_millis(NOW)).await.unwrap();
                match work.join_batch(&joined, &id, ids).await {
                    Ok(_) => drop(joined.commit().await.unwrap()),
                    Err(error) => break error,
                }
                batches.push(id);
            };
            let QueueError::TooManyBatches { id } = refused else { panic!("{refused:?}") };
            assert_eq!(id, item);
            assert_eq!(batches.len(), MAX_ITEM_BATCHES, "{is_running}");
            match &mut lease {
                Some(lease) => t.acknowledge(lease, &ItemOutcome::Done).await,
                None => finish(t, &work, 1).await,
            }
            for id in &batches {
                assert_eq!(t.counts(&home, id).await, counts(1, 1), "{is_running}");
            }
        }
    });
}

#[test]
fn only_an_open_batch_is_joined_and_no_frozen_queue_changes() {
    on_database(async |t| {
        let (home, work) = (t.queue("home"), t.queue("work"));
        let id = t.new_batch(&home, &new()).await;
        t.commit_batch(&home, &id).await;
        let item = t.push_one(&work).await;
        let before = t.rows().await;
        let tr = t.db.create_trx().unwrap();
        let ids = std::slice::from_ref(&item);
        let refused = work.join_batch(&tr, &id, ids).await.unwrap_err();
        assert!(matches!(refused, QueueError::BatchCommitted { .. }));
        let gone = BatchId::new(b"home");
        let refused = work.join_batch(&tr, &gone, ids).await.unwrap_err();
        assert!(matches!(refused, QueueError::NoBatch { .. }));
        tr.commit().await.unwrap();
        assert_eq!(t.rows().await, before);
        for frozen in [&home, &work] {
            let id = t.new_batch(&home, &new()).await;
            let pause =
                kvqueue_queue::Pause { at: from_millis(1), reason: "moving".to_owned(), frozen: true };
            t.run(async |tr| {
                frozen.pause(tr, &pause);
                Ok(())
            })
            .await;
            let tr = t.db.create_trx().unwrap();
            assert!(work.join_batch(&tr, &id, ids).await.unwrap_err().frozen().is_some());
            t.run(async |tr| {
                frozen.resume(tr);
                Ok(())
            })
            .await;
        }
    });
}

/// What overlaps with a join.
#[derive(Debug, Clone, Copy)]
enum With {
    Fetch,
    Pop,
    Done,
    Retry,
    Cancel,
    Edit,
    Promote,
    Commit,
}

#[test]
fn a_join_that_overlaps_a_change_of_the_item_counts_it_once() {
    on_database(async |t| {
        let all = [
            With::Fetch,
            With::Pop,
            With::Done,
            With::Retry,
            With::Cancel,
            With::Edit,
            With::Promote,
            With::Commit,
        ];
        let each = |kind| all.into_iter().flat_map(move |with| [(kind, with, true), (kind, with, false)]);
        for (kind, with, is_join_late) in KINDS.into_iter().flat_map(each) {
            let name = format!("{kind:?}-{with:?}-{is_join_late}");
            let (home, work) = (t.queue(format!("{name}-home")), t.queue_of(format!("{name}-work"), kind));
            let id = t.new_batch(&home, &new()).await;
            let item = t.push_one(&work).await;
            let mut lease = match with {
                With::Done | With::Retry => t.lease(&work, 1).await,
                With::Promote => {
                    let mut lease = t.lease(&work, 1).await.unwrap();
                    t.acknowledge(&mut lease, &later(5)).await;
                    None
                }
                _ => None,
            };
            let Some(gate) = t.close_gate() else { return };
            let join = async {
                let policy = policy();
                let (work, id, ids) = (&work, &id, std::slice::from_ref(&item));
                let joined = kvqueue_queue::retry::run(&t.db, &policy, |tr| async move {
                    let joined = work.join_batch(&tr, id, ids).await;
                    (tr, joined)
                });
                joined.await.map(|done| done.value[0])
            };
            let mut other_sweeper = sweeper(&work);
            let mut held = None;
            let other = async {
                match with {
                    With::Fetch => held = t.lease(&work, 1).await,
                    With::Pop => drop(t.run(async |tr| work.pop_k(tr, k(1)).await).await),
                    With::Done => t.acknowledge(lease.as_mut().unwrap(), &ItemOutcome::Done).await,
                    With::Retry => {
                        let outcome = ItemOutcome::Retry { due: None, failure: failure() };
                        t.acknowledge(lease.as_mut().unwrap(), &outcome).await;
                    }
                    With::Cancel => drop(work.cancel_item(&t.db, &policy(), &item).await.unwrap()),
                    With::Edit => drop(work.edit_item(&t.db, &policy(), &item, b"y").await.unwrap()),
                    With::Promote => {
                        let promoted = t.sweep(&mut other_sweeper, 5, &rules()).await.moved.promoted;
                        assert_eq!(promoted, 1, "{name}");
                    }
                    With::Commit => drop(t.commit_batch(&home, &id).await),
                }
            };
            let (conflicted, joined) = if is_join_late {
                let (conflicted, joined, ()) = overlaps(gate, join, other).await;
                (conflicted, joined)
            } else {
                let (conflicted, (), joined) = overlaps(gate, other, join).await;
                (conflicted, joined)
            };
            // A commit that comes later does not read what a join adds.
            assert_eq!(conflicted, is_join_late || !matches!(with, With::Commit), "{name}");
            let is_over = matches!(with, With::Pop | With::Done | With::Cancel);
            let expected = match (is_over, with) {
                (_, With::Commit) if is_join_late => {
                    assert!(joined.is_err(), "{name}");
                    counts(0, 0)
                }
                (true, _) if is_join_late => {
                    assert_eq!(joined.unwrap(), Join::Gone, "{name}");
                    counts(0, 0)
                }
                _ => {
                    assert!(matches!(joined.unwrap(), Join::Joined(_)), "{name}");
                    counts(1, 0)
                }
            };
            let before = t.counts(&home, &id).await;
            assert_eq!(before.members, expected.members, "{name}");
            assert_eq!(before.ended(), u64::from(is_over && !is_join_late), "{name}");
            if let Some(mut held) = held {
                t.acknowledge(&mut held, &ItemOutcome::Done).await;
            } else if !is_over {
                finish(t, &work, 1).await;
            }
            let after = t.counts(&home, &id).await;
            assert_eq!((after.members, after.open()), (expected.members, 0), "{name}");
        }
    });
}

#[test]
fn an_item_comes_once_after_others_under_unknown_outcomes() {
    on_database(async |t| {
        for (i, script) in scripts().into_iter().enumerate() {
            let (home, one, two) = (
                t.queue(format!("h{i}")),
                t.queue(format!("a{i}")),
                t.queue_of(format!("b{i}"), Kind::Keyed),
            );
            let first = t.push_one(&one).await;
            let (dead, running) = (t.push_one(&two).await, t.push_one(&two).await);
            let mut lease = t.lease(&two, 1).await.unwrap();
            t.acknowledge(&mut lease, &ItemOutcome::Dead(failure())).await;
            let mut lease = t.lease(&two, 1).await.unwrap();
            if !t.install(Faults::script(script.clone())) {
                return;
            }
            let after = [(two.clone(), dead), (one.clone(), first), (two.clone(), running)];
            let after = (&after[..], Missing::Refused);
            let (id, joined) =
                home.push_after(&t.db, &policy(), &new(), after, from_millis(NOW)).await.unwrap();
            t.end_faults();
            let (ready, running) = (Join::Joined(ItemState::Ready), Join::Joined(ItemState::Running));
            assert_eq!(joined, [Join::Ended(Ending::Dead), ready, running], "{script:?}");
            let dead = BatchCounts { dead: 1, ..counts(3, 0) };
            assert_eq!(t.counts(&home, &id).await, dead, "{script:?}");
            finish(t, &one, 1).await;
            assert_eq!(t.close(&home, NOW).await, [], "{script:?}");
            t.acknowledge(&mut lease, &ItemOutcome::Done).await;
            let ended = BatchCounts { done: 2, ..dead };
            assert_eq!(t.close(&home, NOW).await, [(id, CloseReason::Complete, ended)], "{script:?}");
            assert_eq!((t.list(&home).await.len(), left(t, &home).await), (1, [0; 3]), "{script:?}");
        }
    });
}

#[test]
fn an_item_comes_at_once_after_others_that_have_ended_and_after_not_too_many() {
    on_database(async |t| {
        let (home, work) = (t.queue("home"), t.queue("work"));
        let item = t.push_one(&work).await;
        finish(t, &work, 1).await;
        let after = async |n: usize| {
            let after = vec![(work.clone(), item.clone()); n];
            home.push_after(&t.db, &policy(), &new(), (&after, Missing::HasEnded), from_millis(NOW)).await
        };
        let after_it = [(work.clone(), item.clone())];
        let refused =
            home.push_after(&t.db, &policy(), &new(), (&after_it, Missing::Refused), from_millis(NOW)).await;
        let Err(BatchError::Missing { ids }) = refused else { panic!("{refused:?}") };
        assert_eq!(ids, std::slice::from_ref(&item));
        for n in [0, MAX_AFTER + 1] {
            assert!(matches!(after(n).await, Err(BatchError::After { len }) if len == n));
        }
        assert_eq!(left(t, &home).await, [0; 3]);
        let (id, joined) = after(MAX_AFTER).await.unwrap();
        assert_eq!(joined, [Join::Gone; MAX_AFTER]);
        assert_eq!(t.close(&home, NOW).await, [(id, CloseReason::Complete, counts(0, 0))]);
        let foreign = new().callback.with_unique("u");
        let foreign = NewBatch::new(foreign);
        let refused = home
            .push_after(&t.db, &policy(), &foreign, (&after_it, Missing::Refused), from_millis(NOW))
            .await;
        assert!(matches!(refused, Err(BatchError::ForeignField { .. })));
    });
}

#[test]
fn an_item_behind_another_prefix_is_not_looked_for_in_the_queue_of_its_name() {
    on_database(async |t| {
        let (home, work) = (t.queue("home"), t.queue("work"));
        let elsewhere = Queue::new(b"elsewhere", b"work").unwrap();
        let after =
            [(work.clone(), t.push_one(&work).await), (elsewhere.clone(), t.push_one(&elsewhere).await)];
        // Its end would count behind its own prefix, where there is no such batch.
        let refused =
            home.push_after(&t.db, &policy(), &new(), (&after, Missing::HasEnded), from_millis(NOW)).await;
        assert!(refused.is_err(), "{refused:?}");
        assert_eq!(left(t, &home).await, [0; 3]);
        t.run(async |tr| {
            elsewhere.delete(tr);
            Ok(())
        })
        .await;
    });
}

#[test]
fn an_item_of_another_kind_and_one_that_may_be_on_an_unreadable_lease_are_not_taken_for_gone() {
    on_database(async |t| {
        let (home, fifo, keyed) = (t.queue("home"), t.queue("work"), t.queue_of("work", Kind::Keyed));
        let item = t.push_one(&keyed).await;
        let id = t.new_batch(&home, &new()).await;
        let try_join = async |queue: &Queue, item: &ItemId| {
            let tr = t.db.create_trx().unwrap();
            queue.join_batch(&tr, &id, std::slice::from_ref(item)).await
        };
        assert!(matches!(try_join(&fifo, &item).await, Err(QueueError::WrongKind { .. })));
        // An id that it could have, in a queue that has items of another kind.
        assert!(matches!(try_join(&fifo, &crate::common::id(7)).await, Err(QueueError::OtherKind { .. })));
        let _lease = t.lease(&keyed, 1).await.unwrap();
        let (key, _) = t.records(&keyed, "lease").await.remove(0);
        let key = [&t.prefix[..], &crate::common::record(&keyed, "lease", &key)[t.prefix.len()..]].concat();
        t.run(async |tr| {
            tr.set(&key, b"of a later version");
            Ok(())
        })
        .await;
        assert!(matches!(try_join(&keyed, &item).await, Err(QueueError::Unreadable { .. })));
        assert_eq!(t.counts(&home, &id).await, counts(0, 0));
    });
}

#[test]
fn joins_are_counted_in_transactions_of_the_caller_and_when_all_that_match_are_cancelled() {
    on_database(async |t| {
        let (home, work) = (t.queue("home"), t.queue("work"));
        let id = t.new_batch(&home, &new()).await;
        let items = [t.push_one(&work).await, t.push_one(&work).await, t.push_one(&work).await];
        let mut lease = t.lease(&work, 2).await.unwrap();
        assert!(matches!(
            t.join(&work, &id, &items).await[..],
            [Join::Joined(_), Join::Joined(_), Join::Joined(_)]
        ));
        let tr = t.db.create_trx().unwrap();
        let done = lease.acknowledge_in(&tr, &[(0, ItemOutcome::Done)]).await.unwrap().unwrap();
        tr.commit().await.unwrap();
        lease.acknowledged(done);
        assert_eq!(t.counts(&home, &id).await, counts(3, 1));
        let mut canceller = Canceller::new(work.clone(), CancelFilter::default());
        while canceller.page(&t.db, &policy()).await.unwrap().is_some() {}
        assert_eq!(t.counts(&home, &id).await, BatchCounts { cancelled: 2, ..counts(3, 1) });
    });
}
