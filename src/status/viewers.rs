//! The viewers of the status. While there is one, the stats poller reads the queues more often.

use std::{sync::Arc, time::Duration};

use tokio::{sync::watch, time::timeout};

/// Counts the viewers of a status, and passes their requests for fresh figures to the stats poller.
#[derive(Debug, Default)]
pub(crate) struct Viewers {
    count: watch::Sender<usize>,
    requests: watch::Sender<u64>,
    answered: watch::Sender<u64>,
}

/// Counts as a viewer until it is dropped.
#[derive(Debug)]
pub(crate) struct ViewerGuard(Arc<Viewers>);

impl Viewers {
    /// One more viewer.
    pub(crate) fn add(self: &Arc<Self>) -> ViewerGuard {
        self.count.send_modify(|count| *count += 1);
        ViewerGuard(self.clone())
    }

    /// How many viewers there are.
    pub(crate) fn count(&self) -> usize {
        *self.count.borrow()
    }

    /// A receiver of the number of viewers.
    pub(crate) fn count_changes(&self) -> watch::Receiver<usize> {
        self.count.subscribe()
    }

    /// Asks for fresh figures, and waits for them, but no longer than this. If the poller or the database
    /// does not answer, the figures stay as they were.
    pub(crate) async fn refresh(&self, patience: Duration) {
        let mut answered = self.answered.subscribe();
        let mut number = 0;
        self.requests.send_modify(|requests| {
            *requests += 1;
            number = *requests;
        });
        // The sender is in `self`, so only the patience can end it otherwise.
        let _ = timeout(patience, answered.wait_for(|answered| *answered >= number)).await;
    }

    /// A receiver of the number of requests.
    pub(crate) fn requests(&self) -> watch::Receiver<u64> {
        self.requests.subscribe()
    }

    /// The poller has answered the requests up to this number.
    pub(crate) fn answer(&self, requests: u64) {
        self.answered.send_replace(requests);
    }
}

impl Drop for ViewerGuard {
    fn drop(&mut self) {
        self.0.count.send_modify(|count| *count -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn viewers_are_counted_until_they_leave() {
        let viewers = Arc::new(Viewers::default());
        let first = viewers.add();
        let second = viewers.add();
        drop(first);
        assert_eq!(viewers.count(), 1);
        drop(second);
        assert_eq!(viewers.count(), 0);
    }

    #[tokio::test]
    async fn a_refresh_waits_for_its_answer_up_to_a_timeout() {
        let viewers = Viewers::default();
        let mut requests = viewers.requests();
        let poller = async {
            requests.changed().await.unwrap();
            let requests = *requests.borrow();
            viewers.answer(requests);
            requests
        };
        let (requests, ()) = tokio::join!(poller, viewers.refresh(Duration::from_secs(60)));
        assert_eq!(requests, 1);
        viewers.refresh(Duration::from_millis(1)).await;
    }
}
