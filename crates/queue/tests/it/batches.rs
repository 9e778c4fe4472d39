//! Batches: what counts as a member and as an end, when a batch calls back, and what it leaves behind.

use std::time::Duration;

use fdb_embedded::Faults;
use kvqueue_queue::item_batch::{
    BatchCommit, BatchCounts, BatchError, BatchId, BatchView, CALLBACK_ATTRIBUTES, CloseReason, NewBatch,
};
use kvqueue_queue::{
    CancelFilter, Canceller, Failure, ItemChange, ItemId, ItemOutcome, Kind, Movable, Mover, NewItem,
    OnExpiry, Pause, PushOptions, Queue, Recording, RetryError, RetryPolicy, SessionId, StoredItem, Sweeper,
    VersionHistory, from_millis, migration,
};

use crate::common::{KINDS, Millis, SHORT, TestDb, at_most, k, later, on_database, rules, sweeper};
use crate::history::Clock;
use crate::restored::restore;
use crate::unknown::scripts;

/// The sweeper of the tests. The claim of another one would make it wait.
pub(crate) const ONE: SessionId = SessionId([1; 16]);

pub(crate) const NOW: Millis = 1_000_000;

pub(crate) fn policy() -> RetryPolicy {
    RetryPolicy::default()
}

pub(crate) fn new() -> NewBatch {
    NewBatch::new(NewItem::new("all done").with_attribute("k", "v"))
}

impl TestDb {
    pub(crate) async fn new_batch(&self, home: &Queue, batch: &NewBatch) -> BatchId {
        home.create_batch(&self.db, &policy(), batch, from_millis(NOW)).await.unwrap()
    }

    /// Pushes `n` items to a batch.
    pub(crate) async fn push_members(&self, queue: &Queue, id: &BatchId, n: usize) {
        let items: Vec<_> = (0..n).map(|_| NewItem::new("member").with_batch(id.clone())).collect();
        self.push_items(queue, &items).await;
    }

    pub(crate) async fn commit_batch(&self, home: &Queue, id: &BatchId) -> BatchCommit {
        home.finish_batch(&self.db, &policy(), id, from_millis(NOW + 1)).await.unwrap()
    }

    pub(crate) async fn batch(&self, home: &Queue, id: &BatchId) -> Option<BatchView> {
        self.run(async |tr| home.batch(tr, id).await).await
    }

    /// One sweep of the home; returns what was closed, and how.
    pub(crate) async fn close(&self, home: &Queue, now: Millis) -> Vec<(BatchId, CloseReason, BatchCounts)> {
        self.close_as(home, now, ONE).await
    }

    /// The same by another sweeper.
    pub(crate) async fn close_as(
        &self,
        home: &Queue,
        now: Millis,
        id: SessionId,
    ) -> Vec<(BatchId, CloseReason, BatchCounts)> {
        let history = VersionHistory::new(|| Duration::ZERO);
        let mut sweeper = Sweeper::with_id(home.clone(), id, history);
        let swept = self.sweep(&mut sweeper, now, &rules()).await;
        assert!(swept.unusable_batches.is_empty());
        swept.closed_batches.into_iter().map(|of| (of.id, of.reason, of.counts)).collect()
    }

    /// The payloads and attributes of the callbacks in a queue.
    pub(crate) async fn callbacks(&self, home: &Queue) -> Vec<Vec<String>> {
        let items = self.run(async |tr| home.list(tr).await).await;
        let of = |item: &kvqueue_queue::Item| {
            CALLBACK_ATTRIBUTES.map(|name| item.attribute(name).unwrap_or_default().to_owned()).to_vec()
        };
        items.iter().filter(|item| item.attribute("batch").is_some()).map(of).collect()
    }
}

/// What is left of the batches of a queue.
pub(crate) async fn left(t: &TestDb, home: &Queue) -> [usize; 3] {
    let mut left = [0; 3];
    for (n, kind) in left.iter_mut().zip(["batch", "batch-count", "batch-due"]) {
        *n = t.records(home, kind).await.len();
    }
    assert_eq!(t.records(home, "batch-item").await.len(), left[0], "each batch has a callback");
    left
}

pub(crate) fn counts(members: u64, done: u64) -> BatchCounts {
    BatchCounts { members, done, ..BatchCounts::default() }
}

pub(crate) async fn finish(t: &TestDb, queue: &Queue, n: usize) {
    let mut lease = t.lease(queue, n).await.unwrap();
    assert_eq!(lease.items().len(), n);
    t.acknowledge(&mut lease, &ItemOutcome::Done).await;
}

#[test]
fn a_batch_calls_back_once_when_it_is_committed_and_all_members_have_ended() {
    on_database(async |t| {
        for (i, kind) in KINDS.into_iter().enumerate() {
            let (home, work) = (t.queue_of(format!("h{i}"), kind), t.queue(format!("w{i}")));
            let id = t.new_batch(&home, &new()).await;
            assert_eq!(id.home(), home.name());
            t.push_members(&work, &id, 2).await;
            t.push(&work, &["not a member"]).await;
            t.push_members(&work, &id, 1).await;
            let view = t.batch(&home, &id).await.unwrap();
            assert_eq!((view.counts, view.committed, view.created), (counts(3, 0), None, from_millis(NOW)));
            finish(t, &work, 3).await;
            assert_eq!(t.close(&home, NOW).await, [], "it is open");
            assert_eq!(t.commit_batch(&home, &id).await, BatchCommit::Committed);
            assert_eq!(t.close(&home, NOW).await, [], "a member has not ended");
            assert_eq!(t.batch(&home, &id).await.unwrap().counts, counts(3, 2));
            assert_eq!(left(t, &home).await, [1, 2, 0], "the mark is cleared");
            finish(t, &work, 1).await;
            let closed = (id.clone(), CloseReason::Complete, counts(3, 3));
            assert_eq!(t.close(&home, NOW).await, [closed], "{kind}");
            assert_eq!((t.close(&home, NOW).await, left(t, &home).await), (vec![], [0; 3]));
            let values = [&id.to_string(), "complete", "3", "3", "0", "0", "0", "0"].map(str::to_owned);
            assert_eq!(t.callbacks(&home).await, [values], "{kind}");
            let [item] = &t.run(async |tr| home.list(tr).await).await[..] else { panic!() };
            assert_eq!((&item.payload[..], item.attribute("k")), (&b"all done"[..], Some("v")));
            assert_eq!(t.batch(&home, &id).await, None);
            assert_eq!(t.commit_batch(&home, &id).await, BatchCommit::Gone);
        }
    });
}

#[test]
fn an_empty_batch_calls_back_when_it_is_committed() {
    on_database(async |t| {
        let home = t.queue("q");
        let id = t.new_batch(&home, &new()).await;
        assert_eq!(t.close(&home, NOW).await, []);
        assert_eq!(t.commit_batch(&home, &id).await, BatchCommit::Committed);
        assert_eq!(t.commit_batch(&home, &id).await, BatchCommit::WasCommitted);
        assert_eq!(t.close(&home, NOW).await, [(id, CloseReason::Complete, counts(0, 0))]);
        assert_eq!(t.list(&home).await, ["all done"]);
    });
}

/// Ends an item of each way, all of one batch.
async fn end_in_every_way(t: &TestDb, work: &Queue, id: &BatchId) {
    let (db, policy) = (&t.db, policy());
    let one = async || {
        t.push_members(work, id, 1).await;
        let items = t.run(async |tr| work.list(tr).await).await;
        items.last().unwrap().id.clone()
    };
    // Done: 3 of them on a lease at once, with one that is released and popped below.
    t.push_members(work, id, 4).await;
    let mut lease = t.lease(work, 4).await.unwrap();
    let outcome = |at| if at < 3 { ItemOutcome::Done } else { ItemOutcome::Release };
    let outcomes: Vec<_> = (0..4).map(|at| (at, outcome(at))).collect();
    lease.acknowledge(db, &policy, &outcomes).await.unwrap();
    // Taken: popped, taken by a session, and taken by a foreign program.
    assert_eq!(t.run(async |tr| work.pop_k(tr, k(1)).await).await.items.len(), 1);
    one().await;
    assert_eq!(t.session(work).take(db, k(1)).await.unwrap().got.len(), 1);
    let foreign = one().await;
    t.foreign_pop(work, &foreign).await;
    assert_eq!(t.sweep(&mut sweeper(work), 0, &rules()).await.moved.orphans, 1);
    // Expired: as a ready item, and on a lease.
    let expiring = || [NewItem::new("expires").with_batch(id.clone()).with_expiry(from_millis(7))];
    t.push_items(work, &expiring()).await;
    t.end_claim(work).await;
    assert_eq!(t.sweep(&mut sweeper(work), 7, &rules()).await.moved.expired, 1);
    t.push_items(work, &expiring()).await;
    let mut lease = t.lease(work, 1).await.unwrap();
    let expired = ItemOutcome::Expired { at: from_millis(7), on_expiry: OnExpiry::Drop };
    t.acknowledge(&mut lease, &expired).await;
    // Dead: by its handler after a retry; and by a lease that expires.
    one().await;
    let mut lease = t.lease(work, 1).await.unwrap();
    t.acknowledge(
        &mut lease,
        &ItemOutcome::Retry { due: None, failure: Failure::new(from_millis(1), 1, "no") },
    )
    .await;
    let mut lease = t.lease(work, 1).await.unwrap();
    t.acknowledge(&mut lease, &ItemOutcome::Dead(Failure::new(from_millis(1), 1, "no"))).await;
    one().await;
    let _lost = t.lease_for(work, 1, SHORT).await.unwrap();
    assert_eq!(t.sweep_leases(work, 1, &at_most(1)).await.dead, 1);
    // Cancelled: ready, scheduled and running; deleted; and all that there is.
    let cancel = async |id: &ItemId| {
        assert!(matches!(work.cancel_item(db, &policy, id).await.unwrap(), ItemChange::Done(_)));
    };
    cancel(&one().await).await;
    let scheduled = one().await;
    let mut lease = t.lease(work, 1).await.unwrap();
    t.acknowledge(&mut lease, &later(5)).await;
    cancel(&scheduled).await;
    let running = one().await;
    let _lease = t.lease(work, 1).await.unwrap();
    cancel(&running).await;
    let deleted = one().await;
    assert!(matches!(work.delete_item(db, &policy, &deleted).await.unwrap(), ItemChange::Done(_)));
    one().await;
    let mut lease = t.lease(work, 1).await.unwrap();
    t.acknowledge(&mut lease, &later(5)).await;
    one().await;
    let _lease = t.lease(work, 1).await.unwrap();
    one().await;
    let mut canceller = Canceller::new(work.clone(), CancelFilter::default());
    let mut cancelled = 0;
    while let Some(page) = canceller.page(db, &policy).await.unwrap() {
        cancelled += page.cancelled;
    }
    assert_eq!(cancelled, 3);
}

#[test]
fn every_way_to_end_counts_a_member_once() {
    on_database(async |t| {
        let home = t.queue("home");
        for recording in [None, Some(Recording::Off), Some(Recording::On)] {
            let work = t.queue(format!("{recording:?}"));
            let clock = Clock::new();
            let work = recording.map_or(work.clone(), |of| work.clone().with_recorder(&clock.recorder(of)));
            let id = t.new_batch(&home, &new()).await;
            end_in_every_way(t, &work, &id).await;
            let ended = BatchCounts {
                members: 17,
                done: 3,
                dead: 2,
                cancelled: 7,
                expired: 2,
                taken: 3,
                ..counts(0, 0)
            };
            assert_eq!(t.batch(&home, &id).await.unwrap().counts, ended, "{recording:?}");
            // A dead letter that is retried has ended for its batch.
            assert_eq!(work.retry_all_dead(&t.db, &policy(), None).await.unwrap().moved, 2);
            finish(t, &work, 2).await;
            assert_eq!(t.commit_batch(&home, &id).await, BatchCommit::Committed);
            assert_eq!(t.close(&home, NOW).await, [(id, CloseReason::Complete, ended)]);
        }
    });
}

#[test]
fn a_member_that_cannot_be_read_ends_as_a_dead_letter() {
    on_database(async |t| {
        let (home, work) = (t.queue("home"), t.queue("work"));
        let id = t.new_batch(&home, &new()).await;
        let long = NewItem::new(vec![b'x'; 250_000]).with_batch(id.clone());
        t.push_items(&work, &[long]).await;
        // A part of its payload is lost.
        let rows = t.rows().await;
        let chunk = rows.iter().map(|(key, _)| key).find(|key| key.windows(5).any(|part| part == b"chunk"));
        let key = [&t.prefix[..], chunk.unwrap()].concat();
        t.run(async |tr| {
            tr.clear(&key);
            Ok(())
        })
        .await;
        assert_eq!(t.session(&work).take(&t.db, k(1)).await.unwrap().got.len(), 0);
        let dead = BatchCounts { members: 1, dead: 1, ..BatchCounts::default() };
        assert_eq!(t.batch(&home, &id).await.unwrap().counts, dead);
        assert_eq!(work.purge_all_dead(&t.db, &policy(), None).await.unwrap().moved, 1);
        assert_eq!(t.batch(&home, &id).await.unwrap().counts, dead, "it has ended before");
    });
}

#[test]
fn only_items_that_are_stored_become_members() {
    on_database(async |t| {
        let (home, work) = (t.queue("home"), t.queue("work"));
        let id = t.new_batch(&home, &new()).await;
        let unique = |payload: &str| NewItem::new(payload.to_owned()).with_unique("u").with_batch(id.clone());
        // Of three items with one unique key one is stored, and none if the key is taken.
        t.push_items(&work, &[unique("a"), unique("b")]).await;
        t.push_items(&work, &[unique("c")]).await;
        let members = async || t.batch(&home, &id).await.unwrap().counts.members;
        assert_eq!(members().await, 1);
        let once = PushOptions::default().with_idempotency_key("once");
        let items = [NewItem::new("d").with_batch(id.clone()), NewItem::new("e").with_batch(id.clone())];
        let push = async |items: &[NewItem]| t.session(&work).push_items(&t.db, items, &once).await;
        push(&items).await.unwrap();
        push(&items).await.unwrap();
        assert_eq!(members().await, 3);
        // The push is known after the commit, too. Without the batch it is another one.
        t.commit_batch(&home, &id).await;
        push(&items).await.unwrap();
        let others = [NewItem::new("d"), NewItem::new("e")];
        assert!(push(&others).await.unwrap_err().idempotency_key_reused().is_some());
        assert_eq!((members().await, t.list(&work).await.len()), (3, 3));
    });
}

#[test]
fn a_push_to_a_batch_that_is_not_open_is_refused() {
    on_database(async |t| {
        let (home, work) = (t.queue("home"), t.queue("work"));
        let (committed, gone) = (t.new_batch(&home, &new()).await, t.new_batch(&home, &new()).await);
        t.push_members(&work, &committed, 1).await;
        t.commit_batch(&home, &committed).await;
        assert_eq!(home.drop_batch(&t.db, &policy(), &gone).await.unwrap(), Some(counts(0, 0)));
        assert_eq!(home.drop_batch(&t.db, &policy(), &gone).await.unwrap(), None);
        let before = t.rows().await;
        let never = BatchId::new(b"nowhere");
        for (id, why) in [(&committed, "is committed"), (&gone, "is not there"), (&never, "is not there")] {
            let items = [NewItem::new("a"), NewItem::new("b").with_batch(id.clone())];
            let pushed = t.session(&work).push_items(&t.db, &items, &PushOptions::default()).await;
            let error = pushed.unwrap_err();
            let refused = error.batch_refused().expect("it is refused").to_string();
            assert!(refused.contains(&id.to_string()) && refused.contains(why), "{refused}");
        }
        assert_eq!(t.rows().await, before);
    });
}

#[test]
fn a_cancelled_batch_does_not_call_back_and_its_members_go_on() {
    on_database(async |t| {
        let (home, work) = (t.queue("home"), t.queue("work"));
        for commits in [true, false] {
            let id = t.new_batch(&home, &new().with_deadline(from_millis(NOW + 500))).await;
            t.push_members(&work, &id, 2).await;
            finish(t, &work, 1).await;
            if commits {
                t.commit_batch(&home, &id).await;
            }
            assert_eq!(home.drop_batch(&t.db, &policy(), &id).await.unwrap(), Some(counts(2, 1)));
            assert_eq!(left(t, &home).await, [0; 3]);
            finish(t, &work, 1).await;
            assert_eq!((t.close(&home, NOW + 501).await, left(t, &home).await), (vec![], [0; 3]));
        }
        assert!(t.list(&home).await.is_empty());
    });
}

#[test]
fn a_member_that_is_moved_to_another_queue_stays_a_member() {
    on_database(async |t| {
        let (home, from, to) = (t.queue("home"), t.queue("from"), t.queue_of("to", Kind::Keyed));
        let id = t.new_batch(&home, &new()).await;
        t.push_members(&from, &id, 2).await;
        let mut lease = t.lease(&from, 1).await.unwrap();
        t.acknowledge(&mut lease, &ItemOutcome::Dead(Failure::new(from_millis(1), 1, "no"))).await;
        for what in [Movable::Ready, Movable::Dead] {
            let mut mover = Mover::new(from.clone(), to.clone(), what).unwrap();
            while mover.page(&t.db, &policy(), k(9)).await.unwrap().is_some() {}
        }
        let one_dead = BatchCounts { members: 2, dead: 1, ..BatchCounts::default() };
        assert_eq!(t.batch(&home, &id).await.unwrap().counts, one_dead);
        finish(t, &to, 2).await;
        assert_eq!(t.batch(&home, &id).await.unwrap().counts, BatchCounts { done: 1, ..one_dead });
    });
}

#[test]
fn an_imported_item_is_no_member() {
    on_database(async |t| {
        let (home, work) = (t.queue("home"), t.queue("work"));
        let id = t.new_batch(&home, &new()).await;
        t.push_members(&work, &id, 1).await;
        let [item] = &t.run(async |tr| work.list(tr).await).await[..] else { panic!() };
        let meta = (**item.meta.as_ref().unwrap()).clone();
        assert_eq!(meta.batches, std::slice::from_ref(&id));
        restore(t, &work, &[StoredItem { meta, ..StoredItem::default() }]).await;
        finish(t, &work, 2).await;
        assert_eq!(t.batch(&home, &id).await.unwrap().counts, counts(1, 1));
    });
}

#[test]
fn members_and_ends_are_counted_once_under_unknown_outcomes() {
    on_database(async |t| {
        for (i, script) in scripts().into_iter().enumerate() {
            let (home, work) = (t.queue(format!("h{i}")), t.queue(format!("w{i}")));
            let faulty = || t.install(Faults::script(script.clone()));
            if !faulty() {
                return;
            }
            let id = t.new_batch(&home, &new()).await;
            assert_eq!(t.records(&home, "batch").await.len(), 1, "{script:?}");
            faulty();
            t.push_members(&work, &id, 3).await;
            assert_eq!(t.batch(&home, &id).await.unwrap().counts, counts(3, 0), "{script:?}");
            t.end_faults();
            let mut lease = t.lease(&work, 3).await.unwrap();
            faulty();
            t.acknowledge(&mut lease, &ItemOutcome::Done).await;
            assert_eq!(t.batch(&home, &id).await.unwrap().counts, counts(3, 3), "{script:?}");
            faulty();
            assert_eq!(t.commit_batch(&home, &id).await, BatchCommit::Committed, "{script:?}");
            faulty();
            let closed = (id.clone(), CloseReason::Complete, counts(3, 3));
            assert_eq!(t.close(&home, NOW).await, [closed], "{script:?}");
            t.end_faults();
            assert_eq!((t.list(&home).await.len(), left(t, &home).await), (1, [0; 3]), "{script:?}");
            let id = t.new_batch(&home, &new()).await;
            faulty();
            let dropped = home.drop_batch(&t.db, &policy(), &id).await.unwrap();
            assert_eq!(dropped, Some(counts(0, 0)), "{script:?}");
            t.end_faults();
        }
    });
}

async fn freeze(t: &TestDb, q: &Queue) {
    let pause = Pause { at: from_millis(1), reason: "moving".to_owned(), frozen: true };
    t.run(async |tr| {
        q.pause(tr, &pause);
        Ok(())
    })
    .await;
}

#[test]
fn a_frozen_home_refuses_changes_of_its_batches() {
    on_database(async |t| {
        let (home, work) = (t.queue("home"), t.queue("work"));
        let id = t.new_batch(&home, &new()).await;
        t.push_members(&work, &id, 2).await;
        t.push_members(&home, &id, 1).await;
        let (mut elsewhere, mut own) = (t.lease(&work, 2).await.unwrap(), t.lease(&home, 1).await.unwrap());
        freeze(t, &home).await;
        let before = t.rows().await;
        let is_frozen = |error: RetryError| assert!(error.error.frozen().is_some(), "{error:?}");
        let (db, policy) = (&t.db, &policy());
        let created = home.create_batch(db, policy, &new(), from_millis(NOW)).await;
        let Err(BatchError::Retry(error)) = created else { panic!("{created:?}") };
        is_frozen(error);
        is_frozen(home.finish_batch(db, policy, &id, from_millis(NOW)).await.unwrap_err());
        is_frozen(home.drop_batch(db, policy, &id).await.unwrap_err());
        let items = [NewItem::new("x").with_batch(id.clone())];
        let pushed = t.session(&work).push_items(db, &items, &PushOptions::default()).await;
        assert!(pushed.unwrap_err().frozen().is_some());
        // Its copy would not have that a member in another queue ends.
        elsewhere.acknowledge(db, policy, &[(0, ItemOutcome::Done)]).await.unwrap_err();
        assert_eq!(t.rows().await, before);
        // A migration notices the end of an item of the home itself.
        own.acknowledge(db, policy, &[(0, ItemOutcome::Done)]).await.unwrap();
        assert_eq!(t.batch(&home, &id).await.unwrap().counts, counts(3, 1));
        let record = |phase| migration::Record {
            run: [7; 16],
            phase,
            rows: 0,
            bytes: 0,
            marks: migration::Marks::default(),
            through: Vec::new(),
            pause: None,
        };
        let comes_to = async |phase| {
            t.run(async |tr| {
                migration::put_record(&home, tr, &record(phase));
                Ok(())
            })
            .await;
        };
        comes_to(migration::Phase::Fenced).await;
        elsewhere.acknowledge(db, policy, &[(0, ItemOutcome::Done)]).await.unwrap_err();
        // While it is copied, the migration notices this end, too: a counter changes.
        comes_to(migration::Phase::Leaving).await;
        let before = t.counter(&home, "nlater").await;
        elsewhere.acknowledge(db, policy, &[(0, ItemOutcome::Done)]).await.unwrap();
        assert_eq!(t.batch(&home, &id).await.unwrap().counts, counts(3, 2));
        assert_eq!(t.counter(&home, "nlater").await, before + 1);
        // The home lives in another database now. Its batch cannot be reached, and members do not wait for it.
        comes_to(migration::Phase::Left).await;
        elsewhere.acknowledge(db, policy, &[(1, ItemOutcome::Done)]).await.unwrap();
        assert_eq!(t.batch(&home, &id).await.unwrap().counts, counts(3, 2));
    });
}

#[test]
fn a_deleted_queue_takes_its_batches_along() {
    on_database(async |t| {
        let (home, work) = (t.queue("home"), t.queue("work"));
        let id = t.new_batch(&home, &new().with_deadline(from_millis(NOW + 500))).await;
        t.push_members(&work, &id, 1).await;
        t.run(async |tr| {
            home.delete(tr);
            Ok(())
        })
        .await;
        finish(t, &work, 1).await;
        assert_eq!((t.close(&home, NOW + 501).await, left(t, &home).await), (vec![], [0; 3]));
    });
}

#[test]
fn a_queue_has_no_batches_of_another_one() {
    on_database(async |t| {
        let (home, other) = (t.queue("home"), t.queue("other"));
        let id = t.new_batch(&home, &new()).await;
        assert_eq!(t.batch(&other, &id).await, None);
        assert_eq!(t.commit_batch(&other, &id).await, BatchCommit::Gone);
        assert_eq!(other.drop_batch(&t.db, &policy(), &id).await.unwrap(), None);
        let tr = t.db.create_trx().unwrap();
        let refused = other.new_batch(&tr, &id, &new(), from_millis(NOW)).await;
        assert!(matches!(refused, Err(BatchError::OtherHome { .. })));
    });
}
