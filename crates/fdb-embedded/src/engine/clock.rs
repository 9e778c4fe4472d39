//! The clock of versions: about a million a second, ascending over commits, crashes and changes of
//! the system's time.
//!
//! Three rules keep optimistic transactions serializable. One lock around this value enforces them:
//! 1. A read version is never below an acknowledged commit.
//! 2. A commit version is above every read version that was handed out.
//! 3. While a batch is being written, read versions stay below its version.
//!
//! The *ceiling* is a durable upper bound of the versions handed out. A new process starts above
//! the ceiling and above its wall clock, so versions never go back. Each batch raises the ceiling
//! when that is due. On an idle database, reads past the ceiling request an empty batch that raises
//! it. Until that is durable, for a few milliseconds, only the wall clock ensures ascending
//! versions.
//!
//! A process that closes the directory lowers the ceiling to its last version, so that versions do
//! not run ahead of the wall clock with each opening. When no batch can become durable any more,
//! versions stand still.

use std::time::{Duration, Instant, SystemTime};

use crate::limits::VERSIONS_PER_SECOND;

/// The distance from the newest version to a new ceiling: 10 seconds.
const CEILING_LEAD: i64 = 10 * VERSIONS_PER_SECOND;

/// 2024-01-01 00:00 UTC. Versions count microseconds since then, unless the wall clock was set
/// back.
const EPOCH: Duration = Duration::from_secs(1_704_067_200);

/// The state of read and commit versions.
#[derive(Debug)]
pub struct Clock {
    started: Instant,
    start_version: i64,
    /// The newest version handed out.
    newest: i64,
    /// The newest version whose commits are durable and visible.
    published: i64,
    /// The version of the batch that is being written.
    in_flight: Option<i64>,
    ceiling: i64,
    is_stopped: bool,
    /// While a test holds versions still: the version.
    held_at: Option<i64>,
}
impl Clock {
    /// A clock that starts above `ceiling`, the highest version that earlier processes may have
    /// used.
    #[must_use]
    pub fn new(ceiling: i64, wall: SystemTime, now: Instant) -> Clock {
        let wall = wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().saturating_sub(EPOCH);
        let wall = i64::try_from(wall.as_micros()).unwrap_or(0);
        let start_version = wall.max(ceiling + 1).max(100 * VERSIONS_PER_SECOND);
        Clock {
            started: now,
            start_version,
            newest: start_version,
            published: start_version,
            in_flight: None,
            ceiling: start_version,
            is_stopped: false,
            held_at: None,
        }
    }

    /// The version for a moment.
    #[must_use]
    pub fn version_at(&self, now: Instant) -> i64 {
        if let Some(version) = self.held_at {
            return version;
        }
        let elapsed = now.saturating_duration_since(self.started).as_micros();
        self.start_version.saturating_add(i64::try_from(elapsed).unwrap_or(i64::MAX))
    }

    /// A new read version.
    pub fn read_version(&mut self, now: Instant) -> i64 {
        let version = match self.in_flight {
            Some(in_flight) => in_flight - 1,
            None if self.is_stopped => self.newest,
            None => self.version_at(now).max(self.newest),
        };
        self.newest = self.newest.max(version);
        version
    }

    /// True if the versions handed out have passed the ceiling, so that an empty batch should raise
    /// it.
    #[must_use]
    pub fn wants_ceiling(&self) -> bool {
        self.newest > self.ceiling && self.in_flight.is_none() && !self.is_stopped
    }

    /// The ceiling that has to be durable before versions may continue from `version`.
    #[must_use]
    pub fn ceiling_over(version: i64) -> i64 {
        version.saturating_add(CEILING_LEAD)
    }

    /// Starts a batch. Returns its version, and the new ceiling if it has to raise it.
    pub fn begin_batch(&mut self, now: Instant) -> (i64, Option<i64>) {
        debug_assert!(self.in_flight.is_none(), "one batch at a time");
        let version = self.version_at(now).max(self.newest + 1);
        self.in_flight = Some(version);
        self.newest = version;
        let is_near = version + CEILING_LEAD / 2 > self.ceiling;
        (version, is_near.then_some(version + CEILING_LEAD))
    }

    /// Ends a batch that is durable, and with it its ceiling.
    pub fn publish(&mut self, version: i64, ceiling: Option<i64>) {
        debug_assert_eq!(self.in_flight, Some(version));
        self.in_flight = None;
        self.published = version;
        self.ceiling = ceiling.unwrap_or(self.ceiling);
    }
    /// Stops versions from advancing with time, or lets them advance again.
    #[cfg(feature = "testing")]
    pub fn hold(&mut self, now: Instant, held: bool) {
        self.held_at = held.then(|| self.version_at(now));
    }

    /// True while versions do not advance with time.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.held_at.is_some()
    }

    /// Advances versions by `versions`.
    pub fn advance(&mut self, versions: i64) {
        for version in self.held_at.iter_mut().chain([&mut self.start_version]) {
            *version = version.saturating_add(versions);
        }
    }

    /// Advances versions to `version`, unless they are there already. The durable ceiling must be
    /// above it.
    pub fn advance_to(&mut self, version: i64, now: Instant) {
        self.advance(version.saturating_sub(self.version_at(now)).max(0));
    }

    /// Ends a batch without commits.
    pub fn abandon_batch(&mut self) {
        self.in_flight = None;
    }

    /// Hands out the last version, which is above all others, to be the ceiling for the next
    /// process.
    pub fn end(&mut self, now: Instant) -> i64 {
        let (version, _) = self.begin_batch(now);
        self.stop();
        version
    }

    /// Hands out no new versions from now on, because no ceiling can become durable any more.
    pub fn stop(&mut self) {
        self.is_stopped = true;
    }

    /// The newest version whose commits can be read.
    #[must_use]
    pub fn published(&self) -> i64 {
        self.published
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock() -> (Clock, Instant) {
        let now = baton::now();
        (Clock::new(0, baton::system_now(), now), now)
    }

    #[test]
    fn reads_stay_below_the_batch_in_flight_and_commits_above_reads() {
        let (mut clock, now) = clock();
        let first = clock.read_version(now);
        let (version, ceiling) = clock.begin_batch(now);
        assert!(version > first);
        assert!(clock.read_version(now + Duration::from_secs(1)) < version);
        clock.publish(version, ceiling);
        let later = clock.read_version(now + Duration::from_secs(1));
        assert!(later >= version);
        assert!(clock.begin_batch(now).0 > later, "even if the batch's time were earlier");
    }

    #[test]
    fn a_stopped_clock_gives_no_new_versions_and_needs_no_ceiling() {
        let (mut clock, now) = clock();
        let later = now + Duration::from_secs(3600);
        let last = clock.read_version(later);
        clock.stop();
        assert_eq!(clock.read_version(later + Duration::from_secs(60)), last);
        assert!(!clock.wants_ceiling(), "nobody could raise it");
    }

    #[test]
    fn versions_stop_at_the_highest_version() {
        let (mut clock, now) = clock();
        let read = clock.read_version(now + Duration::from_secs(1));
        let last = clock.end(now);
        assert!(last > read);
        assert!(clock.read_version(now + Duration::from_secs(60)) < last);
        let next = Clock::new(last, SystemTime::UNIX_EPOCH, now).read_version(now);
        assert_eq!(next, last + 1, "and the next process begins right above it");
    }

    #[test]
    fn a_held_clock_advances_only_by_commits_or_explicitly() {
        let (mut clock, now) = clock();
        let first = clock.read_version(now);
        clock.hold(now, true);
        let later = now + Duration::from_secs(1);
        assert_eq!(clock.read_version(later), first);
        let (version, ceiling) = clock.begin_batch(later);
        assert_eq!(version, first + 1);
        clock.publish(version, ceiling);
        clock.advance(7_000_000);
        assert_eq!(clock.read_version(later), first + 7_000_000);
        clock.hold(later, false);
        assert!(clock.read_version(later) >= first + 8_000_000);
    }

    #[test]
    fn a_new_process_starts_above_everything_handed_out() {
        let (mut clock, now) = clock();
        let later = now + Duration::from_secs(3600);
        let version = clock.read_version(later);
        assert!(clock.wants_ceiling());
        let (commit, ceiling) = clock.begin_batch(later);
        clock.publish(commit, ceiling);
        assert!(!clock.wants_ceiling());
        let ceiling = ceiling.expect("an hour is more than the lead");
        let restarted = Clock::new(ceiling, SystemTime::UNIX_EPOCH, now).read_version(now);
        assert!(restarted > version.max(commit), "although the wall clock went back to 1970");
    }
}
