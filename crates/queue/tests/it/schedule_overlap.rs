//! Schedules whose items may not overlap.

use kvqueue_queue::schedule::{ByHand, OccurrenceRecord, Outcome, Overlap, SkipReason};
use kvqueue_queue::{Failure, ItemOutcome, Queue, RetryPolicy, from_millis};

use crate::common::schedules::{MINUTE, fired, schedule, span};
use crate::common::{KINDS, Millis, TestDb, on_database};

fn failure() -> Failure {
    Failure::new(from_millis(0), 1, "no")
}

/// Puts a schedule "s" for every minute with this overlap.
async fn put(t: &TestDb, q: &Queue, overlap: Overlap) {
    let mut one = schedule("s", MINUTE);
    one.overlap = overlap;
    t.put(q, &one, 0).await;
}

/// The nominal times that were skipped since the last item had not ended.
async fn skipped(t: &TestDb, q: &Queue) -> Vec<(Millis, Millis, u64)> {
    let history = t.schedule_history(q, "s").await;
    let skipped = history.iter().filter(|record| record.outcome == Outcome::Skipped(SkipReason::Overlap));
    let minutes = |record: &OccurrenceRecord| {
        let (from, to) = span(record);
        (from / MINUTE, to / MINUTE, record.count)
    };
    skipped.map(minutes).collect()
}

#[test]
fn an_occurrence_is_skipped_until_the_last_item_has_ended() {
    on_database(async |t| {
        for (i, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{i}"), kind);
            put(t, &q, Overlap::Skip).await;
            t.look(&q, MINUTE).await;
            t.look(&q, 2 * MINUTE).await;
            let retry = ItemOutcome::Retry { due: Some(from_millis(60 * MINUTE)), failure: failure() };
            let mut lease = t.lease(&q, 1).await.unwrap();
            t.look(&q, 3 * MINUTE).await;
            t.acknowledge(&mut lease, &retry).await;
            t.look(&q, 4 * MINUTE).await;
            let waiting = t.run(async |tr| q.scheduled_after(tr, None, crate::common::k(1)).await).await;
            let requeued = q.retry_item(&t.db, &RetryPolicy::default(), &waiting[0].id).await.unwrap();
            assert!(matches!(requeued, kvqueue_queue::ItemChange::Done(_)), "{kind}");
            t.acknowledge(&mut t.lease(&q, 1).await.unwrap(), &ItemOutcome::Done).await;
            t.look(&q, 5 * MINUTE).await;
            // A dead letter has ended, too.
            t.acknowledge(&mut t.lease(&q, 1).await.unwrap(), &ItemOutcome::Dead(failure())).await;
            t.look(&q, 6 * MINUTE).await;
            let history = t.schedule_history(&q, "s").await;
            assert_eq!(fired(&history), [1, 5, 6].map(|n| n * MINUTE), "{kind}");
            assert_eq!(skipped(t, &q).await, [(2, 2, 1), (3, 3, 1), (4, 4, 1)], "{kind}");
        }
    });
}

#[test]
fn one_occurrence_waits_until_the_last_item_has_ended() {
    on_database(async |t| {
        for (i, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{i}"), kind);
            put(t, &q, Overlap::Queue).await;
            t.look(&q, MINUTE).await;
            let mut lease = t.lease(&q, 1).await.unwrap();
            let look = t.look(&q, 2 * MINUTE).await;
            assert_eq!((look.occurrences.len(), look.next), (0, Some(2 * MINUTE + 1_000)), "{kind}");
            assert_eq!(t.schedule_state(&q, "s").await.waiting, Some(from_millis(2 * MINUTE)), "{kind}");
            // The longer it waits, the less often a sweeper looks.
            let look = t.look(&q, 2 * MINUTE + 50_000).await;
            assert_eq!(look.next, Some(2 * MINUTE + 55_000), "{kind}");
            t.look(&q, 3 * MINUTE).await;
            t.look(&q, 4 * MINUTE).await;
            t.acknowledge(&mut lease, &ItemOutcome::Done).await;
            t.look(&q, 4 * MINUTE + 30_000).await;
            let state = t.schedule_state(&q, "s").await;
            let row = t.first_row(&q).await;
            assert_eq!(
                (state.waiting, state.next, row),
                (None, Some(from_millis(5 * MINUTE)), Some(5 * MINUTE)),
                "{kind}"
            );
            let history = t.schedule_history(&q, "s").await;
            assert_eq!(fired(&history), [MINUTE, 2 * MINUTE], "{kind}");
            assert_eq!(skipped(t, &q).await, [(3, 3, 1), (4, 4, 1)], "{kind}");
            // The next one waits for that.
            t.look(&q, 5 * MINUTE).await;
            assert_eq!(t.schedule_state(&q, "s").await.waiting, Some(from_millis(5 * MINUTE)), "{kind}");
        }
    });
}

#[test]
fn an_occurrence_that_waits_is_skipped_when_the_schedule_is_resumed() {
    on_database(async |t| {
        let q = t.queue("q");
        put(t, &q, Overlap::Queue).await;
        t.look(&q, MINUTE).await;
        t.look(&q, 2 * MINUTE).await;
        t.run(async |tr| q.pause_schedule(tr, "s", from_millis(2 * MINUTE + 1)).await).await;
        t.acknowledge(&mut t.lease(&q, 1).await.unwrap(), &ItemOutcome::Done).await;
        t.run(async |tr| q.resume_schedule(tr, "s", from_millis(5 * MINUTE)).await).await;
        assert_eq!(t.schedule_state(&q, "s").await.waiting, None);
        assert_eq!(t.look(&q, 6 * MINUTE).await.fired(), [6 * MINUTE]);
        let history = t.schedule_history(&q, "s").await;
        let skipped: Vec<_> = history
            .iter()
            .filter(|record| record.outcome == Outcome::Skipped(SkipReason::Paused))
            .map(span)
            .collect();
        assert_eq!(skipped, [(2 * MINUTE, 2 * MINUTE), (3 * MINUTE, 5 * MINUTE)]);
    });
}

#[test]
fn of_missed_occurrences_that_may_not_overlap_the_newest_fires() {
    on_database(async |t| {
        for (name, overlap) in [("skip", Overlap::Skip), ("queue", Overlap::Queue)] {
            let q = t.queue(name);
            put(t, &q, overlap).await;
            t.look(&q, 10 * MINUTE).await;
            let history = t.schedule_history(&q, "s").await;
            assert_eq!(fired(&history), [10 * MINUTE], "{name}");
            assert_eq!(span(&history[0]), (MINUTE, 9 * MINUTE), "{name}");
        }
    });
}

#[test]
fn an_item_by_hand_may_not_overlap_either() {
    on_database(async |t| {
        let q = t.queue("q");
        put(t, &q, Overlap::Skip).await;
        let policy = RetryPolicy::default();
        let hand = q.fire_schedule(&t.db, &policy, "s", from_millis(1_000), None).await.unwrap();
        assert!(matches!(hand, ByHand::Fired { id: Some(_) }), "{hand:?}");
        assert_eq!(
            q.fire_schedule(&t.db, &policy, "s", from_millis(2_000), None).await.unwrap(),
            ByHand::Overlaps
        );
        t.look(&q, MINUTE).await;
        assert_eq!((t.len(&q).await, skipped(t, &q).await), (1, vec![(1, 1, 1)]));
    });
}

#[test]
fn items_of_a_removed_schedule_still_count_for_a_new_one_of_its_name() {
    on_database(async |t| {
        let q = t.queue("q");
        put(t, &q, Overlap::Skip).await;
        t.look(&q, MINUTE).await;
        assert!(t.run(async |tr| q.remove_schedule(tr, "s").await).await);
        assert_eq!(t.records(&q, "schedule-log").await, []);
        put(t, &q, Overlap::Skip).await;
        t.look(&q, MINUTE).await;
        assert_eq!((t.len(&q).await, skipped(t, &q).await), (1, vec![(1, 1, 1)]));
    });
}

#[test]
fn one_transaction_fires_some_schedules_and_skips_others() {
    on_database(async |t| {
        for (i, kind) in KINDS.into_iter().enumerate() {
            let q = t.queue_of(format!("q{i}"), kind);
            for (name, overlap) in [("a", Overlap::Allow), ("b", Overlap::Skip), ("c", Overlap::Queue)] {
                let mut one = schedule(name, MINUTE);
                one.overlap = overlap;
                t.put(&q, &one, 0).await;
            }
            t.look(&q, MINUTE).await;
            let look = t.look(&q, 2 * MINUTE).await;
            assert_eq!((look.occurrences.len(), t.len(&q).await), (2, 4), "{kind}");
            let counts = ["a", "b", "c"].map(async |name| t.schedule_state(&q, name).await.occurrences);
            assert_eq!(futures::future::join_all(counts).await, [2, 1, 1], "{kind}");
        }
    });
}
