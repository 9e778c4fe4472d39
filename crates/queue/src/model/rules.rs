//! When a failed item is tried again, and when no more.

use std::time::Duration;

/// How often an item is tried, and how long it waits between two attempts: twice as long after each, up to a bound.
///
/// Pure: what is random comes in as a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryRules {
    /// The most attempts; 0 counts as 1. An item whose last one fails is a dead letter.
    pub max_attempts: u32,
    /// The wait after the first attempt.
    pub base: Duration,
    /// The longest wait.
    pub max: Duration,
    /// Whether a wait is cut at random, evenly between all of it and its half, so that items that failed together do not come
    /// back together.
    pub jitter: bool,
}

/// What becomes of an item that expires.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnExpiry {
    /// It leaves the queue.
    #[default]
    Drop,
    /// It becomes a dead letter.
    Dead,
}

/// As often, any wait can be doubled before it is the longest possible.
const MAX_DOUBLINGS: u32 = 96;

impl Default for RetryRules {
    fn default() -> RetryRules {
        RetryRules {
            max_attempts: 20,
            base: Duration::from_secs(1),
            max: Duration::from_secs(60 * 60),
            jitter: true,
        }
    }
}

impl RetryRules {
    /// How long to wait after attempt number `attempt`, from 1, has failed; `None` if it was the last. `random` is any number.
    ///
    /// ```
    /// use std::time::Duration;
    /// use kvqueue_queue::RetryRules;
    ///
    /// let rules = RetryRules { max_attempts: 4, max: Duration::from_secs(3), jitter: false, ..RetryRules::default() };
    /// let waits: Vec<_> = (1..=4).map(|attempt| rules.delay(attempt, 0).map(|wait| wait.as_secs())).collect();
    /// assert_eq!(waits, [Some(1), Some(2), Some(3), None]);
    /// ```
    pub fn delay(&self, attempt: u32, random: u64) -> Option<Duration> {
        if attempt >= self.max_attempts {
            return None;
        }
        let doublings = attempt.saturating_sub(1).min(MAX_DOUBLINGS);
        let whole = (0..doublings).fold(self.base, |wait, _| wait.saturating_mul(2)).min(self.max);
        Some(if self.jitter { jittered(whole, random) } else { whole })
    }
}

/// Between the half of a time and all of it, as `random` says.
fn jittered(whole: Duration, random: u64) -> Duration {
    let half = whole / 2;
    // A product of 64 and at most 94 bits is too long, so the share has 32 bits.
    let share = (half.as_nanos() * u128::from(random >> 32)) >> 32;
    half + Duration::from_nanos_u128(share)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    prop_compose! {
        fn any_rules()(
            max_attempts: u32,
            base in prop_oneof![0..10_u64, 0..100_000_000_u64],
            max in 0..10_000_000_000_u64,
            jitter: bool,
        ) -> RetryRules {
            RetryRules { max_attempts, base: Duration::from_micros(base), max: Duration::from_micros(max), jitter }
        }
    }

    proptest! {
        #[test]
        fn retries_end_after_the_configured_attempts(rules in any_rules(), attempt in 1..=u32::MAX, random: u64) {
            prop_assert_eq!(rules.delay(attempt, random).is_some(), attempt < rules.max_attempts);
        }

        #[test]
        fn backoff_doubles_up_to_the_bound(rules in any_rules(), attempt in 1..40_u32) {
            let rules = RetryRules { max_attempts: 41, jitter: false, ..rules };
            let wait = |attempt| rules.delay(attempt, 0).expect("there are attempts left");
            prop_assert_eq!(wait(1), rules.base.min(rules.max));
            prop_assert_eq!(wait(attempt + 1), wait(attempt).saturating_mul(2).min(rules.max));
        }

        #[test]
        fn jitter_shortens_backoff_by_at_most_half(rules in any_rules(), attempt in 1..40_u32, random: u64) {
            let rules = RetryRules { max_attempts: 41, jitter: true, ..rules };
            let whole = RetryRules { jitter: false, ..rules }.delay(attempt, 0).unwrap();
            let cut = rules.delay(attempt, random).unwrap();
            prop_assert!(whole / 2 <= cut && cut <= whole);
        }

        #[test]
        fn backoff_never_panics_or_exceeds_the_bound(max_attempts: u32, base: (u64, u32), max: (u64, u32), attempt: u32, random: u64) {
            let of = |(secs, nanos): (u64, u32)| Duration::new(secs, nanos % 1_000_000_000);
            let rules = RetryRules { max_attempts, base: of(base), max: of(max), jitter: true };
            prop_assert!(rules.delay(attempt, random).is_none_or(|wait| wait <= rules.max));
        }
    }

    #[test]
    fn jitter_covers_its_whole_range() {
        let rules = RetryRules::default();
        let of = |random| rules.delay(1, random).unwrap();
        assert_eq!(of(0), Duration::from_millis(500));
        assert_eq!(of(1 << 63), Duration::from_millis(750));
        assert!(of(u64::MAX) > Duration::from_micros(999_999));
    }
}
