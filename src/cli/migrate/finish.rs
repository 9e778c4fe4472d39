//! The last phases: that the source has not changed since it was compared, and that it is the target's turn.

use std::time::Duration;

use foundationdb::Transaction;
use kvqueue_queue::{
    Pause, QueueError,
    migration::{self, Marks, Phase, Record},
};
use tokio::time::sleep;
use twox_hash::xxhash3_128;

use super::{
    ends,
    error::MigrateError,
    moving::Moving,
    rows::{self, Compared},
};
use crate::base::{clock::now, times::timestamp};

/// Between two attempts to fence a queue that was frozen a moment ago.
const EARLY: Duration = Duration::from_millis(20);

/// Passes over both ends before an error reports that the source is still written to. The first
/// pass corrects rows that changed while they were copied.
const PASSES: u32 = 4;

/// The change to the source.
async fn marks(moving: &Moving<'_>, tr: &Transaction, snapshot: bool) -> Result<Marks, QueueError> {
    let counters = migration::counters(&moving.queue, tr, snapshot).await?;
    let mut digest = xxhash3_128::Hasher::new();
    let mut visit = |key: &[u8], value: &[u8]| rows::add_to(&mut digest, key, value);
    migration::visit_marks(&moving.queue, tr, snapshot, &mut visit).await?;
    Ok(Marks { counters, digest: digest.finish_128().to_be_bytes() })
}

/// Compares until both ends are equal and the source has not changed since. The source has no
/// leases then. Returns the record, and the rows that were compared if that was now.
pub(super) async fn compare_until_equal(
    moving: &Moving<'_>,
    mut record: Record,
) -> Result<(Record, Option<Compared>), MigrateError> {
    let mut compared = None;
    for _ in 0..PASSES {
        if record.phase == Phase::Comparing {
            let marks = moving.ends.from.transact(async |tr| marks(moving, tr, true).await).await?;
            let pass = rows::compare(moving, Some(&record)).await?;
            if pass.differing > 0 {
                moving.report.mended(&moving.name(), pass.differing);
                continue;
            }
            compared = Some(pass);
            let equal = Record { phase: Phase::Equal, marks, ..record.clone() };
            moving.step(&record, &equal, |_| ()).await?;
            record = equal;
        }
        moving.report.phase(&moving.name(), "fencing");
        if fence(moving, &record.marks).await? {
            return Ok((record, compared));
        }
        let again = Record { phase: Phase::Comparing, marks: Marks::default(), ..record.clone() };
        moving.step(&record, &again, |_| ()).await?;
        record = again;
    }
    Err(MigrateError::StillWritten { queue: moving.name(), passes: PASSES })
}

/// The result of an attempt to fence.
enum Fenced {
    /// It is done, or was done before.
    Done,
    /// The source has changed.
    Changed,
    /// Sessions may still push, since they know the queue as not frozen.
    TooEarly,
    /// The migration's record is gone.
    Gone,
}

/// Takes all leases away, unless the source has changed. True if that is done, or was before.
async fn fence(moving: &Moving<'_>, expected: &Marks) -> Result<bool, MigrateError> {
    loop {
        match try_fence(moving, expected).await? {
            Fenced::Done => return Ok(true),
            Fenced::Changed => return Ok(false),
            Fenced::TooEarly => sleep(EARLY).await,
            Fenced::Gone => return Err(MigrateError::Busy { queue: moving.name() }),
        }
    }
}

async fn try_fence(moving: &Moving<'_>, expected: &Marks) -> Result<Fenced, MigrateError> {
    let queue = &moving.queue;
    let pause = paused(moving, "moved it");
    let fenced = moving.ends.from.transact(async |tr| {
        let record = migration::record(queue, tr).await?.filter(|record| record.run == moving.run);
        match record {
            Some(record) if record.phase == Phase::Leaving => {
                if marks(moving, tr, false).await? != *expected {
                    return Ok(Fenced::Changed);
                }
                if !migration::fence(queue, tr, moving.frozen_by).await? {
                    return Ok(Fenced::TooEarly);
                }
                queue.pause(tr, &pause);
                migration::put_record(queue, tr, &Record { phase: Phase::Fenced, ..record });
                Ok(Fenced::Done)
            }
            Some(_) => Ok(Fenced::Done),
            None => Ok(Fenced::Gone),
        }
    });
    fenced.await
}

/// Opens the queue at the target: its counters are added to what has been counted there, and it is
/// paused only if it was at the source before.
pub(super) async fn publish_target(
    moving: &Moving<'_>,
    record: &Record,
    may_advance: bool,
) -> Result<(), MigrateError> {
    let queue = &moving.queue;
    // Whatever was pushed at the source since was not copied, so this is the last version that counts.
    ends::ensure_versions(moving.ends, may_advance, moving.report).await?;
    let source = moving.ends.from.transact(async |tr| migration::record(queue, tr).await).await?;
    let pause = source.and_then(|record| record.pause);
    let arrived = Record { phase: Phase::Arrived, marks: Marks::default(), ..record.clone() };
    moving.report.phase(&moving.name(), "landing");
    moving
        .step_among_others(record, &arrived, |tr| {
            migration::add_counters(queue, tr, &record.marks.counters);
            match &pause {
                Some(pause) => migration::put_pause(queue, tr, pause),
                None => queue.resume(tr),
            }
        })
        .await
}

/// Notes at the source that the queue was moved, and where to.
pub(super) async fn mark_source_left(moving: &Moving<'_>) -> Result<(), MigrateError> {
    let queue = &moving.queue;
    let pause = paused(moving, "moved it");
    let left = moving.ends.from.transact(async |tr| {
        if let Some(record) = migration::record(queue, tr).await?
            && record.run == moving.run
            && record.phase == Phase::Fenced
        {
            queue.pause(tr, &pause);
            migration::put_record(queue, tr, &Record { phase: Phase::Left, ..record });
        }
        Ok(())
    });
    left.await
}

fn paused(moving: &Moving<'_>, what: &str) -> Pause {
    let at = now();
    let time = timestamp(at).unwrap_or_default();
    let reason = format!("kvqueue migrate {what} to {} at {time:.0}", moving.ends.to.url);
    Pause { at, frozen: true, reason }
}
