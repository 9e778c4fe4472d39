//! Synthetic system keys: keys that a cluster writes by itself. Here they are computed when they
//! are read, so that an idle database costs nothing.
//!
//! | key | value | read by |
//! |---|---|---|
//! | `\xff\x02/timeKeeper/map/` (seconds) | (version) | programs that convert versions to times |
//! | `\xff/coordinators` | the connection string | tools |
//! | `\xff/keyServers/` | empty | bindings that ask for shard boundaries: there is one shard |
//!
//! The time keeper has a row for every ten seconds of the last day up to the read version. Versions
//! count microseconds, so a row follows from its time and the difference between versions and the
//! wall clock, which the client measures when it reads. That difference grows by up to ten seconds
//! with each quick restart, so rows from before a restart are off by that much.

use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::SystemTime;

use bytes::Bytes;

use super::address::CONNECTION_STRING;
use super::tuple;
use crate::limits::VERSIONS_PER_SECOND;
use crate::range_set::KeyRange;
use crate::rows::{Direction, RowVisitor};

const TIME_KEEPER: &[u8] = b"\xff\x02/timeKeeper/map/";
const TIME_KEEPER_END: &[u8] = b"\xff\x02/timeKeeper/map0";
const COORDINATORS: &[u8] = b"\xff/coordinators";
const COORDINATORS_END: &[u8] = b"\xff/coordinators\0";
const KEY_SERVERS: &[u8] = b"\xff/keyServers/";
const KEY_SERVERS_END: &[u8] = b"\xff/keyServers/\0";

/// Seconds between two rows of the time keeper.
const TICK: i64 = 10;
/// Rows of the time keeper: one day.
const TICKS: i64 = 24 * 3600 / TICK;

/// The time of version 0: the least difference seen between the wall clock and a version that was
/// just handed out.
#[derive(Debug)]
pub struct Epoch(AtomicI64);

impl Default for Epoch {
    fn default() -> Epoch {
        Epoch(AtomicI64::new(i64::MAX))
    }
}

impl Epoch {
    /// The times of versions up to `version`, which was handed out some time before `now`.
    pub fn times(&self, version: i64, now: SystemTime) -> Times {
        let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let difference = i64::try_from(now.as_micros()).unwrap_or(i64::MAX) - version;
        let least = self.0.fetch_min(difference, Ordering::Relaxed).min(difference);
        Times { version, epoch: least.div_euclid(VERSIONS_PER_SECOND) }
    }
}

/// The newest version with a known time, and the Unix time of version 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    version: i64,
    epoch: i64,
}

/// A range of synthetic keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyntheticRange {
    /// Times and versions.
    TimeKeeper,
    /// The connection string.
    Coordinators,
    /// The shard boundaries.
    KeyServers,
}

/// All synthetic ranges, in key order.
const SYNTHETIC_RANGES: [(SyntheticRange, &[u8], &[u8]); 3] = [
    (SyntheticRange::TimeKeeper, TIME_KEEPER, TIME_KEEPER_END),
    (SyntheticRange::Coordinators, COORDINATORS, COORDINATORS_END),
    (SyntheticRange::KeyServers, KEY_SERVERS, KEY_SERVERS_END),
];

/// The synthetic range that contains `key`.
pub fn synthetic_range(key: &[u8]) -> Option<SyntheticRange> {
    let found = SYNTHETIC_RANGES.into_iter().find(|(_, begin, end)| *begin <= key && key < *end);
    found.map(|(place, ..)| place)
}

/// True if `[begin, end)` contains synthetic keys.
pub fn has_synthetic_keys(begin: &[u8], end: &[u8]) -> bool {
    SYNTHETIC_RANGES.iter().any(|(_, from, to)| begin < *to && *from < end)
}

/// Splits `[begin, end)` into stored and synthetic parts, in key order.
pub fn pieces(begin: &[u8], end: &[u8]) -> Vec<(KeyRange, Option<SyntheticRange>)> {
    let mut pieces = Vec::new();
    let mut at = begin;
    for (place, from, to) in SYNTHETIC_RANGES {
        let (from, to) = (from.max(at), to.min(end));
        if from < to {
            pieces.push(((at.to_vec(), from.to_vec()), None));
            pieces.push(((from.to_vec(), to.to_vec()), Some(place)));
            at = to;
        }
    }
    pieces.push(((at.to_vec(), end.to_vec()), None));
    pieces.retain(|((begin, end), _)| begin < end);
    pieces
}

impl SyntheticRange {
    /// The value of a key of this range.
    pub fn get(self, key: &[u8], times: Times) -> Option<Bytes> {
        let mut found = None;
        let after = crate::range_set::key_after(key);
        // There is at most one row, so the scan ends by itself.
        let _ = self.scan((key, &after), times, Direction::Forward, &mut |_, value| {
            found = Some(Bytes::copy_from_slice(value));
            ControlFlow::Break(())
        });
        found
    }

    /// Visits the rows of `[begin, end)`, which must lie in this range.
    pub fn scan(
        self,
        (begin, end): (&[u8], &[u8]),
        times: Times,
        direction: Direction,
        visit: RowVisitor<'_>,
    ) -> ControlFlow<()> {
        match self {
            SyntheticRange::Coordinators => visit(COORDINATORS, CONNECTION_STRING.as_bytes()),
            SyntheticRange::KeyServers => visit(KEY_SERVERS, b""),
            SyntheticRange::TimeKeeper => {
                let mut seconds = times.ticks(begin, end).map(|tick| tick * TICK);
                let mut visit = |seconds: i64| visit(&time_key(seconds), &times.version_at(seconds));
                match direction {
                    Direction::Forward => seconds.try_for_each(&mut visit),
                    Direction::Backward => seconds.rev().try_for_each(&mut visit),
                }
            }
        }
    }
}

impl Times {
    /// The ticks whose rows lie in `[begin, end)`.
    fn ticks(self, begin: &[u8], end: &[u8]) -> Range<i64> {
        let newest = (self.version / VERSIONS_PER_SECOND + self.epoch) / TICK;
        let first = newest - TICKS + 1;
        let at_or_after =
            |key: &[u8]| first + count_below(TICKS, |n| time_key((first + n) * TICK).as_slice() < key);
        at_or_after(begin)..at_or_after(end)
    }

    /// The packed version at a time.
    fn version_at(self, seconds: i64) -> Vec<u8> {
        let version = (seconds - self.epoch) * VERSIONS_PER_SECOND;
        let mut value = Vec::new();
        tuple::push_unsigned(&mut value, u64::try_from(version).unwrap_or(0));
        value
    }
}

/// The count of numbers from 0 to `len` before the first one that is not `below`.
fn count_below(len: i64, below: impl Fn(i64) -> bool) -> i64 {
    let (mut low, mut high) = (0, len);
    while low < high {
        let middle = low + (high - low) / 2;
        if below(middle) { low = middle + 1 } else { high = middle }
    }
    low
}

fn time_key(seconds: i64) -> Vec<u8> {
    let mut key = TIME_KEEPER.to_vec();
    tuple::push_unsigned(&mut key, seconds.unsigned_abs());
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use foundationdb::tuple::unpack;

    const EPOCH: i64 = 1_700_000_000;
    const VERSION: i64 = 50_000_000 * VERSIONS_PER_SECOND + 7;
    const TIMES: Times = Times { version: VERSION, epoch: EPOCH };

    fn times(begin: &[u8], end: &[u8], direction: Direction) -> Vec<(i64, i64)> {
        let mut times = Vec::new();
        let _ = SyntheticRange::TimeKeeper.scan((begin, end), TIMES, direction, &mut |key, value| {
            times.push((unpack(&key[TIME_KEEPER.len()..]).unwrap(), unpack(value).unwrap()));
            ControlFlow::Continue(())
        });
        times
    }

    #[test]
    fn the_time_keeper_has_a_row_for_every_ten_seconds_of_a_day() {
        let all = times(TIME_KEEPER, TIME_KEEPER_END, Direction::Forward);
        let newest = EPOCH + 50_000_000;
        assert_eq!((all.len(), all.last()), (8_640, Some(&(newest, 50_000_000 * VERSIONS_PER_SECOND))));
        assert!(
            all.windows(2).all(|pair| pair[1].0 - pair[0].0 == 10 && pair[1].1 - pair[0].1 == 10_000_000)
        );
        let mut some = times(&time_key(newest - 25), &time_key(newest), Direction::Backward);
        some.reverse();
        assert_eq!(some, all[all.len() - 3..all.len() - 1]);
        assert_eq!(
            SyntheticRange::TimeKeeper.get(&time_key(newest), TIMES).as_deref(),
            Some(&TIMES.version_at(newest)[..])
        );
        assert_eq!(SyntheticRange::TimeKeeper.get(&time_key(newest + 10), TIMES), None);
    }

    #[test]
    fn the_least_difference_from_the_wall_clock_counts() {
        let at = |micros: i64| {
            SystemTime::UNIX_EPOCH
                + std::time::Duration::from_micros((EPOCH * 1_000_000 + micros).unsigned_abs())
        };
        let epoch = Epoch::default();
        assert_eq!(
            epoch.times(5_000_000, at(9_000_000)).epoch,
            EPOCH + 4,
            "that version was four seconds old"
        );
        assert_eq!(epoch.times(5_000_000, at(5_000_050)).epoch, EPOCH);
        assert_eq!(epoch.times(5_000_000, at(9_000_000)).epoch, EPOCH);
        assert_eq!(epoch.times(30_000_000, at(10_000_000)).epoch, EPOCH - 20, "versions have run ahead");
    }

    #[test]
    fn a_range_is_cut_at_synthetic_ranges() {
        let cut = |begin: &[u8], end: &[u8]| {
            pieces(begin, end).into_iter().map(|(_, place)| place).collect::<Vec<_>>()
        };
        assert_eq!(cut(b"", b"\xff"), [None]);
        assert_eq!(cut(KEY_SERVERS, b"\xff\xff"), [Some(SyntheticRange::KeyServers), None]);
        assert_eq!(
            cut(b"", COORDINATORS_END),
            [None, Some(SyntheticRange::TimeKeeper), None, Some(SyntheticRange::Coordinators)]
        );
        let whole = pieces(b"", b"\xff\xff");
        assert!(whole.windows(2).all(|pair| pair[0].0.1 == pair[1].0.0) && whole.len() == 7);
        assert!(
            has_synthetic_keys(b"\xff", b"\xff\xff")
                && !has_synthetic_keys(b"", b"\xff")
                && !has_synthetic_keys(b"\xff/d", b"\xff/k")
        );
        assert_eq!(
            (synthetic_range(KEY_SERVERS), synthetic_range(b"\xff/keyServers/a")),
            (Some(SyntheticRange::KeyServers), None)
        );
    }
}
