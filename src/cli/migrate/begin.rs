//! How a migration begins: what is at both ends, whether the queue may be moved, and the records and pauses by which the
//! migration claims it.

use std::time::{Duration, Instant};

use kvqueue_queue::{
    Pause, Queue,
    migration::{self, Phase, Record, RunId},
};
use tokio::time::sleep;
use uuid::Uuid;

use super::{
    ends::{End, Ends},
    error::MigrateError,
    moving::Moving,
    report::Report,
};
use crate::base::clock::now;

/// The records of both ends at the beginning.
#[derive(Debug, Clone, Default)]
pub(super) struct Found {
    pub(super) source: Option<Record>,
    pub(super) target: Option<Record>,
    pub(super) source_has_queue: bool,
    pub(super) target_has_queue: bool,
}

/// How the migration begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// Copy from the beginning, under this id if it has one.
    Begin(Option<RunId>),
    /// Go on with what an earlier run has left.
    GoOn(RunId),
    /// The queue is at the target; the source may have no record of that yet.
    Done(RunId),
}

/// Decides how the migration begins. With `again`, a queue that was moved away before is moved once more.
pub(super) fn decide(found: &Found, again: bool, queue: String) -> Result<Start, MigrateError> {
    let source = found.source.as_ref().map(|record| (record.phase, record.run));
    if matches!(source, Some((Phase::Copying | Phase::Comparing | Phase::Equal, _))) {
        return Err(MigrateError::Incomplete { queue });
    }
    let own = source.filter(|(phase, _)| phase.is_of_source()).map(|(_, run)| run);
    match &found.target {
        Some(target) if target.phase == Phase::Leaving => Err(MigrateError::LeavingTarget { queue }),
        Some(target) if target.phase.is_of_source() => Err(MigrateError::LeftTarget { queue }),
        Some(target) if own == Some(target.run) => {
            let is_done = target.phase == Phase::Arrived;
            Ok(if is_done { Start::Done(target.run) } else { Start::GoOn(target.run) })
        }
        Some(target) if target.phase == Phase::Arrived => Err(MigrateError::Exists { queue }),
        Some(_) => Err(MigrateError::Foreign { queue }),
        None if found.target_has_queue => Err(MigrateError::Exists { queue }),
        None if !found.source_has_queue => Err(MigrateError::NoQueue { queue }),
        None => match source {
            Some((Phase::Fenced | Phase::Left, _)) if !again => Err(MigrateError::LeftBefore { queue }),
            Some((Phase::Leaving, run)) => Ok(Start::Begin(Some(run))),
            _ => Ok(Start::Begin(None)),
        },
    }
}

/// The time between two looks at running leases.
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

/// Claims the queue at both ends, unless that is done, and returns it with the target's record. From then on daemons fetch
/// nothing from it, and sweepers leave it alone.
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

/// Writes a record and a pause at the source.
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
            // The pause of an earlier migration is not an operator's.
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

/// Writes a record and a pause at the target.
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

/// Waits until there are no leases at the source, but no longer than `patience`.
pub(super) async fn wait_for_leases(moving: &Moving<'_>, patience: Duration) -> Result<(), MigrateError> {
    let began = Instant::now();
    let mut is_printed = false;
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
        if !is_printed {
            is_printed = true;
            moving.report.note(format_args!("waiting for {live} running batches of {}", moving.name()));
        }
        sleep(LOOK.min(patience)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: RunId = [1; 16];
    const OTHER: RunId = [2; 16];

    fn record(phase: Phase, run: RunId) -> Option<Record> {
        Some(Record::new(run, phase))
    }

    /// The decision, or the first words of the refusal behind the queue's name.
    fn decided(
        source: Option<Record>,
        target: Option<Record>,
        target_has_queue: bool,
    ) -> Result<Start, String> {
        let found = Found { source, target, source_has_queue: true, target_has_queue };
        decide(&found, false, "Q".to_owned()).map_err(|error| error.to_string())
    }

    #[track_caller]
    fn refused(source: Option<Record>, target: Option<Record>, target_has_queue: bool, why: &str) {
        let error = decided(source, target, target_has_queue).unwrap_err();
        assert!(error.contains(why), "{error}");
    }

    #[test]
    fn a_migration_begins_at_an_empty_target_and_continues_its_own() {
        assert_eq!(decided(None, None, false), Ok(Start::Begin(None)));
        // It died before the target knew of it.
        assert_eq!(decided(record(Phase::Leaving, OWN), None, false), Ok(Start::Begin(Some(OWN))));
        // The queue came here by another migration, and leaves again.
        assert_eq!(decided(record(Phase::Arrived, OTHER), None, false), Ok(Start::Begin(None)));
        for source in [Phase::Leaving, Phase::Fenced] {
            for target in [Phase::Copying, Phase::Comparing, Phase::Equal] {
                assert_eq!(decided(record(source, OWN), record(target, OWN), true), Ok(Start::GoOn(OWN)));
            }
        }
        for source in [Phase::Fenced, Phase::Left] {
            assert_eq!(decided(record(source, OWN), record(Phase::Arrived, OWN), true), Ok(Start::Done(OWN)));
            // Also when everything has been processed there.
            assert_eq!(
                decided(record(source, OWN), record(Phase::Arrived, OWN), false),
                Ok(Start::Done(OWN))
            );
        }
    }

    #[test]
    fn a_migration_does_not_overwrite_another_queue_or_migration() {
        refused(None, None, true, "did not come from this source");
        refused(record(Phase::Leaving, OWN), None, true, "did not come from this source");
        refused(None, record(Phase::Arrived, OTHER), true, "did not come from this source");
        refused(
            record(Phase::Leaving, OWN),
            record(Phase::Arrived, OTHER),
            true,
            "did not come from this source",
        );
        refused(None, record(Phase::Copying, OTHER), true, "from somewhere else");
        refused(record(Phase::Arrived, OTHER), record(Phase::Equal, OTHER), true, "from somewhere else");
        refused(None, record(Phase::Leaving, OTHER), true, "is being moved away from the target");
        for phase in [Phase::Fenced, Phase::Left] {
            refused(None, record(phase, OTHER), true, "was moved away from the target");
        }
        for phase in [Phase::Copying, Phase::Comparing, Phase::Equal] {
            refused(record(phase, OTHER), None, false, "not all of it is there");
        }
    }

    #[test]
    fn a_queue_that_was_moved_away_is_moved_again_only_with_again() {
        for phase in [Phase::Fenced, Phase::Left] {
            refused(record(phase, OWN), None, false, "--again");
            let found = Found { source: record(phase, OWN), source_has_queue: true, ..Found::default() };
            assert_eq!(decide(&found, true, String::new()).unwrap(), Start::Begin(None));
        }
        assert!(matches!(decide(&Found::default(), true, "Q".to_owned()), Err(MigrateError::NoQueue { .. })));
    }
}
