//! The statistics of a queue in the last hour.

use std::{
    collections::VecDeque,
    time::{Duration, Instant, SystemTime},
};

use serde::Serialize;

use super::QueueStats;
use crate::base::times::{before, unix_millis};

/// The shortest time between two samples.
const EVERY: Duration = Duration::from_secs(10);

/// How long samples are kept.
const HOUR: Duration = Duration::from_hours(1);

/// The time that rates are measured over, about.
const RATE_OVER: Duration = Duration::from_secs(5);

/// A queue at one moment, with the rates since the sample before.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Sample {
    /// In milliseconds since 1970.
    #[serde(serialize_with = "unix_millis::serialize")]
    pub(crate) at: SystemTime,
    pub(crate) ready: i64,
    pub(crate) running: u64,
    pub(crate) waiting: i64,
    pub(crate) dead: i64,
    pub(crate) done: u64,
    /// Items a second that were pushed.
    pub(crate) in_rate: f64,
    /// Items a second that were finished.
    pub(crate) out_rate: f64,
}

/// Items a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rates {
    pub(super) inward: f64,
    pub(super) outward: f64,
}

/// The statistics at one moment.
#[derive(Clone, Copy, Debug)]
struct Point {
    at: Instant,
    stats: QueueStats,
    /// Items that this daemon had finished.
    finished: u64,
}

impl Sample {
    fn says_the_same(&self, other: &Self) -> bool {
        Self { at: other.at, ..*self } == *other
    }
}

/// The last hour, and the last few seconds more finely.
#[derive(Debug, Default)]
pub(super) struct History {
    /// Of equal samples in a row, only the first and the last are kept.
    samples: VecDeque<Sample>,
    first: Option<Instant>,
    sampled: Option<Point>,
    recent: VecDeque<Point>,
}

impl History {
    /// Adds the statistics of now, by the clocks `at` and `time`, and how
    /// many items this daemon has finished.
    pub(super) fn add(&mut self, at: Instant, time: SystemTime, stats: &QueueStats, finished: u64) {
        let point = Point { at, stats: *stats, finished };
        // By marks on the clock, so that late readings do not make the samples fewer.
        let first = *self.first.get_or_insert(at);
        let mark = |at: Instant| (at - first).as_secs() / EVERY.as_secs();
        if self.sampled.is_none_or(|sampled| mark(sampled.at) < mark(at)) {
            let rates = self.sampled.map_or_else(Rates::default, |sampled| rates(&sampled, &point));
            self.keep(sample(time, stats, rates));
            self.sampled = Some(point);
        }
        // The last that is older stays: rates are over the whole time at least.
        while self.recent.get(1).is_some_and(|earlier| at - earlier.at >= RATE_OVER) {
            self.recent.pop_front();
        }
        self.recent.push_back(point);
    }

    fn keep(&mut self, sample: Sample) {
        let ends = [self.samples.iter().nth_back(1), self.samples.back()];
        if ends.iter().all(|end| end.is_some_and(|end| end.says_the_same(&sample))) {
            self.samples.pop_back();
        }
        self.samples.push_back(sample);
        let begin = before(sample.at, HOUR);
        while let Some(first) = self.samples.front().filter(|first| first.at < begin).copied() {
            self.samples.pop_front();
            // It was so from then on until the next.
            if self.samples.front().is_some_and(|next| next.at > begin && next.says_the_same(&first)) {
                self.samples.push_front(Sample { at: begin, ..first });
            }
        }
    }

    pub(super) fn samples(&self) -> Vec<Sample> {
        self.samples.iter().copied().collect()
    }

    pub(super) fn rates(&self) -> Rates {
        match (self.recent.front(), self.recent.back()) {
            (Some(before), Some(now)) => rates(before, now),
            _ => Rates::default(),
        }
    }
}

fn sample(at: SystemTime, stats: &QueueStats, rates: Rates) -> Sample {
    let QueueStats { ready, running, waiting, dead, done, .. } = *stats;
    Sample { at, ready, running, waiting, dead, done, in_rate: rates.inward, out_rate: rates.outward }
}

/// The inward rate is that of pushes. If producers do not count those, it is the growth of the
/// queue plus what went out. With at-most-once delivery the database does not count finished items,
/// so the outward rate is at least that of this daemon.
fn rates(before: &Point, now: &Point) -> Rates {
    let seconds = (now.at - before.at).as_secs_f64();
    if seconds == 0.0 {
        return Rates::default();
    }
    // Other programs may have written any value into the counters.
    let held = |it: &QueueStats| {
        it.ready.saturating_add_unsigned(it.running).saturating_add(it.waiting).saturating_add(it.dead)
    };
    let done = now.stats.done.saturating_sub(before.stats.done);
    let out = done.max(now.finished.saturating_sub(before.finished));
    let inward = match (before.stats.pushed, now.stats.pushed) {
        (Some(before), Some(now)) => now.saturating_sub(before),
        _ => {
            let more = held(&now.stats).saturating_sub(held(&before.stats));
            more.saturating_add_unsigned(out).max(0).cast_unsigned()
        }
    };
    Rates { inward: inward as f64 / seconds, outward: out as f64 / seconds }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use kvqueue_queue::{from_millis, millis};

    use super::*;

    fn stats(ready: i64, done: u64) -> QueueStats {
        QueueStats { ready, done, ..QueueStats::default() }
    }

    #[test]
    fn rates_cover_the_last_seconds() {
        let (mut history, start) = (History::default(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        history.add(at(0), UNIX_EPOCH, &stats(100, 0), 0);
        assert_eq!(history.rates(), Rates::default());
        // Ten a second come, twenty go.
        for second in 1..=20_u64 {
            let stats = stats(100 - 10 * second.cast_signed() % 100, 20 * second);
            history.add(at(1_000 * second), UNIX_EPOCH, &stats, 0);
        }
        let Rates { outward, .. } = history.rates();
        assert!((outward - 20.0).abs() < 1e-9, "{outward}");
        assert!(history.recent.len() <= 7, "{}", history.recent.len());
    }

    #[test]
    fn inward_rate_is_growth_plus_outward_rate() {
        let at = Instant::now();
        let point =
            |seconds, stats, finished| Point { at: at + Duration::from_secs(seconds), stats, finished };
        let before = point(0, stats(5, 10), 0);
        assert_eq!(rates(&before, &point(2, stats(9, 16), 0)), Rates { inward: 5.0, outward: 3.0 });
        // Taken at most once: nothing in the database says that they are done.
        assert_eq!(rates(&before, &point(2, stats(1, 10), 4)), Rates { inward: 0.0, outward: 2.0 });
        // If producers count, their count is the inward rate.
        let pushed = |stats, pushed| QueueStats { pushed: Some(pushed), ..stats };
        let counted = point(0, pushed(stats(5, 10), 100), 0);
        assert_eq!(
            rates(&counted, &point(2, pushed(stats(1, 10), 106), 0)),
            Rates { inward: 3.0, outward: 0.0 }
        );
        assert_eq!(rates(&counted, &point(2, pushed(stats(0, 0), 0), 0)), Rates::default());
        // The queue was deleted: its counters start again.
        assert_eq!(rates(&before, &point(2, stats(0, 0), 0)), Rates::default());
    }

    #[test]
    fn implausible_counters_do_not_panic() {
        let odd = QueueStats {
            ready: i64::MAX,
            running: u64::MAX,
            waiting: i64::MAX,
            dead: i64::MAX,
            ..stats(0, 0)
        };
        let negative =
            QueueStats { ready: i64::MIN, waiting: i64::MIN, dead: i64::MIN, done: u64::MAX, ..odd };
        let (mut history, start) = (History::default(), Instant::now());
        for (second, stats) in [odd, negative, odd, negative].iter().enumerate() {
            history.add(start + Duration::from_secs(20 * second as u64), UNIX_EPOCH, stats, u64::MAX);
            assert!(history.rates().inward >= 0.0 && history.rates().outward >= 0.0);
        }
    }

    #[test]
    fn history_keeps_an_hour_of_irregular_samples() {
        let (mut history, start) = (History::default(), Instant::now());
        for look in 0..2_000_u64 {
            // Every five seconds, a little late.
            let ms = look * 5_000 + (look * 37) % 90;
            let now = start + Duration::from_millis(ms);
            history.add(now, from_millis(ms), &stats(look.cast_signed(), look), 0);
        }
        let samples = history.samples();
        assert!((358..=361).contains(&samples.len()), "{}", samples.len());
        let hour = millis(samples[samples.len() - 1].at) - millis(samples[0].at);
        assert!((3_580_000..=3_600_000).contains(&hour), "{hour}");
        assert!(samples.windows(2).all(|it| (it[1].out_rate - 0.2).abs() < 0.01), "{:?}", &samples[..3]);
    }

    #[test]
    fn unchanged_samples_are_reduced_to_two() {
        let (mut history, start) = (History::default(), Instant::now());
        let mut look = |second: u64, ready| {
            let at = start + Duration::from_secs(second);
            history.add(at, from_millis(second * 1_000), &stats(ready, 0), 0);
            history.samples().iter().map(|it| (millis(it.at) / 1_000, it.ready)).collect::<Vec<_>>()
        };
        (0..=99).for_each(|ten| drop(look(ten * 10, 1)));
        assert_eq!(look(1_000, 1), [(0, 1), (1_000, 1)]);
        look(1_010, 2);
        // That one came is said of the moment in which it was seen.
        assert_eq!(look(1_020, 2), [(0, 1), (1_000, 1), (1_010, 2), (1_020, 2)]);
        look(1_030, 2);
        assert_eq!(look(1_040, 2), [(0, 1), (1_000, 1), (1_010, 2), (1_020, 2), (1_040, 2)]);
        // The hour goes on; what is in it does not begin late.
        assert_eq!(look(4_000, 2), [(400, 1), (1_000, 1), (1_010, 2), (1_020, 2), (4_000, 2)]);
        assert_eq!(look(4_700, 2), [(1_100, 2), (4_700, 2)]);
        assert_eq!(look(9_999, 2), [(6_399, 2), (9_999, 2)]);
    }
}
