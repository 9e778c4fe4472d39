//! Whether a consumer is stuck, from what is seen of it. Pure.
//!
//! | stage | goes on |
//! |---|---|
//! | taking | while takes of its queue end, with whatever result, and not too many of them before it has its turn; or while the queue is paused or its handler cannot work |
//! | paused, unavailable | always |
//! | idle | while somebody looks into its queue as often as the poll interval says; or while the queue is paused |
//! | handling | while the handler has items, however long that takes, if the lease is held or known to be lost; but no longer after its call's time limit than it takes to drop the handler; then, until what it said is settled, as long as a lease lasts |
//! | backoff | as long as the longest pause lasts |
//! | closing | as long as a lease and a take last |
//!
//! To each of these times some patience is added. A database that does not answer is no reason: takes fail then, which is an end; leases are
//! lost, which is one too.

use std::{fmt, sync::Arc, time::Duration};

use crate::{consumer::backoff, handlers::LAST_MOMENT, status::ConsumerState};

/// In each stage a consumer has to answer as well: its actor reads its mailbox.
const SILENT: &str = "it does not answer";

/// What is seen of a consumer. Durations are ages.
#[derive(Clone, Debug)]
pub(super) struct Signs {
    /// It answered one of the last two pings.
    pub(super) answers: bool,
    pub(super) stage: ConsumerState,
    /// Of the stage.
    pub(super) lasted: Duration,
    /// Since when its queue's takes may begin; none while they may not.
    pub(super) open_for: Option<Duration>,
    /// Takes of its queue that have ended since the stage has lasted for longer than is put up with.
    pub(super) turns: u64,
    /// Of the end of the last one.
    pub(super) last_turn: Duration,
    /// How many consumers its queue has.
    pub(super) consumers: u64,
    /// Of the last call of its handler in this stage.
    pub(super) called: Option<Duration>,
    /// Of the end of the handler's work in this stage.
    pub(super) handled: Option<Duration>,
    /// Of the last sign of whoever holds the lease of what it handles; none if nobody does.
    pub(super) held: Option<Duration>,
    /// Its queue's settings.
    pub(super) lease: Duration,
    pub(super) poll_interval: Duration,
    pub(super) timeout: Option<Duration>,
}

/// Something that does not move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stuck {
    /// 0 is the supervisor.
    pub(super) consumer: u64,
    pub(super) queue: Arc<str>,
    pub(super) stage: ConsumerState,
    pub(super) lasted: Duration,
    pub(super) why: &'static str,
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { consumer, queue, stage, lasted, why } = self;
        if *consumer == 0 {
            return write!(f, "the supervisor is stuck: {why}");
        }
        let stage = format!("{stage:?}").to_lowercase();
        let seconds = lasted.as_secs();
        write!(f, "consumer {consumer} of {queue:?} is stuck in {stage} for {seconds} s: {why}")
    }
}

/// Why it is stuck, if it is.
pub(super) fn stuck(signs: &Signs, patience: Duration) -> Option<&'static str> {
    if !signs.answers {
        return Some(SILENT);
    }
    match signs.stage {
        ConsumerState::Paused | ConsumerState::Unavailable => None,
        ConsumerState::Taking => taking(signs, patience),
        ConsumerState::Idle => idle(signs, patience),
        ConsumerState::Handling => handling(signs, patience),
        ConsumerState::Backoff => {
            (signs.lasted > backoff::LONGEST + patience).then_some("its pause does not end")
        }
        ConsumerState::Closing => (signs.lasted > signs.lease.saturating_add(patience * 2))
            .then_some("what it leaves is not settled"),
    }
}

fn taking(signs: &Signs, patience: Duration) -> Option<&'static str> {
    let waited = signs.lasted.min(signs.open_for?);
    if waited <= patience {
        return None;
    }
    // It is served in its turn: each of the others comes before it once, or twice if it began while one was under way.
    let passed_over = signs.turns > signs.consumers.saturating_mul(2).saturating_add(2);
    if passed_over {
        return Some("others' takes end, and its own does not");
    }
    (signs.last_turn > patience).then_some("no take of its queue ends")
}

fn idle(signs: &Signs, patience: Duration) -> Option<&'static str> {
    let limit = signs.poll_interval.saturating_add(patience);
    let waited = signs.lasted.min(signs.open_for?);
    (waited > limit && signs.last_turn > limit).then_some("nobody looks into its queue any more")
}

fn handling(signs: &Signs, patience: Duration) -> Option<&'static str> {
    let limit = signs.lease.saturating_add(patience);
    if let Some(handled) = signs.handled {
        return (handled > limit).then_some("its items are handled, and it does not go on");
    }
    if signs.held.is_some_and(|held| held > limit) {
        return Some("its lease is neither extended nor given up");
    }
    let time = signs.timeout?.saturating_add(LAST_MOMENT).saturating_add(limit);
    signs.called.is_some_and(|called| called > time).then_some("its handler cannot be stopped")
}

#[cfg(test)]
mod tests;
