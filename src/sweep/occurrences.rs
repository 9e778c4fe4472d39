//! Counts and logs what a sweep did about schedules.

use std::time::SystemTime;

use kvqueue_queue::{
    Swept, millis,
    schedule::{MissReason, OccurrenceRecord, Outcome, SkipReason},
};

use crate::{base::times, consumer::runtime::NamedQueue, meters::OccurrenceMeters};

/// Counts the occurrences of a sweep, and logs them.
pub(super) fn report(queue: &NamedQueue, swept: &Swept) {
    for (schedule, record) in &swept.occurrences {
        count(&queue.meters.occurrences, record);
        log(&queue.name, schedule, record);
    }
    for schedule in &swept.unusable_schedules {
        tracing::warn!(
            event = "schedule_unusable",
            queue = %queue.name,
            schedule,
            "a schedule is due and cannot fire: this version cannot read it, or the queue cannot have its items"
        );
    }
}

fn count(meters: &OccurrenceMeters, record: &OccurrenceRecord) {
    let counter = match record.outcome {
        Outcome::Fired { .. } => &meters.fired,
        Outcome::Skipped(_) => &meters.skipped,
        Outcome::Missed(_) => &meters.missed,
        // No sweep makes these.
        Outcome::FiredByHand { .. } | Outcome::Unknown(_) => return,
    };
    counter.inc_by(record.count);
}

fn log(queue: &str, schedule: &str, record: &OccurrenceRecord) {
    let (from, to) = (time(record.from), time(record.to));
    match &record.outcome {
        Outcome::Fired { occurrence, .. } => {
            tracing::debug!(
                event = "schedule_fired",
                queue,
                schedule,
                time = from,
                occurrence,
                "a schedule has pushed an item"
            );
        }
        Outcome::Missed(reason) => {
            tracing::warn!(
                event = "schedule_missed",
                queue,
                schedule,
                from,
                to,
                count = record.count,
                at_least = !record.is_exact,
                reason = missed_because(*reason),
                "a schedule missed occurrences, which do not fire any more"
            );
        }
        Outcome::Skipped(reason) => {
            tracing::info!(
                event = "schedule_skipped",
                queue,
                schedule,
                from,
                to,
                count = record.count,
                reason = skipped_because(*reason),
                "a schedule skipped an occurrence"
            );
        }
        Outcome::FiredByHand { .. } | Outcome::Unknown(_) => {}
    }
}

fn time(at: SystemTime) -> String {
    times::timestamp(at).map_or_else(|| millis(at).to_string(), |time| time.to_string())
}

fn missed_because(reason: MissReason) -> &'static str {
    match reason {
        MissReason::Policy => "policy",
        MissReason::Window => "window",
        MissReason::Maximum => "maximum",
    }
}

fn skipped_because(reason: SkipReason) -> &'static str {
    match reason {
        SkipReason::Overlap => "overlap",
        SkipReason::Paused => "paused",
        SkipReason::Redefined => "redefined",
        SkipReason::Restarted => "restarted",
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use kvqueue_queue::from_millis;

    use super::*;

    #[test]
    fn occurrences_are_counted_by_their_outcomes() {
        let meters = OccurrenceMeters::default();
        let fired = Outcome::Fired { id: None, occurrence: 1 };
        let by_hand = Outcome::FiredByHand { id: None, occurrence: 2 };
        let skipped = Outcome::Skipped(SkipReason::Overlap);
        let missed = Outcome::Missed(MissReason::Window);
        for (outcome, counts) in [
            (fired, [1, 1]),
            (by_hand, [1, 0]),
            (skipped, [2, 0]),
            (missed, [60, 5]),
            (Outcome::Unknown(9), [3, 0]),
        ] {
            for count in counts {
                let record = OccurrenceRecord {
                    number: 0,
                    at: UNIX_EPOCH,
                    from: UNIX_EPOCH,
                    to: UNIX_EPOCH,
                    count,
                    is_exact: true,
                    outcome: outcome.clone(),
                };
                super::count(&meters, &record);
            }
        }
        let OccurrenceMeters { fired, skipped, missed } = meters;
        assert_eq!([fired, skipped, missed].map(|counter| counter.get()), [2, 2, 65]);
    }

    #[test]
    fn a_time_is_logged_as_rfc_3339() {
        assert_eq!(time(from_millis(1_774_738_800_000)), "2026-03-28T23:00:00Z");
        assert_eq!(time(from_millis(u64::MAX)), u64::MAX.to_string());
    }
}
