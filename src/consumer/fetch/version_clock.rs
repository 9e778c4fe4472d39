//! The time at the database, as fetches have learned it. Stamps are versions, so it tells how long ago an item was pushed, whatever
//! the clocks on walls say.

use std::{
    sync::{
        LazyLock,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// The origin of instants.
static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Not learned yet.
const UNKNOWN: i64 = i64::MIN;

/// Database versions, of which there are about 10^6 a second, by this process's monotonic clock. It is read for every item, so it shares no line of
/// a cache with what takes change.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct VersionClock {
    /// By how much the version is ahead of the microseconds since the origin.
    ahead: AtomicI64,
}

impl VersionClock {
    /// It is this version now.
    pub(crate) fn learn(&self, version: Option<u64>) {
        let Some(version) = version.and_then(|version| i64::try_from(version).ok()) else { return };
        self.ahead.store(version - micros(Instant::now()), Relaxed);
    }

    /// How long ago it was that version; `None` before anything was learned.
    pub(crate) fn since(&self, version: u64, now: Instant) -> Option<Duration> {
        let ahead = self.ahead.load(Relaxed);
        if ahead == UNKNOWN {
            return None;
        }
        let now = u64::try_from(ahead.saturating_add(micros(now))).unwrap_or(0);
        Some(Duration::from_micros(now.saturating_sub(version)))
    }
}

impl Default for VersionClock {
    fn default() -> Self {
        Self { ahead: AtomicI64::new(UNKNOWN) }
    }
}

fn micros(at: Instant) -> i64 {
    let since = at.saturating_duration_since(*ORIGIN);
    let micros = since.as_secs().saturating_mul(1_000_000).saturating_add(since.subsec_micros().into());
    i64::try_from(micros).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_clock_extrapolates_from_the_last_known_version() {
        let clock = VersionClock::default();
        assert_eq!(clock.since(5, Instant::now()), None);
        clock.learn(Some(90_000_000));
        // A fresh database counts from 0: versions are behind the clock then.
        clock.learn(Some(1_000_000));
        clock.learn(None);
        let later = Instant::now() + Duration::from_secs(2);
        let since = clock.since(500_000, later).unwrap();
        assert!((2_500..2_600).contains(&since.as_millis()), "{since:?}");
        assert_eq!(clock.since(u64::MAX, later), Some(Duration::ZERO));
    }
}
