//! A limit of how many items start in a time: the generic cell rate algorithm, with versions of the database as its clock.
//!
//! A scope has *paid up to* a version. Each item that starts moves it ahead by the time that one item takes at the rate. Items
//! may start as long as it is not further ahead of now than the tolerance.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::model::limits::LimitError;
use crate::model::time::versions;

/// The tolerance of a rate without a burst of its own, in versions: a tenth of a second.
const TOLERANCE: u64 = 100_000;
/// The shortest and the longest time of a rate, in versions: a millisecond and a year.
const TIMES: std::ops::RangeInclusive<u64> = 1_000..=31_536_000_000_000;

/// How many items of a scope start at most in a time, over all processes: `items` in each `per`, and a burst more.
///
/// Every start counts, and so does every attempt at a retried item. In any span of time at most `span / per * items + burst` items
/// start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    items: NonZeroU32,
    /// In versions.
    per: u64,
    burst: Option<NonZeroU32>,
}

impl Rate {
    /// `items` in each `per`, from 1 ms to 365 days. Unused time can be made up for by the items of a tenth of a second, at least one.
    ///
    /// # Errors
    /// [`LimitError::RateTime`] if `per` is shorter or longer.
    pub fn new(items: NonZeroU32, per: Duration) -> Result<Rate, LimitError> {
        let per = versions(per);
        if !TIMES.contains(&per) {
            return Err(LimitError::RateTime);
        }
        Ok(Rate { items, per, burst: None })
    }

    /// The same with a burst: so many items start at once after a time without any.
    #[must_use]
    pub fn with_burst(self, burst: NonZeroU32) -> Rate {
        Rate { burst: Some(burst), ..self }
    }

    /// How many items start in each [`per`](Rate::per).
    pub fn items(&self) -> u32 {
        self.items.get()
    }

    /// The time in which so many items start.
    pub fn per(&self) -> Duration {
        Duration::from_micros(self.per)
    }

    /// The burst that was given.
    pub fn burst(&self) -> Option<u32> {
        self.burst.map(NonZeroU32::get)
    }

    /// As it is stored: items (u32), versions (u64), burst (u32, 0 for none), little endian.
    pub(crate) fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&self.items.get().to_le_bytes());
        bytes[4..12].copy_from_slice(&self.per.to_le_bytes());
        bytes[12..].copy_from_slice(&self.burst().unwrap_or_default().to_le_bytes());
        bytes
    }

    /// Reads what [`to_bytes`](Rate::to_bytes) has written.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Rate> {
        let (items, rest) = bytes.split_first_chunk()?;
        let (per, rest) = rest.split_first_chunk()?;
        let (items, per) = (NonZeroU32::new(u32::from_le_bytes(*items))?, u64::from_le_bytes(*per));
        let burst = NonZeroU32::new(u32::from_le_bytes(rest.try_into().ok()?));
        TIMES.contains(&per).then_some(Rate { items, per, burst })
    }

    /// How many items may start at version `now`, if the scope has paid up to `paid`.
    pub(crate) fn starts(&self, paid: u64, now: u64) -> u64 {
        let paid = self.paid(paid, now);
        match (now.saturating_add(self.tolerance())).checked_sub(paid) {
            Some(slack) => self.items_in(slack).saturating_add(1),
            None => 0,
        }
    }

    /// Up to which version it has paid when `n` more items have started.
    pub(crate) fn pay(&self, paid: u64, now: u64, n: u64) -> u64 {
        self.paid(paid, now).saturating_add(self.time_of(n))
    }

    /// From which version on as many items may start as make a fetch worth while: half a burst.
    pub(crate) fn ready_at(&self, paid: u64, now: u64) -> u64 {
        let most = self.items_in(self.tolerance()).saturating_add(1);
        let n = (most / 2).max(1);
        let at = self.paid(paid, now).saturating_add(self.time_of(n - 1));
        at.saturating_sub(self.tolerance())
    }

    /// The latest version that [`ready_at`](Rate::ready_at) may say.
    pub(crate) fn latest(&self, now: u64) -> u64 {
        self.ready_at(u64::MAX, now)
    }

    /// Whether it is further ahead than this rate lets it be: the rate was changed, or versions went back.
    pub(crate) fn is_too_far(&self, paid: u64, now: u64) -> bool {
        paid > self.furthest(now)
    }

    fn furthest(&self, now: u64) -> u64 {
        now.saturating_add(self.tolerance()).saturating_add(self.time_of(1))
    }

    fn paid(&self, paid: u64, now: u64) -> u64 {
        paid.clamp(now, self.furthest(now))
    }

    fn tolerance(&self) -> u64 {
        self.burst.map_or(TOLERANCE, |burst| self.time_of(u64::from(burst.get()) - 1))
    }

    /// The time that `n` items take, rounded up.
    fn time_of(&self, n: u64) -> u64 {
        let time = (u128::from(n) * u128::from(self.per)).div_ceil(u128::from(self.items.get()));
        u64::try_from(time).unwrap_or(u64::MAX)
    }

    /// How many items there are in a time, rounded down.
    fn items_in(&self, time: u64) -> u64 {
        let items = u128::from(time) * u128::from(self.items.get()) / u128::from(self.per);
        u64::try_from(items).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000;

    fn rate(items: u32, per: u64, burst: Option<u32>) -> Rate {
        let rate = Rate::new(NonZeroU32::new(items).unwrap(), Duration::from_micros(per)).unwrap();
        burst.and_then(NonZeroU32::new).map_or(rate, |burst| rate.with_burst(burst))
    }

    #[test]
    fn a_rested_scope_starts_a_burst_and_then_keeps_the_rate() {
        let rate = rate(10, SECOND, Some(5));
        let now = 70 * SECOND;
        assert_eq!(rate.starts(0, now), 5);
        let paid = rate.pay(0, now, 5);
        assert_eq!(rate.starts(paid, now), 0);
        assert_eq!(rate.starts(paid, now + SECOND / 10 - 1), 0);
        assert_eq!(rate.starts(paid, now + SECOND / 10), 1);
        assert_eq!(rate.starts(paid, now + SECOND), 5);
        assert_eq!(rate.ready_at(paid, now), now + 2 * SECOND / 10);
    }

    #[test]
    fn without_a_burst_a_tenth_of_a_second_is_made_up_for() {
        assert_eq!(rate(1_000, SECOND, None).starts(0, SECOND), 101);
        assert_eq!(rate(1, 60 * SECOND, None).starts(0, SECOND), 1);
    }

    #[test]
    fn a_scope_that_paid_far_ahead_waits_for_one_item_of_the_new_rate() {
        let rate = rate(1, SECOND, None);
        assert_eq!(rate.starts(u64::MAX, 0), 0);
        assert_eq!(rate.ready_at(u64::MAX, 0), SECOND);
    }

    #[test]
    fn times_that_are_no_time_of_a_rate_are_refused() {
        let of = |per| Rate::new(NonZeroU32::MIN, per);
        assert!(of(Duration::ZERO).is_err() && of(Duration::from_secs(366 * 86_400)).is_err());
        assert!(of(Duration::from_millis(1)).is_ok() && of(Duration::from_secs(365 * 86_400)).is_ok());
    }

    proptest! {
        /// Whatever is asked for and when: no window has more starts than the rate and a burst.
        #[test]
        fn no_window_has_more_than_the_rate_and_a_burst(
            items in 1..2_000_u32, per in 1_000..100_000_000_u64, burst in proptest::option::of(1..50_u32),
            steps: Vec<(u32, u8)>,
        ) {
            let rate = rate(items, per, burst);
            let most = rate.starts(0, SECOND);
            let (mut now, mut paid) = (SECOND, 0);
            let mut starts = Vec::new();
            for (pause, wanted) in steps {
                now += u64::from(pause % 1_000_000);
                let n = rate.starts(paid, now).min(u64::from(wanted));
                if n > 0 {
                    paid = rate.pay(paid, now, n);
                    starts.push((now, n));
                }
            }
            for (at, (begin, _)) in starts.iter().enumerate() {
                let mut n = 0;
                for (end, started) in &starts[at..] {
                    n += started;
                    prop_assert!(n <= most + rate.items_in(end - begin) + 1);
                }
            }
        }

        /// A consumer that waits until `ready_at` finds items that may start; one that is late by less than the tolerance loses nothing.
        #[test]
        fn nothing_is_lost_by_waiting(items in 1..2_000_u32, per in 1_000..100_000_000_u64, late in 0..50_000_u64) {
            let rate = rate(items, per, None);
            let (mut now, mut paid, mut started) = (SECOND, 0, 0);
            let begin = now;
            for _ in 0..50 {
                let n = rate.starts(paid, now);
                prop_assert!(n > 0);
                paid = rate.pay(paid, now, n);
                started += n;
                now = rate.ready_at(paid, now).max(now) + late;
            }
            prop_assert!(started + 1 >= rate.items_in(now - begin));
        }
    }
}
