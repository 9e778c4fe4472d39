//! Hooks for tests of the daemon itself: they see the events of consumers, and can withhold them.

use std::{sync::Arc, time::Duration};

use super::Daemon;
use crate::consumer::state::Event;

impl Daemon {
    /// Lets `observer` see the events of every consumer before the consumer acts on them. It runs on the
    /// actors' thread, and a panic in it is the consumer's own: this is how tests make a consumer fail.
    pub fn observe(self, observer: impl Fn(u64, Event) + Send + Sync + 'static) -> Self {
        self.withhold(move |consumer, event| {
            observer(consumer, event);
            false
        })
    }

    /// As [`observe`](Self::observe). A consumer does not get the events for which `withhold` returns true:
    /// this is how tests make it hang.
    pub fn withhold(mut self, withhold: impl Fn(u64, Event) -> bool + Send + Sync + 'static) -> Self {
        self.observer = Some(Arc::new(move |consumer, event| !withhold(consumer, event)));
        self
    }

    /// How much longer something may take than it should before it counts as stuck.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }
}
