//! How long an item has waited for its first attempt.

use std::time::{Duration, Instant};

use kvqueue_queue::Item;

use crate::consumer::{clock, fetch::VersionClock};

/// Whether this is the item's first attempt, and it never was a dead letter.
pub(super) fn is_new(item: &Item) -> bool {
    item.attempt == 1 && item.meta.as_ref().is_none_or(|meta| meta.failures.is_empty() && meta.crashes == 0)
}

/// How long ago the item was pushed: by its stamp, or in a recipe's queue by the time that its
/// producer stored, if it did.
pub(super) fn waited(item: &Item, clock: &VersionClock, now: Instant) -> Option<Duration> {
    if let Some(stamp) = item.id.stamp() {
        return clock.since(stamp.version(), now);
    }
    let pushed = item.meta.as_ref()?.enqueued_at?;
    Some(Duration::from_millis(clock::now().saturating_sub(pushed)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Sample;

    #[test]
    fn pickup_latency_counts_only_first_attempts() {
        let [first, second] = [1, 2].map(|attempt| Sample::new("").attempt(attempt).build());
        assert!(is_new(&first) && !is_new(&second));
    }
}
