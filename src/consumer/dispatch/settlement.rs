//! What becomes of an item, from what its handler said. Pure.

use std::time::Duration;

use kvqueue_queue::{Failure, ItemOutcome as Settlement, Millis, RetryRules, from_millis};

use crate::handlers::Outcome;

/// The settlement of attempt number `attempt` that ended with `outcome` at the time `now`. `random` is any number.
pub(super) fn of(outcome: Outcome, attempt: u32, rules: &RetryRules, now: Millis, random: u64) -> Settlement {
    // Whole, for the log; what is stored of it is cut.
    let failure = |reason| Failure { at: now, attempt, reason };
    let (pause, reason) = match outcome {
        Outcome::Done => return Settlement::Done,
        Outcome::Release | Outcome::Unavailable(_) => return Settlement::Release,
        Outcome::Dead(reason) => return Settlement::Dead(failure(reason)),
        Outcome::Retry(reason) => (None, reason),
        Outcome::RetryAfter(pause, reason) => (Some(pause), reason),
    };
    match rules.delay(attempt, random) {
        Some(delay) => Settlement::Retry {
            due: due(now, pause.unwrap_or(delay)).map(from_millis),
            failure: failure(reason),
        },
        None => Settlement::Dead(failure(reason)),
    }
}

/// As the metrics and the item's span have it.
pub(super) fn name(settlement: &Settlement) -> &'static str {
    match settlement {
        Settlement::Done => "done",
        Settlement::Retry { .. } => "retry",
        Settlement::Release => "released",
        Settlement::Dead(_) => "dead",
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

    fn settled(outcome: Outcome, attempt: u32) -> Settlement {
        of(outcome, attempt, &RULES, NOW, 0)
    }

    fn again(due: Option<Millis>, attempt: u32) -> Settlement {
        Settlement::Retry { due: due.map(from_millis), failure: Failure::new(NOW, attempt, "no") }
    }

    #[test]
    fn a_failure_is_retried_after_a_pause_that_grows() {
        assert_eq!(settled(Outcome::retry("no"), 1), again(Some(NOW + 2_000), 1));
        assert_eq!(settled(Outcome::retry("no"), 2), again(Some(NOW + 3_000), 2));
    }

    #[test]
    fn after_the_last_attempt_it_is_dead() {
        let dead = Settlement::Dead(Failure::new(NOW, 3, "no"));
        assert_eq!(settled(Outcome::retry("no"), 3), dead);
        assert_eq!(settled(Outcome::RetryAfter(Duration::from_secs(9), "no".to_owned()), 3), dead);
    }

    #[test]
    fn a_handler_may_name_the_pause() {
        let after = |pause| settled(Outcome::RetryAfter(pause, "no".to_owned()), 1);
        assert_eq!(after(Duration::from_secs(9)), again(Some(NOW + 9_000), 1));
        assert_eq!(after(Duration::from_micros(1)), again(Some(NOW + 1), 1));
        assert_eq!(after(Duration::ZERO), again(None, 1));
        assert_eq!(after(Duration::MAX), again(Some(Millis::MAX), 1));
    }

    #[test]
    fn the_rest_is_as_the_handler_says() {
        assert_eq!(settled(Outcome::Done, 3), Settlement::Done);
        assert_eq!(settled(Outcome::Release, 3), Settlement::Release);
        assert_eq!(settled(Outcome::unavailable("no"), 3), Settlement::Release);
        assert_eq!(settled(Outcome::dead("no"), 1), Settlement::Dead(Failure::new(NOW, 1, "no")));
    }
}
