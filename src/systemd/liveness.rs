//! Decides whether a consumer is stuck, from observations of it. Pure.
//!
//! | state | the consumer is not stuck |
//! |---|---|
//! | taking | while fetches of its queue end, with whatever result, and it gets its turn; while the queue is paused, or its handler cannot work |
//! | paused, unavailable | ever |
//! | idle | while its queue is fetched from at each poll interval; while the queue is paused |
//! | handling | while the handler has items, if the lease is held or known to be lost, and until the handler is dropped after `handler-timeout`, unless it limits itself; then as long as a lease lasts, until the outcomes are acknowledged |
//! | backoff | as long as the longest pause lasts |
//! | closing | as long as a lease and a fetch last |
//!
//! Each of these times gets some patience added. A database that does not answer makes nobody stuck: fetches
//! fail then and leases are lost, and both are ends.

use std::{fmt, sync::Arc, time::Duration};

use crate::{base::backoff, consumer::status::ConsumerState, handlers::ABORT_DELAY};

/// In each state the consumer has to answer as well: its actor reads its mailbox.
const SILENT: &str = "it does not answer";

/// The observations of a consumer. Durations are ages.
#[derive(Clone, Debug)]
pub(super) struct Observation {
    /// It answered one of the last two pings.
    pub(super) answers: bool,
    pub(super) state: ConsumerState,
    /// Of the state.
    pub(super) lasted: Duration,
    /// Since when its queue may be fetched from; none while it may not.
    pub(super) open_for: Option<Duration>,
    /// Fetches of its queue that have ended since the state has lasted longer than the patience.
    pub(super) fetches: u64,
    /// Of the end of the last fetch of its queue.
    pub(super) last_fetch: Duration,
    /// How many consumers its queue has.
    pub(super) consumers: u64,
    /// Of the last call of its handler in this state.
    pub(super) called: Option<Duration>,
    /// Of the end of the handler's work in this state.
    pub(super) handled: Option<Duration>,
    /// Of the last heartbeat of the lease keeper of its items; none without one.
    pub(super) held: Option<Duration>,
    /// Its queue's settings, these three.
    pub(super) lease: Duration,
    pub(super) poll_interval: Duration,
    pub(super) timeout: Option<Duration>,
}

/// A consumer, or the supervisor, that is stuck.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stuck {
    /// Its number; 0 is the supervisor.
    pub(super) consumer: u64,
    pub(super) queue: Arc<str>,
    pub(super) state: ConsumerState,
    pub(super) lasted: Duration,
    pub(super) why: &'static str,
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { consumer, queue, state, lasted, why } = self;
        if *consumer == 0 {
            return write!(f, "the supervisor is stuck: {why}");
        }
        let state = format!("{state:?}").to_lowercase();
        let seconds = lasted.as_secs();
        write!(f, "consumer {consumer} of {queue:?} is stuck in {state} for {seconds} s: {why}")
    }
}

/// Why the consumer is stuck, if it is.
pub(super) fn stuck(observed: &Observation, patience: Duration) -> Option<&'static str> {
    if !observed.answers {
        return Some(SILENT);
    }
    match observed.state {
        ConsumerState::Paused | ConsumerState::Unavailable => None,
        ConsumerState::Fetching => taking(observed, patience),
        ConsumerState::Idle => idle(observed, patience),
        ConsumerState::Handling => handling(observed, patience),
        ConsumerState::Backoff => {
            (observed.lasted > backoff::LONGEST + patience).then_some("its pause does not end")
        }
        ConsumerState::Closing => (observed.lasted > observed.lease.saturating_add(patience * 2))
            .then_some("its last items are not acknowledged"),
    }
}

fn taking(observed: &Observation, patience: Duration) -> Option<&'static str> {
    let waited = observed.lasted.min(observed.open_for?);
    if waited <= patience {
        return None;
    }
    // Each of the others is served before it once, or twice if it asked while a fetch was under way.
    let passed_over = observed.fetches > observed.consumers.saturating_mul(2).saturating_add(2);
    if passed_over {
        return Some("fetches for other consumers end, and its own does not");
    }
    (observed.last_fetch > patience).then_some("no fetch of its queue ends")
}

fn idle(observed: &Observation, patience: Duration) -> Option<&'static str> {
    let limit = observed.poll_interval.saturating_add(patience);
    let waited = observed.lasted.min(observed.open_for?);
    (waited > limit && observed.last_fetch > limit).then_some("its queue is not polled any more")
}

fn handling(observed: &Observation, patience: Duration) -> Option<&'static str> {
    let limit = observed.lease.saturating_add(patience);
    if let Some(handled) = observed.handled {
        return (handled > limit).then_some("its items are handled, and it does not continue");
    }
    if observed.held.is_some_and(|held| held > limit) {
        return Some("its lease is neither extended nor given up");
    }
    let time = observed.timeout?.saturating_add(ABORT_DELAY).saturating_add(limit);
    observed.called.is_some_and(|called| called > time).then_some("its handler cannot be stopped")
}

#[cfg(test)]
mod tests;
