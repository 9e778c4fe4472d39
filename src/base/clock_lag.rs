//! By how much items expire later than this process's clock says, since it is ahead of the clocks of others.

use std::time::Duration;

use mutant::mutant;
use tokio::{
    sync::{Notify, watch},
    time::timeout,
};

/// The longest wait for the comparison, which takes three seconds where no other sweeper is known, and does not end while the database does not answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The lag of a queue. A process without a sweeper of the queue has none.
#[derive(Debug)]
pub(crate) struct ClockLag {
    lag: watch::Sender<Option<Duration>>,
    /// A consumer waits for the comparison.
    wanted: Notify,
}

impl Default for ClockLag {
    fn default() -> Self {
        Self::of(Duration::ZERO)
    }
}

impl ClockLag {
    /// One that is known.
    pub(crate) fn of(lag: Duration) -> Self {
        Self { lag: watch::Sender::new(Some(lag)), wanted: Notify::new() }
    }

    /// A sweeper begins, and is to compare the clocks.
    pub(crate) fn is_being_found(&self) {
        if !mutant("clocks-are-not-compared-first") {
            self.lag.send_replace(None);
        }
    }

    /// A sweeper has compared the clocks.
    pub(crate) fn found(&self, lag: Duration) {
        self.lag.send_replace(Some(lag));
    }

    /// Waits until a consumer needs it, and it is not known. A sweeper that sees no queue, and so has nothing to compare, is to look again then.
    pub(crate) async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// Waits until it is known, if a sweeper is about to find it: for so long, and for ten seconds at most. `None` if it is not known then.
    pub(crate) async fn known_within(&self, patience: Duration) -> Option<Duration> {
        let mut lag = self.lag.subscribe();
        if lag.borrow().is_none() {
            self.wanted.notify_one();
        }
        let known = timeout(patience.min(PATIENCE), lag.wait_for(Option::is_some)).await;
        known.ok().and_then(Result::ok).and_then(|lag| *lag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn consumers_wait_for_the_first_comparison_for_a_bounded_time() {
        let lag = ClockLag::default();
        assert_eq!(lag.known_within(Duration::MAX).await, Some(Duration::ZERO));
        lag.is_being_found();
        assert_eq!(lag.known_within(Duration::from_millis(1)).await, None);
        let (known, ()) = tokio::join!(lag.known_within(Duration::MAX), async {
            lag.wanted().await;
            lag.found(Duration::from_millis(7));
        });
        assert_eq!(known, Some(Duration::from_millis(7)));
    }
}
