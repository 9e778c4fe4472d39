//! How often consumers may fail: Erlang's restart intensity.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// The allowed restarts in a sliding window of time.
#[derive(Debug)]
pub(super) struct RestartLimiter {
    restarts: usize,
    within: Duration,
    recent: VecDeque<Instant>,
}

impl RestartLimiter {
    pub(super) fn new(restarts: usize, within: Duration) -> Self {
        Self { restarts, within, recent: VecDeque::new() }
    }

    /// Counts a failure at `now`. False if it exceeds the limit.
    pub(super) fn allows(&mut self, now: Instant) -> bool {
        while self.recent.front().is_some_and(|then| now.duration_since(*then) >= self.within) {
            self.recent.pop_front();
        }
        if self.recent.len() >= self.restarts {
            return false;
        }
        self.recent.push_back(now);
        true
    }

    /// The limit, for messages.
    pub(super) fn limit(&self) -> (usize, Duration) {
        (self.restarts, self.within)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_forgiven_after_a_while_and_not_before() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut restart_limiter = RestartLimiter::new(2, Duration::from_secs(30));
        assert!(restart_limiter.allows(at(0)));
        assert!(restart_limiter.allows(at(10)));
        assert!(!restart_limiter.allows(at(29)));
        assert!(restart_limiter.allows(at(30)));
        assert!(!restart_limiter.allows(at(39)));
        assert!(restart_limiter.allows(at(40)));
    }
}
