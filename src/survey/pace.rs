//! When a queue is looked at next. Pure.

use std::time::{Duration, Instant};

/// How often, while nobody looks at the board.
const ALONE: Duration = Duration::from_secs(5);

/// How often while somebody does, if something goes on in the queue. The page follows pushes within a second, of which half is the feed's.
const BUSY: Duration = Duration::from_millis(250);

/// The same if nothing does: first...
const QUIET: Duration = Duration::from_millis(500);

/// ...and in the end. Other processes may finish items, which no watch tells.
const QUIETEST: Duration = Duration::from_secs(2);

/// A look that takes long is rare: looks are no more than one part in so many of the time.
const SHARE: u32 = 20;

/// Where there are many queues they share so many looks: one in so long while nobody looks at the board...
const EACH_ALONE: Duration = Duration::from_millis(100);

/// ...and while somebody does, for queues in which nothing goes on.
const EACH_QUIET: Duration = Duration::from_millis(10);

/// One queue's.
#[derive(Debug, Default)]
pub(super) struct Pace {
    last: Option<(Instant, Duration)>,
    quiet: u32,
    stirred: bool,
}

impl Pace {
    /// Something went on in the queue.
    pub(super) fn stir(&mut self) {
        self.stirred = true;
    }

    /// It was looked at, which took so long; it had changed or not.
    pub(super) fn looked(&mut self, now: Instant, took: Duration, changed: bool) {
        self.last = Some((now, took));
        self.stirred = false;
        self.quiet = if changed { 0 } else { self.quiet.saturating_add(1) };
    }

    /// When it is to be looked at, one of so many queues; none: at once, for the first time.
    pub(super) fn due(&self, listened: bool, queues: u32) -> Option<Instant> {
        let (last, took) = self.last?;
        let pause = match (listened, self.stirred) {
            (false, _) => ALONE.max(EACH_ALONE.saturating_mul(queues)),
            (true, true) => BUSY,
            (true, false) => {
                let quiet = QUIET.saturating_mul(1 << self.quiet.min(8)).min(QUIETEST);
                quiet.max(EACH_QUIET.saturating_mul(queues))
            }
        };
        Some(last + pause.max(took.saturating_mul(SHARE)))
    }

    /// How long ago it was looked at.
    pub(super) fn age(&self, now: Instant) -> Option<Duration> {
        self.last.map(|(last, _)| now.saturating_duration_since(last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pauses(pace: &Pace, last: Instant) -> [u128; 2] {
        [false, true].map(|listened| (pace.due(listened, 1).unwrap() - last).as_millis())
    }

    #[test]
    fn it_is_looked_at_more_often_while_something_goes_on_and_somebody_looks() {
        let now = Instant::now();
        let mut pace = Pace::default();
        assert_eq!(pace.due(false, 1), None);
        let quick = Duration::from_millis(1);
        let mut seen = Vec::new();
        for changed in [true, false, false, false] {
            pace.looked(now, quick, changed);
            seen.push(pauses(&pace, now));
        }
        assert_eq!(seen, [[5_000, 500], [5_000, 1_000], [5_000, 2_000], [5_000, 2_000]]);
        pace.stir();
        assert_eq!(pauses(&pace, now), [5_000, 250]);
    }

    #[test]
    fn a_thousand_queues_share_ten_looks_a_second_and_a_busy_one_of_them_is_followed() {
        let now = Instant::now();
        let mut pace = Pace::default();
        pace.looked(now, Duration::from_millis(1), false);
        let pauses = |pace: &Pace| [false, true].map(|it| (pace.due(it, 1_000).unwrap() - now).as_secs_f64());
        assert_eq!(pauses(&pace), [100.0, 10.0]);
        pace.stir();
        assert_eq!(pauses(&pace), [100.0, 0.25]);
    }

    #[test]
    fn what_takes_long_is_rare() {
        let now = Instant::now();
        let mut pace = Pace::default();
        pace.looked(now, Duration::from_millis(400), true);
        pace.stir();
        assert_eq!(pauses(&pace, now), [8_000, 8_000]);
    }
}
