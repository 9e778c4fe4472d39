//! The database's versions that this process has seen, with the time of its own clock. They tell how long a lease was unchanged.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use foundationdb::Database;

use crate::keys::leases::Header;
use crate::model::error::QueueError;
use crate::model::sightings::Sightings;
use crate::run::version::now;

/// The most sightings that are kept.
const MOST: usize = 512;

/// Monotonic clocks of two machines differ by less than one part in this many.
const DRIFT: u64 = 1_000;

/// The versions that a process has read from a database, each with the time of its monotonic clock.
///
/// A sweeper takes a lease away only if this history proves that the lease was not changed for its whole length, by the clock of the
/// sweeper's process. So neither a jump of the versions nor a version that is old or fast ends a lease before its holder's own clock
/// does. What was written before the history begins is as old as the history, at least.
///
/// Clones share one history. Let all sweepers of a database in a process have the same one: each sighting of one serves the others.
#[derive(Clone)]
pub struct VersionHistory {
    clock: Arc<dyn Fn() -> Duration + Send + Sync>,
    seen: Arc<Mutex<Sightings>>,
}

/// The remaining time of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Left {
    /// Microseconds, or versions: whichever is more.
    pub(crate) time: u64,
    /// Whether its deadline is past. The holder may be alive all the same.
    pub(crate) is_past: bool,
}

impl VersionHistory {
    /// An empty history. `clock` says how much time has passed since some moment, which is always the same; it is never set.
    pub fn new(clock: impl Fn() -> Duration + Send + Sync + 'static) -> VersionHistory {
        VersionHistory { clock: Arc::new(clock), seen: Arc::default() }
    }

    /// Reads the database's version, unless one was read within this time. The more often, the sooner leases of the dead end: a lease
    /// ends later than its length by up to the time between two sightings.
    ///
    /// # Errors
    /// If the database refused.
    pub async fn observe(&self, db: &Database, within: Duration) -> Result<(), QueueError> {
        let now_at = self.now();
        let last = self.seen.lock().unwrap_or_else(PoisonError::into_inner).last();
        let is_fresh = |at: u64| now_at.saturating_sub(at) < micros(within);
        if last.is_some_and(|last| is_fresh(last.at)) {
            return Ok(());
        }
        let tr = db.create_trx()?;
        self.note(now(&tr).await?);
        Ok(())
    }

    /// The version that was read last, if one was.
    pub(crate) fn last_version(&self) -> Option<u64> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).last().map(|last| last.version)
    }

    /// A transaction has read this version.
    pub(crate) fn note(&self, version: u64) {
        // Under the lock, so that times are in the order of the notes.
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let at = self.now();
        seen.note(version, at, MOST);
    }

    /// The remaining time of a lease at this version; `None` if it may be taken away.
    ///
    /// The holder counts its length from before the last change, and that change has read the version from which the deadline is
    /// reckoned. Once a higher version was read, that was over.
    pub(crate) fn left(&self, header: &Header, version: u64) -> Option<Left> {
        let set_at = header.set_at();
        if set_at > version {
            // It is from another life of the database, before versions went back: nobody holds it in this one.
            return None;
        }
        let by_version = header.deadline.saturating_add(1).saturating_sub(version);
        let length = header.ahead();
        let needed = length.saturating_add(length / DRIFT);
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let by_clock = needed.saturating_sub(seen.age(set_at, self.now()).unwrap_or(0));
        let time = by_version.max(by_clock);
        (time > 0).then_some(Left { time, is_past: by_version == 0 })
    }

    /// Microseconds by the process's monotonic clock.
    pub(crate) fn now(&self) -> u64 {
        micros((self.clock)())
    }
}

impl fmt::Debug for VersionHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VersionHistory").field("seen", &self.seen).finish_non_exhaustive()
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    const LENGTH: u64 = 30_000_000;

    /// A history, and its clock in microseconds.
    fn history() -> (VersionHistory, Arc<AtomicU64>) {
        let clock = Arc::new(AtomicU64::new(0));
        let its = Arc::clone(&clock);
        (VersionHistory::new(move || Duration::from_micros(its.load(Ordering::Relaxed))), clock)
    }

    fn lease(set_at: u64) -> Header {
        Header::new(set_at + LENGTH, LENGTH, &[]).0
    }

    /// With what clocks may differ by.
    const NEEDED: u64 = LENGTH + LENGTH / DRIFT;

    #[test]
    fn a_lease_expires_by_both_version_and_own_clock() {
        let (history, clock) = history();
        history.note(1_000);
        clock.store(5, Ordering::Relaxed);
        history.note(1_005);
        let left = |version| history.left(&lease(1_000), version).map(|left| (left.time, left.is_past));
        assert_eq!(left(1_005), Some((NEEDED, false)));
        // Versions have jumped.
        assert_eq!(left(500_000_000), Some((NEEDED, true)));
        clock.store(5 + NEEDED - 1, Ordering::Relaxed);
        assert_eq!(left(500_000_000), Some((1, true)));
        clock.store(5 + NEEDED, Ordering::Relaxed);
        assert_eq!(left(500_000_000), None);
        // Versions are slow.
        assert_eq!(left(LENGTH + 990), Some((11, false)));
    }

    #[test]
    fn a_sweeper_that_has_just_begun_watches_a_lease_for_its_own_length() {
        let (history, clock) = history();
        clock.store(77, Ordering::Relaxed);
        history.note(900_000_000);
        assert_eq!(history.left(&lease(1_000), 900_000_000).map(|left| left.time), Some(NEEDED));
        let longer = Header::new(1_000 + 10 * LENGTH, 10 * LENGTH, &[]).0;
        clock.store(77 + NEEDED, Ordering::Relaxed);
        assert_eq!(history.left(&lease(1_000), 900_000_000), None);
        assert_eq!(history.left(&longer, 900_000_000).map(|left| left.time), Some(9 * NEEDED));
    }

    #[test]
    fn an_unmoved_version_does_not_prove_a_leases_age() {
        let (history, clock) = history();
        history.note(1_000);
        // Set two seconds later, at the same version.
        clock.store(2_000_000 + NEEDED - 1, Ordering::Relaxed);
        assert!(history.left(&lease(1_000), 1_000 + LENGTH + 1).is_some());
        history.note(1_000 + LENGTH);
        clock.fetch_add(NEEDED - 1, Ordering::Relaxed);
        assert!(history.left(&lease(1_000), 1_000 + 2 * LENGTH).is_some());
        clock.fetch_add(1, Ordering::Relaxed);
        assert_eq!(history.left(&lease(1_000), 1_000 + 2 * LENGTH), None);
    }

    #[test]
    fn leases_without_deadline_or_from_later_versions_expire_at_once() {
        let (history, _) = history();
        history.note(500);
        assert_eq!(history.left(&Header::new(0, 0, &[]).0, 500), None);
        assert_eq!(history.left(&lease(501), 500), None);
        assert!(history.left(&lease(500), 500).is_some());
    }
}
