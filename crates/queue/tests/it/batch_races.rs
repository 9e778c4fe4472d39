//! Transactions on one batch that overlap, in both orders.

use foundationdb::Transaction;
use kvqueue_queue::item_batch::{BatchCommit, BatchCounts, BatchId, CloseReason};
use kvqueue_queue::{ItemOutcome, Lease, NewItem, PushError, PushOptions, Pushed, Queue, from_millis};

use crate::batches::{NOW, new, policy};
use crate::common::gate::overlaps;
use crate::common::{TestDb, on_database, session_id};

/// A batch with members, of which all but `open` have ended, and the lease of those.
async fn batch(t: &TestDb, name: &str, members: usize, open: usize) -> (Queue, Queue, BatchId, Lease) {
    let (home, work) = (t.queue(format!("{name}-home")), t.queue(format!("{name}-work")));
    let id = t.new_batch(&home, &new().with_deadline(from_millis(NOW + 500))).await;
    t.push_members(&work, &id, members).await;
    if members > open {
        let mut lease = t.lease(&work, members - open).await.unwrap();
        t.acknowledge(&mut lease, &ItemOutcome::Done).await;
    }
    let lease = t.lease(&work, open).await.unwrap();
    (home, work, id, lease)
}

async fn push(t: &TestDb, work: &Queue, id: &BatchId) -> Result<Pushed, PushError> {
    let item = NewItem::new("x").with_batch(id.clone());
    t.session(work).push_items(&t.db, &[item], &PushOptions::default()).await
}

fn done(n: u64) -> BatchCounts {
    BatchCounts { members: n, done: n, ..BatchCounts::default() }
}

#[test]
fn a_push_that_overlaps_the_commit_of_its_batch_is_counted_or_refused() {
    on_database(async |t| {
        for is_push_late in [true, false] {
            let (home, work, id, mut lease) = batch(t, &format!("{is_push_late}"), 1, 1).await;
            let Some(gate) = t.close_gate() else { return };
            let (push, commit) = (push(t, &work, &id), t.commit_batch(&home, &id));
            let pushed = if is_push_late {
                let (conflicted, pushed, commit) = overlaps(gate, push, commit).await;
                assert_eq!((conflicted, commit), (true, BatchCommit::Committed));
                pushed
            } else {
                let (conflicted, commit, pushed) = overlaps(gate, commit, push).await;
                assert_eq!((conflicted, commit), (false, BatchCommit::Committed));
                pushed
            };
            t.acknowledge(&mut lease, &ItemOutcome::Done).await;
            let closed = t.close(&home, NOW).await;
            if is_push_late {
                assert!(pushed.unwrap_err().batch_refused().is_some());
                assert_eq!(closed, [(id, CloseReason::Complete, done(1))]);
            } else {
                assert_eq!((pushed.unwrap().items, closed), (1, vec![]));
                let mut lease = t.lease(&work, 1).await.unwrap();
                t.acknowledge(&mut lease, &ItemOutcome::Done).await;
                assert_eq!(t.close(&home, NOW).await, [(id, CloseReason::Complete, done(2))]);
            }
        }
    });
}

#[test]
fn the_last_end_is_noticed_if_it_overlaps_a_sweep() {
    on_database(async |t| {
        for is_end_late in [true, false] {
            let (home, _, id, mut lease) = batch(t, &format!("{is_end_late}"), 3, 1).await;
            t.commit_batch(&home, &id).await;
            let Some(gate) = t.close_gate() else { return };
            let (end, sweep) = (t.acknowledge(&mut lease, &ItemOutcome::Done), t.close(&home, NOW));
            // Neither waits for the other.
            let (conflicted, mut closed) = if is_end_late {
                let (conflicted, (), closed) = overlaps(gate, end, sweep).await;
                (conflicted, closed)
            } else {
                let (conflicted, closed, ()) = overlaps(gate, sweep, end).await;
                (conflicted, closed)
            };
            assert!(!conflicted, "{is_end_late}");
            closed.extend(t.close(&home, NOW).await);
            assert_eq!(closed, [(id, CloseReason::Complete, done(3))], "{is_end_late}");
            assert_eq!(t.list(&home).await.len(), 1);
        }
    });
}

#[test]
fn the_last_end_is_noticed_if_it_overlaps_the_commit() {
    on_database(async |t| {
        for is_end_late in [true, false] {
            let (home, _, id, mut lease) = batch(t, &format!("{is_end_late}"), 2, 1).await;
            let Some(gate) = t.close_gate() else { return };
            let (end, commit) = (t.acknowledge(&mut lease, &ItemOutcome::Done), t.commit_batch(&home, &id));
            if is_end_late {
                let (conflicted, (), _) = overlaps(gate, end, commit).await;
                assert!(conflicted);
            } else {
                let (conflicted, _, ()) = overlaps(gate, commit, end).await;
                assert!(!conflicted);
            }
            assert_eq!(t.close(&home, NOW).await, [(id, CloseReason::Complete, done(2))], "{is_end_late}");
        }
        // The sweep between the commit and an end that has read the batch before both.
        let (home, _, id, mut lease) = batch(t, "three", 2, 1).await;
        let Some(gate) = t.close_gate() else { return };
        let both = async {
            t.commit_batch(&home, &id).await;
            assert_eq!(t.close(&home, NOW).await, []);
        };
        let (conflicted, (), ()) = overlaps(gate, t.acknowledge(&mut lease, &ItemOutcome::Done), both).await;
        assert!(conflicted);
        assert_eq!(t.close(&home, NOW).await, [(id, CloseReason::Complete, done(2))]);
    });
}

#[test]
fn an_end_that_overlaps_the_close_of_its_batch_leaves_nothing() {
    on_database(async |t| {
        for is_end_late in [true, false] {
            for cancels in [true, false] {
                let (home, _, id, mut lease) = batch(t, &format!("{is_end_late}-{cancels}"), 2, 1).await;
                t.commit_batch(&home, &id).await;
                let Some(gate) = t.close_gate() else { return };
                let end = t.acknowledge(&mut lease, &ItemOutcome::Done);
                let close = async {
                    match cancels {
                        true => drop(home.drop_batch(&t.db, &policy(), &id).await.unwrap()),
                        false => assert_eq!(t.close(&home, NOW + 500).await.len(), 1),
                    }
                };
                let conflicted = if is_end_late {
                    overlaps(gate, end, close).await.0
                } else {
                    overlaps(gate, close, end).await.0
                };
                assert_eq!(conflicted, is_end_late, "{cancels}");
                for kind in ["batch", "batch-count", "batch-due"] {
                    assert_eq!(t.records(&home, kind).await, [], "{kind} {is_end_late} {cancels}");
                }
            }
        }
    });
}

#[test]
fn of_two_sweeps_or_a_sweep_and_a_cancellation_at_the_same_time_one_closes_a_batch() {
    on_database(async |t| {
        for cancels in [true, false] {
            let home = t.queue(format!("{cancels}"));
            let id = t.new_batch(&home, &new()).await;
            t.commit_batch(&home, &id).await;
            let Some(gate) = t.close_gate() else { return };
            let early = async {
                match cancels {
                    true => home.drop_batch(&t.db, &policy(), &id).await.unwrap().map_or(0, |_| 1),
                    false => t.close_as(&home, NOW, session_id()).await.len(),
                }
            };
            let (conflicted, late, early) = overlaps(gate, t.close(&home, NOW), early).await;
            assert_eq!((conflicted, late, early), (true, vec![], 1), "{cancels}");
            assert_eq!(t.list(&home).await.len(), usize::from(!cancels));
        }
    });
}

#[test]
fn pushes_and_ends_of_one_batch_do_not_conflict() {
    on_database(async |t| {
        const PARALLEL: usize = 30;
        let (home, work) = (t.queue("home"), t.queue("work"));
        let id = t.new_batch(&home, &new()).await;
        // All of them read the same version.
        let begin = async || {
            let transactions: Vec<Transaction> = (0..PARALLEL).map(|_| t.db.create_trx().unwrap()).collect();
            let version = transactions[0].get_read_version().await.unwrap();
            transactions[1..].iter().for_each(|tr| tr.set_read_version(version));
            transactions
        };
        let transactions = begin().await;
        for tr in &transactions {
            let item = NewItem::new("x").with_batch(id.clone());
            work.pusher(tr).push_items(&[item], &PushOptions::default()).await.unwrap();
        }
        for tr in transactions {
            tr.commit().await.expect("pushes do not conflict");
        }
        for is_committed in [false, true] {
            let mut leases = Vec::new();
            for _ in 0..PARALLEL {
                leases.push(t.lease(&work, 1).await.unwrap());
            }
            let transactions = begin().await;
            for (tr, lease) in transactions.iter().zip(&mut leases) {
                lease.acknowledge_in(tr, &[(0, ItemOutcome::Done)]).await.unwrap();
            }
            for tr in transactions {
                tr.commit().await.expect("ends do not conflict");
            }
            if is_committed {
                break;
            }
            t.push_members(&work, &id, PARALLEL).await;
            assert_eq!(t.commit_batch(&home, &id).await, BatchCommit::Committed);
        }
        let closed = t.close(&home, NOW).await;
        assert_eq!(closed, [(id, CloseReason::Complete, done(2 * PARALLEL as u64))]);
    });
}
