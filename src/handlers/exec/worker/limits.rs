//! When an item has to end, and what is done about a process that does not end it. Pure.
//!
//! ```text
//!   working ── time limit, no heartbeat, cancelled ──▶ cancelled (the line `cancel`) ──▶ terminated ──▶ killed
//! ```

use std::time::{Duration, Instant};

use crate::handlers::{Outcome, time_up_reason};

/// From the line `cancel` to the signal TERM.
const CANCEL_DELAY: Duration = Duration::from_millis(500);

/// From TERM to KILL. Both together are shorter than the delay after which the daemon drops a
/// cancelled call.
const ITEM_TERM_DELAY: Duration = Duration::from_millis(250);

/// Why an item has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndReason {
    /// `handler-timeout` is over.
    TimeUp(Duration),
    /// There was no heartbeat within `heartbeat-timeout`.
    Silent(Duration),
    /// The lease is lost, or the daemon's shutdown timeout is over.
    Cancelled,
}

impl EndReason {
    /// The outcome of the item.
    pub(super) fn outcome(self) -> Outcome {
        match self {
            Self::TimeUp(limit) => Outcome::Retry(time_up_reason(limit)),
            Self::Silent(limit) => {
                Outcome::Retry(format!("no heartbeat for {} ms (heartbeat-timeout)", limit.as_millis()))
            }
            Self::Cancelled => Outcome::Release,
        }
    }
}

/// What to do with a process that has not ended its item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Send TERM to its group.
    Terminate,
    /// Kill its group.
    Kill,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Working,
    /// The process gets the line `cancel`.
    Cancelled {
        why: EndReason,
        until: Instant,
    },
    /// Its group got TERM.
    Terminated {
        why: EndReason,
        until: Instant,
    },
}

/// The limits of one item.
#[derive(Debug)]
pub(super) struct Limits {
    /// The time limit, and its end.
    total: Option<(Duration, Instant)>,
    /// The time without a heartbeat, and its end.
    silence: Option<(Duration, Instant)>,
    stage: Stage,
}

impl Limits {
    /// Of an item that begins now.
    pub(super) fn new(total: Option<Duration>, silence: Option<Duration>, now: Instant) -> Self {
        let ends = |limit: Option<Duration>| limit.map(|limit| (limit, now + limit));
        Self { total: ends(total), silence: ends(silence), stage: Stage::Working }
    }

    /// The process gave a sign of life.
    pub(super) fn heartbeat(&mut self, now: Instant) {
        if let Some((limit, end)) = &mut self.silence {
            *end = now + *limit;
        }
    }

    /// Why the item has to end, if it has to: then the process gets the line `cancel`.
    pub(super) fn why(&self) -> Option<EndReason> {
        match self.stage {
            Stage::Working => None,
            Stage::Cancelled { why, .. } | Stage::Terminated { why, .. } => Some(why),
        }
    }

    /// The item is cancelled.
    pub(super) fn cancel(&mut self, now: Instant) {
        self.begin_end(EndReason::Cancelled, now);
    }

    fn begin_end(&mut self, why: EndReason, now: Instant) {
        if self.why().is_none() {
            self.stage = Stage::Cancelled { why, until: now + CANCEL_DELAY };
        }
    }

    /// When to call [`due`](Self::due) next.
    pub(super) fn next(&self) -> Option<Instant> {
        match self.stage {
            Stage::Working => {
                let ends = [self.total, self.silence].into_iter().flatten();
                ends.map(|(_, end)| end).min()
            }
            Stage::Cancelled { until, .. } | Stage::Terminated { until, .. } => Some(until),
        }
    }

    /// What is due.
    pub(super) fn due(&mut self, now: Instant) -> Option<Step> {
        match self.stage {
            Stage::Working => {
                match (self.total, self.silence) {
                    (Some((limit, end)), _) if end <= now => self.begin_end(EndReason::TimeUp(limit), now),
                    (_, Some((limit, end))) if end <= now => self.begin_end(EndReason::Silent(limit), now),
                    _ => {}
                }
                None
            }
            Stage::Cancelled { why, until } if until <= now => {
                self.stage = Stage::Terminated { why, until: now + ITEM_TERM_DELAY };
                Some(Step::Terminate)
            }
            Stage::Terminated { until, .. } if until <= now => Some(Step::Kill),
            Stage::Cancelled { .. } | Stage::Terminated { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::ABORT_DELAY;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_time_limit_leads_to_a_kill_in_steps() {
        let now = Instant::now();
        let mut limits = Limits::new(Some(5 * SECOND), None, now);
        assert_eq!((limits.next(), limits.due(now), limits.why()), (Some(now + 5 * SECOND), None, None));
        assert_eq!(limits.due(now + 5 * SECOND), None);
        limits.cancel(now + 5 * SECOND);
        assert_eq!(limits.why(), Some(EndReason::TimeUp(5 * SECOND)), "the first reason stands");
        let cancelled = limits.next().unwrap();
        assert_eq!((limits.due(now + 5 * SECOND), limits.due(cancelled)), (None, Some(Step::Terminate)));
        let terminated = limits.next().unwrap();
        assert_eq!((limits.due(cancelled), limits.due(terminated)), (None, Some(Step::Kill)));
    }

    #[test]
    fn heartbeats_extend_the_silence_and_not_the_time_limit() {
        let now = Instant::now();
        let mut limits = Limits::new(Some(5 * SECOND), Some(2 * SECOND), now);
        assert_eq!(limits.next(), Some(now + 2 * SECOND));
        limits.heartbeat(now + SECOND);
        assert_eq!((limits.next(), limits.due(now + 2 * SECOND)), (Some(now + 3 * SECOND), None));
        limits.heartbeat(now + 4 * SECOND);
        assert_eq!(limits.next(), Some(now + 5 * SECOND));
        let mut silent = Limits::new(None, Some(2 * SECOND), now);
        assert_eq!(silent.due(now + 2 * SECOND), None);
        assert_eq!(silent.why(), Some(EndReason::Silent(2 * SECOND)));
    }

    #[test]
    fn a_cancelled_item_is_killed_before_its_call_is_dropped() {
        let now = Instant::now();
        let mut limits = Limits::new(None, None, now);
        assert_eq!(limits.next(), None);
        limits.cancel(now);
        limits.due(limits.next().unwrap());
        let killed = limits.next().unwrap();
        assert!(killed < now + ABORT_DELAY);
        assert_eq!((limits.due(killed), limits.why()), (Some(Step::Kill), Some(EndReason::Cancelled)));
    }
}
