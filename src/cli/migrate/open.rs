//! The first phase: what is there, whether the queue may be moved, and the records and pauses that say that it is.

use std::time::{Duration, Instant};

use kvqueue_queue::{
    Pause, Queue,
    migration::{self, Phase, Record},
};
use tokio::time::sleep;
use uuid::Uuid;

use super::{
    ends::{End, Ends},
    error::MigrateError,
    moving::Moving,
    report::Report,
    start::{Found, Start},
};
use crate::consumer::clock::now;

/// Between two looks at the leases that are waited for.
const LOOK: Duration = Duration::from_millis(200);

/// The records at both ends at one moment: another migration of the queue may be writing its records, first at the source.
pub(super) async fn look(ends: &Ends, queue: &Queue) -> Result<Found, MigrateError> {
    let at = async |end: &End| {
        end.transact(async |tr| Ok((migration::record(queue, tr).await?, queue.exists(tr).await?))).await
    };
    loop {
        let (source, source_has_queue) = at(&ends.from).await?;
        let (target, target_has_queue) = at(&ends.to).await?;
        if at(&ends.from).await?.0 == source {
            return Ok(Found { source, target, source_has_queue, target_has_queue });
        }
    }
}

/// Claims the queue at both ends, unless that is done; returns it with the target's record. Nobody but who is asked by name takes from it there any more,
/// and sweepers leave it alone.
pub(super) async fn claim<'m>(
    ends: &'m Ends,
    queue: Queue,
    found: &Found,
    (start, report): (Start, &'m Report),
) -> Result<(Moving<'m>, Record), MigrateError> {
    let run = match start {
        Start::Begin(None) => Uuid::now_v7().into_bytes(),
        Start::Begin(Some(run)) | Start::GoOn(run) | Start::Done(run) => run,
    };
    let mut moving = Moving { ends, queue, run, report, frozen_by: 0 };
    let is_fenced =
        matches!(&found.source, Some(record) if record.run == run && record.phase != Phase::Leaving);
    if !is_fenced {
        leave(&moving, found.source.as_ref()).await?;
        moving.frozen_by = ends.from.transact(async |tr| migration::version(tr).await).await?;
    }
    let record = match &found.target {
        Some(record) => record.clone(),
        None => arrive(&moving).await?,
    };
    Ok((moving, record))
}

/// At the source: a record, and a pause.
async fn leave(moving: &Moving<'_>, before: Option<&Record>) -> Result<(), MigrateError> {
    let (queue, run) = (&moving.queue, moving.run);
    let pause = Pause {
        at: now(),
        frozen: true,
        reason: format!("kvqueue migrate is moving it to {}", moving.ends.to.url),
    };
    let left = moving.ends.from.transact(async |tr| {
        let record = migration::record(queue, tr).await?;
        let own = record.as_ref().filter(|record| record.run == run && record.phase == Phase::Leaving);
        if own.is_none() {
            if record.as_ref() != before {
                return Ok(false);
            }
            // One that an earlier migration has made is none of anybody's.
            let pause = match record.filter(|record| record.phase.is_of_source()) {
                Some(record) => record.pause,
                None => migration::stored_pause(queue, tr).await?,
            };
            migration::put_record(queue, tr, &Record { pause, ..Record::new(run, Phase::Leaving) });
        }
        queue.pause(tr, &pause);
        Ok(true)
    });
    if left.await? { Ok(()) } else { Err(MigrateError::Busy { queue: moving.name() }) }
}

/// At the target: a record, and a pause.
async fn arrive(moving: &Moving<'_>) -> Result<Record, MigrateError> {
    let queue = &moving.queue;
    let first = Record::new(moving.run, Phase::Copying);
    let pause = Pause {
        at: now(),
        frozen: true,
        reason: format!("kvqueue migrate is moving it here from {}", moving.ends.from.url),
    };
    let is_ours = moving.ends.to.transact(async |tr| {
        match migration::record(queue, tr).await? {
            Some(record) => return Ok(record == first),
            None if queue.exists(tr).await? => return Ok(false),
            None => {}
        }
        queue.pause(tr, &pause);
        migration::put_record(queue, tr, &first);
        Ok(true)
    });
    if is_ours.await? { Ok(first) } else { Err(MigrateError::Busy { queue: moving.name() }) }
}

/// Waits until nobody holds a lease at the source, or for so long.
pub(super) async fn wait_for_leases(moving: &Moving<'_>, patience: Duration) -> Result<(), MigrateError> {
    let began = Instant::now();
    let mut is_said = false;
    loop {
        let live: Result<usize, _> =
            moving.ends.from.transact(async |tr| migration::live_leases(&moving.queue, tr).await).await;
        let live = live?;
        if live == 0 {
            return Ok(());
        }
        if began.elapsed() >= patience {
            moving.report.note(format_args!(
                "{live} batches of {} are still running at the source: they are copied as they are, and their workers lose them",
                moving.name()
            ));
            return Ok(());
        }
        if !is_said {
            is_said = true;
            moving.report.note(format_args!("waiting for {live} running batches of {}", moving.name()));
        }
        sleep(LOOK.min(patience)).await;
    }
}
