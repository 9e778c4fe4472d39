//! Counts and logs the batches that a sweep has closed.

use kvqueue_queue::{
    Swept,
    item_batch::{CloseReason, ClosedBatch},
};

use crate::consumer::runtime::NamedQueue;

/// Counts the batches of a sweep, and logs them.
pub(super) fn report(queue: &NamedQueue, swept: &Swept) {
    for batch in &swept.closed_batches {
        let meters = &queue.meters.batches;
        let meter = match batch.reason {
            CloseReason::Complete => &meters.complete,
            CloseReason::Deadline => &meters.deadline,
        };
        meter.inc();
        log(&queue.name, batch);
    }
    for batch in &swept.unusable_batches {
        tracing::warn!(
            event = "batch_unusable",
            queue = %queue.name,
            %batch,
            "a batch is due and cannot call back: this version cannot read it, or the queue cannot have its item"
        );
    }
}

fn log(queue: &str, ClosedBatch { id, reason, is_committed, counts, created: _ }: &ClosedBatch) {
    match reason {
        CloseReason::Complete => {
            tracing::info!(
                event = "batch_complete",
                queue,
                batch = %id,
                members = counts.members,
                done = counts.done,
                dead = counts.dead,
                "all members of a batch have ended; its callback is pushed"
            );
        }
        CloseReason::Deadline => {
            tracing::warn!(
                event = "batch_deadline",
                queue,
                batch = %id,
                committed = is_committed,
                members = counts.members,
                open = counts.open(),
                "a batch has reached its deadline; its callback is pushed"
            );
        }
    }
}
