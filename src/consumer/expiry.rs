//! Whether an item has expired when its first attempt would begin.
//!
//! Sweepers end expired items, but after an outage fetches may come first.

use std::{
    ops::Range,
    time::{Duration, Instant, SystemTime},
};

use kvqueue_queue::{Item, ItemOutcome, OnExpiry};

use super::fetch::VersionClock;
use crate::{
    base::{
        clock,
        clock_lag::ClockLag,
        times::{before, between},
    },
    config::QueueConfig,
};

/// What a queue's settings say of expiry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Expiry {
    /// After this time from its push an item without an expiry of its own expires.
    ttl: Option<Duration>,
    pub(crate) on_expiry: OnExpiry,
}

impl Expiry {
    pub(crate) fn of(config: &QueueConfig) -> Self {
        Self { ttl: config.ttl, on_expiry: config.on_expiry.into() }
    }

    /// The outcome of an item that has expired at `now`; `waited` says how long ago the item was pushed, if that is known.
    fn outcome(
        &self,
        item: &Item,
        now: SystemTime,
        waited: impl FnOnce() -> Option<Duration>,
    ) -> Option<ItemOutcome> {
        let meta = item.meta.as_deref();
        let may_expire = item.attempt == 1 && meta.is_none_or(|meta| meta.may_expire());
        let has_expired = match (meta.and_then(|meta| meta.expires), self.ttl) {
            _ if !may_expire => false,
            (Some(_), _) => meta.is_some_and(|meta| meta.has_expired(now)),
            (None, Some(ttl)) => waited().is_some_and(|waited| waited >= ttl),
            (None, None) => false,
        };
        has_expired.then(|| ItemOutcome::Expired { at: now, on_expiry: self.on_expiry })
    }

    /// The items among these that have expired, by their indexes, and their outcome. Where the clock says so, it first has to be compared with those of
    /// other processes. If it cannot be, it counts as it is.
    pub(crate) async fn expired(
        &self,
        items: &[Item],
        clock: &VersionClock,
        lag: &ClockLag,
    ) -> Vec<(usize, ItemOutcome)> {
        let expired = self.expired_within(items, clock, lag, Duration::MAX).await;
        expired.unwrap_or_else(|| self.expired_before(items, clock, Duration::ZERO))
    }

    /// The same; `None` if the clock has not been compared within so long.
    pub(crate) async fn expired_within(
        &self,
        items: &[Item],
        clock: &VersionClock,
        lag: &ClockLag,
        patience: Duration,
    ) -> Option<Vec<(usize, ItemOutcome)>> {
        match self.expired_before(items, clock, Duration::ZERO) {
            expired if expired.is_empty() => Some(expired),
            _ => Some(self.expired_before(items, clock, lag.known_within(patience).await?)),
        }
    }

    /// The items that have expired by a time that lies `lag` before the clock's.
    fn expired_before(
        &self,
        items: &[Item],
        clock: &VersionClock,
        lag: Duration,
    ) -> Vec<(usize, ItemOutcome)> {
        let has_expiry = |item: &Item| item.meta.as_ref().is_some_and(|meta| meta.expires.is_some());
        if self.ttl.is_none() && !items.iter().any(has_expiry) {
            return Vec::new();
        }
        let (now, instant) = (before(clock::now(), lag), Instant::now());
        let outcome = |item: &Item| self.outcome(item, now, || waited(item, clock, instant));
        items.iter().enumerate().filter_map(|(index, item)| Some((index, outcome(item)?))).collect()
    }
}

/// How long ago the item was pushed: by its stamp, or in a recipe's queue by the time that its
/// producer stored, if it did.
pub(super) fn waited(item: &Item, clock: &VersionClock, now: Instant) -> Option<Duration> {
    if let Some(stamp) = item.id.stamp() {
        return clock.since(stamp.version(), now);
    }
    let pushed = item.meta.as_ref()?.enqueued_at?;
    Some(between(pushed, clock::now()))
}

/// The parts of a range that are left without the items of these indexes, which are in order.
pub(super) fn rest(range: Range<usize>, without: impl Iterator<Item = usize>) -> Vec<Range<usize>> {
    let (mut parts, mut from) = (Vec::new(), range.start);
    for index in without {
        parts.push(from..index);
        from = index + 1;
    }
    parts.push(from..range.end);
    parts.retain(|part| !part.is_empty());
    parts
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kvqueue_queue::{Failure, Meta, from_millis};

    use super::*;
    use crate::testing::Sample;

    const NOW: u64 = 1_000;

    fn item(attempt: u32, meta: impl FnOnce(&mut Meta)) -> Item {
        let mut item = Sample::new("").attempt(attempt).build();
        let mut with = Meta::default();
        meta(&mut with);
        item.meta = Some(Arc::new(with));
        item
    }

    fn has_expired(ttl: Option<u64>, item: &Item, waited: Option<u64>) -> bool {
        let expiry = Expiry { ttl: ttl.map(Duration::from_millis), on_expiry: OnExpiry::Dead };
        let outcome = expiry.outcome(item, from_millis(NOW), || waited.map(Duration::from_millis));
        let expired = ItemOutcome::Expired { at: from_millis(NOW), on_expiry: OnExpiry::Dead };
        outcome.inspect(|outcome| assert_eq!(*outcome, expired)).is_some()
    }

    #[test]
    fn an_items_own_expiry_comes_before_that_of_its_queue() {
        let at = |expires| item(1, |meta| meta.expires = Some(from_millis(expires)));
        assert!(has_expired(None, &at(NOW), None) && has_expired(Some(500), &at(NOW), Some(0)));
        assert!(!has_expired(None, &at(NOW + 1), None) && !has_expired(Some(500), &at(NOW + 1), Some(900)));
    }

    #[test]
    fn an_item_without_an_expiry_expires_by_the_ttl_of_its_queue() {
        let plain = Sample::new("").build();
        assert!(has_expired(Some(500), &plain, Some(500)));
        assert!(!has_expired(Some(500), &plain, Some(499)) && !has_expired(None, &plain, Some(500)));
        // It is not known when the item was pushed.
        assert!(!has_expired(Some(500), &plain, None));
    }

    #[test]
    fn an_item_that_was_begun_does_not_expire() {
        let begun = item(2, |meta| (meta.expires, meta.attempts) = (Some(from_millis(1)), 1));
        // A dead letter that is tried once more has all attempts before it.
        let retried = item(1, |meta| meta.failures = vec![Failure::new(from_millis(1), 1, "no")]);
        for item in [begun, retried] {
            assert!(!has_expired(Some(1), &item, Some(900)));
        }
    }

    #[test]
    fn the_rest_of_a_call_is_without_expired_items() {
        let rest = |without: &[usize]| {
            let parts = rest(2..6, without.iter().copied());
            parts.into_iter().map(|part| (part.start, part.end)).collect::<Vec<_>>()
        };
        assert_eq!(rest(&[]), [(2, 6)]);
        assert_eq!(rest(&[2, 4]), [(3, 4), (5, 6)]);
        assert_eq!(rest(&[5]), [(2, 5)]);
        assert_eq!(rest(&[2, 3, 4, 5]), []);
    }
}
