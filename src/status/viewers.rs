//! Who looks at the status. While somebody does, the stats poller looks at the queues more often.

use std::{sync::Arc, time::Duration};

use tokio::{sync::watch, time::timeout};

/// Counts those who look; one per status.
#[derive(Debug, Default)]
pub(crate) struct Viewers {
    listeners: watch::Sender<usize>,
    asked: watch::Sender<u64>,
    answered: watch::Sender<u64>,
}

/// Somebody looks, for as long as this lives.
#[derive(Debug)]
pub(crate) struct ViewerGuard(Arc<Viewers>);

impl Viewers {
    /// Somebody begins to look.
    pub(crate) fn listen(self: &Arc<Self>) -> ViewerGuard {
        self.listeners.send_modify(|listeners| *listeners += 1);
        ViewerGuard(self.clone())
    }

    /// How many look now.
    pub(crate) fn listeners(&self) -> usize {
        *self.listeners.borrow()
    }

    /// Wakes the stats poller when somebody begins to look, or ends.
    pub(crate) fn changed(&self) -> watch::Receiver<usize> {
        self.listeners.subscribe()
    }

    /// Has the queues looked at now, unless that was done a moment ago, and waits for it; but not for longer than this. For those who look
    /// once. Without a stats poller, or with a database that does not answer, what is known stays as it was.
    pub(crate) async fn fresh(&self, patience: Duration) {
        let mut answered = self.answered.subscribe();
        let mut number = 0;
        self.asked.send_modify(|asked| {
            *asked += 1;
            number = *asked;
        });
        // The sender is in `self`, so only the patience can end it otherwise.
        let _ = timeout(patience, answered.wait_for(|answered| *answered >= number)).await;
    }

    /// Wakes the stats poller when somebody asks.
    pub(crate) fn questions(&self) -> watch::Receiver<u64> {
        self.asked.subscribe()
    }

    /// The stats poller has looked, after this many had asked.
    pub(crate) fn answer(&self, asked: u64) {
        self.answered.send_replace(asked);
    }
}

impl Drop for ViewerGuard {
    fn drop(&mut self) {
        self.0.listeners.send_modify(|listeners| *listeners -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn those_who_look_are_counted_and_those_who_ask_are_answered() {
        let viewers = Arc::new(Viewers::default());
        let first = viewers.listen();
        let second = viewers.listen();
        drop(first);
        assert_eq!(viewers.listeners(), 1);
        drop(second);
        assert_eq!(viewers.listeners(), 0);

        let mut questions = viewers.questions();
        let stats = async {
            questions.changed().await.unwrap();
            let asked = *questions.borrow();
            viewers.answer(asked);
            asked
        };
        let (asked, ()) = tokio::join!(stats, viewers.fresh(Duration::from_secs(60)));
        assert_eq!(asked, 1);
        // Nobody answers: it does not wait for ever.
        viewers.fresh(Duration::from_millis(1)).await;
    }
}
