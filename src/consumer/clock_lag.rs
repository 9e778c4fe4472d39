//! By how much items expire later than this process's clock says, since it is ahead of the clocks of others.

use std::time::Duration;

use kvqueue_queue::Millis;
use mutant::mutant;
use tokio::{sync::watch, time::timeout};

/// How long a consumer waits for the comparison. Without one, as while the database does not answer, its own clock counts.
const PATIENCE: Duration = Duration::from_secs(10);

/// The lag of a queue, in milliseconds. A process without a sweeper of the queue has none.
#[derive(Debug)]
pub(crate) struct ClockLag(watch::Sender<Option<Millis>>);

impl Default for ClockLag {
    fn default() -> Self {
        Self::of(0)
    }
}

impl ClockLag {
    /// One that is known.
    pub(crate) fn of(lag: Millis) -> Self {
        Self(watch::Sender::new(Some(lag)))
    }

    /// A sweeper begins. Its first sweep compares the clocks.
    pub(crate) fn is_being_found(&self) {
        if !mutant("clocks-are-not-compared-first") {
            self.0.send_replace(None);
        }
    }

    /// A sweeper has compared the clocks.
    pub(crate) fn found(&self, lag: Millis) {
        self.0.send_replace(Some(lag));
    }

    /// Waits until it is known, if a sweeper is about to find it.
    pub(crate) async fn known(&self) -> Millis {
        self.known_within(PATIENCE).await
    }

    async fn known_within(&self, patience: Duration) -> Millis {
        let mut lag = self.0.subscribe();
        let known = timeout(patience, lag.wait_for(Option::is_some)).await;
        known.ok().and_then(Result::ok).and_then(|lag| *lag).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn consumers_wait_for_the_first_comparison_for_a_bounded_time() {
        let lag = ClockLag::default();
        assert_eq!(lag.known().await, 0);
        lag.is_being_found();
        assert_eq!(lag.known_within(Duration::from_millis(1)).await, 0);
        let (known, ()) = tokio::join!(lag.known(), async { lag.found(7) });
        assert_eq!(known, 7);
    }
}
