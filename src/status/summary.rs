//! The status in a few numbers.

use super::{Inner, Phase};
use crate::consumer::status::ConsumerState;

/// The figures of systemd's status line. Cheaper than a snapshot if there are many consumers.
#[derive(Clone, Debug)]
pub(crate) struct Summary {
    pub(crate) phase: Phase,
    pub(crate) queues: usize,
    /// How many of them are paused, for all daemons or for this one.
    pub(crate) paused: usize,
    pub(crate) consumers: usize,
    /// How many of them wait after a fetch that failed.
    pub(crate) backing_off: usize,
    /// Items that handlers of this daemon have now.
    pub(crate) in_flight: i64,
    /// Items that this daemon finished since it started.
    pub(crate) finished: u64,
    /// The database's error, if it does not answer.
    pub(crate) database_error: Option<String>,
    /// Why the last reload was refused, if it was.
    pub(crate) refused: Option<String>,
}

impl From<&Inner> for Summary {
    fn from(inner: &Inner) -> Self {
        let consumers = inner.consumers.values();
        Self {
            phase: inner.phase,
            queues: inner.queues.len(),
            paused: inner.queues.values().filter(|queue| queue.is_paused()).count(),
            consumers: inner.consumers.len(),
            backing_off: consumers.filter(|it| it.state().0 == ConsumerState::Backoff).count(),
            in_flight: inner.queues.values().map(|queue| queue.in_flight()).sum(),
            finished: inner.queues.values().map(|queue| queue.finished()).sum(),
            database_error: inner.database.error.clone(),
            refused: inner.config.refused.clone(),
        }
    }
}
