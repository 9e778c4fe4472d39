//! How a migration begins, by the state of both ends. Pure.

use kvqueue_queue::migration::{Phase, Record, RunId};

use super::error::MigrateError;

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
    /// It is at the target; that may not have been noted at the source.
    Done(RunId),
}

/// Decides it. With `again` a queue that was moved away before is moved as if it had not been.
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
