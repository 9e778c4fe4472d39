//! Failures of the storage, counted: how long to wait before the directory is opened again.

use std::time::{Duration, Instant};

/// The delay before the directory is opened again after a storage failure. Doubled with each
/// further one.
const FIRST_BACKOFF: Duration = Duration::from_millis(20);

/// The longest such delay.
const MAX_BACKOFF: Duration = Duration::from_secs(5);

/// After this many storage failures in a row, about five seconds, waiting transactions fail. The
/// process keeps trying.
pub(super) const MAX_FAILURES: u32 = 8;

/// A storage that has worked for so long has recovered.
const RECOVERED_AFTER: Duration = Duration::from_secs(60);

/// Counts storage failures in a row.
#[derive(Debug, Default)]
pub(super) struct StorageFailures {
    pub(super) count: u32,
    last: Option<Instant>,
}

impl StorageFailures {
    /// Counts a failure, and returns the delay before the next opening.
    pub(super) fn add(&mut self, now: Instant) -> Duration {
        let is_recovered =
            self.last.is_none_or(|last| now.duration_since(last) > MAX_BACKOFF + RECOVERED_AFTER);
        self.count = if is_recovered { 1 } else { self.count.saturating_add(1) };
        self.last = Some(now);
        MAX_BACKOFF.min(FIRST_BACKOFF * 2u32.saturating_pow(self.count.min(16) - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_backoff_is_bounded_and_resets_after_recovery() {
        let (mut storage_failures, mut now) = (StorageFailures::default(), baton::now());
        let mut pauses = Vec::new();
        for _ in 0..40 {
            pauses.push(storage_failures.add(now));
            now += MAX_BACKOFF;
        }
        assert_eq!(pauses[..4], [20, 40, 80, 160].map(Duration::from_millis));
        assert_eq!(pauses[10..], [MAX_BACKOFF; 30]);
        let told_after: Duration = pauses[..MAX_FAILURES as usize].iter().sum();
        assert!((4..7).contains(&told_after.as_secs()), "{told_after:?}");
        now += RECOVERED_AFTER + MAX_BACKOFF;
        assert_eq!(storage_failures.add(now), FIRST_BACKOFF);
    }
}
