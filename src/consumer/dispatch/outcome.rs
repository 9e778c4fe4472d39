//! The outcome of an item in the queue, from the outcome that its handler returned. Pure.

use std::time::Duration;

use kvqueue_queue::{Failure, ItemOutcome, Millis, RetryRules, from_millis};

use crate::handlers::Outcome;

/// For attempt number `attempt`, which ended with `outcome` at `now`. `random` makes the number for the
/// backoff's jitter, if there is a backoff.
pub(crate) fn of(
    outcome: Outcome,
    attempt: u32,
    rules: &RetryRules,
    now: Millis,
    random: impl FnOnce() -> u64,
) -> ItemOutcome {
    // The whole reason, for the log. The queue stores the beginning of it.
    let failure = |reason| Failure { at: now, attempt, reason };
    let (pause, reason) = match outcome {
        Outcome::Done => return ItemOutcome::Done,
        Outcome::Release | Outcome::Unavailable(_) => return ItemOutcome::Release,
        Outcome::UnavailableAfter(pause, _) => {
            return due(now, pause)
                .map_or(ItemOutcome::Release, |due| ItemOutcome::Postpone { due: from_millis(due) });
        }
        Outcome::Dead(reason) => return ItemOutcome::Dead(failure(reason)),
        Outcome::Retry(reason) => (None, reason),
        Outcome::RetryAfter(pause, reason) => (Some(pause), reason),
    };
    match rules.delay(attempt, random()) {
        Some(delay) => ItemOutcome::Retry {
            due: due(now, pause.unwrap_or(delay)).map(from_millis),
            failure: failure(reason),
        },
        None => ItemOutcome::Dead(failure(reason)),
    }
}

/// The word for it in metrics and spans.
pub(super) fn name(outcome: &ItemOutcome) -> &'static str {
    match outcome {
        ItemOutcome::Done => "done",
        ItemOutcome::Retry { .. } => "retry",
        ItemOutcome::Release | ItemOutcome::Postpone { .. } | ItemOutcome::Throttle { .. } => "released",
        ItemOutcome::Dead(_) => "dead",
    }
}

/// The time after a pause; `None` if it is now.
fn due(now: Millis, pause: Duration) -> Option<Millis> {
    if pause.is_zero() {
        return None;
    }
    // A pause of less than a millisecond is one.
    let pause = Millis::try_from(pause.as_nanos().div_ceil(1_000_000)).unwrap_or(Millis::MAX);
    Some(now.saturating_add(pause))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Millis = 1_000_000;

    const RULES: RetryRules = RetryRules {
        max_attempts: 3,
        base: Duration::from_secs(2),
        max: Duration::from_secs(3),
        jitter: false,
    };

    fn outcome_of(outcome: Outcome, attempt: u32) -> ItemOutcome {
        of(outcome, attempt, &RULES, NOW, || 0)
    }

    fn again(due: Option<Millis>, attempt: u32) -> ItemOutcome {
        ItemOutcome::Retry { due: due.map(from_millis), failure: Failure::new(NOW, attempt, "no") }
    }

    #[test]
    fn a_failure_is_retried_after_a_pause_that_grows() {
        assert_eq!(outcome_of(Outcome::retry("no"), 1), again(Some(NOW + 2_000), 1));
        assert_eq!(outcome_of(Outcome::retry("no"), 2), again(Some(NOW + 3_000), 2));
    }

    #[test]
    fn a_failure_of_the_last_attempt_is_a_dead_letter() {
        let dead = ItemOutcome::Dead(Failure::new(NOW, 3, "no"));
        assert_eq!(outcome_of(Outcome::retry("no"), 3), dead);
        assert_eq!(outcome_of(Outcome::RetryAfter(Duration::from_secs(9), "no".to_owned()), 3), dead);
    }

    #[test]
    fn a_handler_may_set_the_backoff() {
        let after = |pause| outcome_of(Outcome::RetryAfter(pause, "no".to_owned()), 1);
        assert_eq!(after(Duration::from_secs(9)), again(Some(NOW + 9_000), 1));
        assert_eq!(after(Duration::from_micros(1)), again(Some(NOW + 1), 1));
        assert_eq!(after(Duration::ZERO), again(None, 1));
        assert_eq!(after(Duration::MAX), again(Some(Millis::MAX), 1));
    }

    #[test]
    fn other_outcomes_are_taken_from_the_handler_unchanged() {
        assert_eq!(outcome_of(Outcome::Done, 3), ItemOutcome::Done);
        assert_eq!(outcome_of(Outcome::Release, 3), ItemOutcome::Release);
        assert_eq!(outcome_of(Outcome::unavailable("no"), 3), ItemOutcome::Release);
        let postponed = outcome_of(Outcome::UnavailableAfter(Duration::from_secs(9), "no".to_owned()), 3);
        assert_eq!(postponed, ItemOutcome::Postpone { due: from_millis(NOW + 9_000) });
        assert_eq!(outcome_of(Outcome::dead("no"), 1), ItemOutcome::Dead(Failure::new(NOW, 1, "no")));
    }
}
