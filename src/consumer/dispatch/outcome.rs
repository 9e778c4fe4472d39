//! The outcome of an item in the queue, from the outcome that its handler returned. Pure.

use std::time::{Duration, SystemTime};

use kvqueue_queue::{Failure, Item, ItemId, ItemOutcome, MAX_RESULT, RetryRules, Scope};

use crate::{
    base::times::after,
    handlers::{LONGEST_THROTTLE, Outcome},
};

/// For an attempt at `item`, which ended with `outcome` at `now`. `random` makes the number for the
/// backoff's jitter, if there is a backoff.
pub(crate) fn of(
    outcome: Outcome,
    item: &Item,
    rules: &RetryRules,
    now: SystemTime,
    random: impl FnOnce() -> u64,
) -> ItemOutcome {
    // The whole reason, for the log. The queue stores the beginning of it.
    let attempt = item.attempt;
    let failure = |reason| Failure { at: now, attempt, reason };
    let (pause, reason) = match outcome {
        Outcome::Done => return ItemOutcome::Done,
        // Of one that is too long the queue keeps nothing but that.
        Outcome::DoneWith(mut result) => {
            result.truncate(MAX_RESULT + 1);
            return ItemOutcome::DoneWith(result);
        }
        Outcome::Release | Outcome::Unavailable(_) => return ItemOutcome::Release,
        Outcome::UnavailableAfter(pause, _) => return postpone(now, pause),
        Outcome::Throttle { scope, wait, .. } => return throttle(&item.id, scope, wait, now),
        Outcome::Dead(reason) => return ItemOutcome::Dead(failure(reason)),
        Outcome::Retry(reason) => (None, reason),
        Outcome::RetryAfter(pause, reason) => (Some(pause), reason),
    };
    match rules.delay(attempt, random()) {
        Some(delay) => ItemOutcome::Retry { due: due(now, pause.unwrap_or(delay)), failure: failure(reason) },
        None => ItemOutcome::Dead(failure(reason)),
    }
}

fn postpone(now: SystemTime, pause: Duration) -> ItemOutcome {
    due(now, pause).map_or(ItemOutcome::Release, |due| ItemOutcome::Postpone { due })
}

/// An item that does not have the scope waits alone.
fn throttle(id: &ItemId, scope: Scope, wait: Duration, now: SystemTime) -> ItemOutcome {
    let wait = wait.min(LONGEST_THROTTLE);
    let has_scope = id.key().is_some_and(|key| match scope {
        Scope::Queue => true,
        Scope::Tenant => !key.is_empty() && !key.starts_with(b"/"),
        Scope::Key => !key.is_empty(),
    });
    if has_scope && !wait.is_zero() { ItemOutcome::Throttle { scope, wait } } else { postpone(now, wait) }
}

/// The word for it in metrics and spans.
pub(super) fn name(outcome: &ItemOutcome) -> &'static str {
    match outcome {
        ItemOutcome::Done | ItemOutcome::DoneWith(_) => "done",
        ItemOutcome::Retry { .. } => "retry",
        ItemOutcome::Release | ItemOutcome::Postpone { .. } => "released",
        ItemOutcome::Throttle { .. } => "throttled",
        ItemOutcome::Dead(_) => "dead",
        ItemOutcome::Expired { .. } => "expired",
    }
}

/// The time after a pause; `None` if it is now.
fn due(now: SystemTime, pause: Duration) -> Option<SystemTime> {
    if pause.is_zero() {
        return None;
    }
    // Rounded up: a pause of less than a millisecond is one.
    Some(after(now, pause.saturating_add(Duration::from_nanos(999_999))))
}

#[cfg(test)]
mod tests {
    use kvqueue_queue::from_millis;

    use super::*;
    use crate::testing::Sample;

    const NOW: u64 = 1_000_000;

    const RULES: RetryRules = RetryRules {
        max_attempts: 3,
        base: Duration::from_secs(2),
        max: Duration::from_secs(3),
        jitter: false,
    };

    fn outcome_of(outcome: Outcome, attempt: u32) -> ItemOutcome {
        of(outcome, &Sample::new("").attempt(attempt).build(), &RULES, from_millis(NOW), || 0)
    }

    fn throttled(scope: Scope, wait: Duration, key: &str) -> ItemOutcome {
        let item = Sample::new("").key(key).build();
        of(Outcome::throttle(scope, wait, "no"), &item, &RULES, from_millis(NOW), || 0)
    }

    fn again(due: Option<u64>, attempt: u32) -> ItemOutcome {
        ItemOutcome::Retry {
            due: due.map(from_millis),
            failure: Failure::new(from_millis(NOW), attempt, "no"),
        }
    }

    #[test]
    fn a_failure_is_retried_after_a_pause_that_grows() {
        assert_eq!(outcome_of(Outcome::retry("no"), 1), again(Some(NOW + 2_000), 1));
        assert_eq!(outcome_of(Outcome::retry("no"), 2), again(Some(NOW + 3_000), 2));
    }

    #[test]
    fn a_failure_of_the_last_attempt_is_a_dead_letter() {
        let dead = ItemOutcome::Dead(Failure::new(from_millis(NOW), 3, "no"));
        assert_eq!(outcome_of(Outcome::retry("no"), 3), dead);
        assert_eq!(outcome_of(Outcome::RetryAfter(Duration::from_secs(9), "no".to_owned()), 3), dead);
    }

    #[test]
    fn a_handler_may_set_the_backoff() {
        let after = |pause| outcome_of(Outcome::RetryAfter(pause, "no".to_owned()), 1);
        assert_eq!(after(Duration::from_secs(9)), again(Some(NOW + 9_000), 1));
        assert_eq!(after(Duration::from_micros(1)), again(Some(NOW + 1), 1));
        assert_eq!(after(Duration::ZERO), again(None, 1));
        assert_eq!(after(Duration::MAX), again(Some(u64::MAX), 1));
    }

    #[test]
    fn a_throttle_holds_the_scopes_that_the_item_has() {
        let wait = Duration::from_secs(9);
        for (scope, key) in
            [(Scope::Key, "a"), (Scope::Key, "/b"), (Scope::Tenant, "a/b"), (Scope::Queue, "")]
        {
            assert_eq!(throttled(scope, wait, key), ItemOutcome::Throttle { scope, wait }, "{key}");
        }
        let day = ItemOutcome::Throttle { scope: Scope::Key, wait: LONGEST_THROTTLE };
        assert_eq!(throttled(Scope::Key, Duration::MAX, "a"), day);
    }

    #[test]
    fn an_item_without_the_scope_of_a_throttle_waits_alone() {
        let wait = Duration::from_secs(9);
        let alone = ItemOutcome::Postpone { due: from_millis(NOW + 9_000) };
        for (scope, key) in [(Scope::Key, ""), (Scope::Tenant, ""), (Scope::Tenant, "/b")] {
            assert_eq!(throttled(scope, wait, key), alone, "{key}");
        }
        for scope in [Scope::Key, Scope::Tenant, Scope::Queue] {
            assert_eq!(outcome_of(Outcome::throttle(scope, wait, "no"), 3), alone);
        }
        assert_eq!(throttled(Scope::Key, Duration::ZERO, "a"), ItemOutcome::Release);
    }

    #[test]
    fn other_outcomes_are_taken_from_the_handler_unchanged() {
        assert_eq!(outcome_of(Outcome::Done, 3), ItemOutcome::Done);
        assert_eq!(outcome_of(Outcome::done_with("r"), 3), ItemOutcome::DoneWith("r".into()));
        let long = outcome_of(Outcome::done_with(vec![b'r'; MAX_RESULT + 2]), 3);
        assert_eq!(long, ItemOutcome::DoneWith(vec![b'r'; MAX_RESULT + 1].into()));
        assert_eq!(outcome_of(Outcome::Release, 3), ItemOutcome::Release);
        assert_eq!(outcome_of(Outcome::unavailable("no"), 3), ItemOutcome::Release);
        let postponed = outcome_of(Outcome::UnavailableAfter(Duration::from_secs(9), "no".to_owned()), 3);
        assert_eq!(postponed, ItemOutcome::Postpone { due: from_millis(NOW + 9_000) });
        assert_eq!(
            outcome_of(Outcome::dead("no"), 1),
            ItemOutcome::Dead(Failure::new(from_millis(NOW), 1, "no"))
        );
    }
}
