//! When a queue is looked at next. Pure.

use std::time::{Duration, Instant};

/// How often, while nobody looks at the status.
const ALONE: Duration = Duration::from_secs(5);

/// How often while somebody does, if something goes on in the queue. The page follows pushes within a second, of which half is the feed's.
const BUSY: Duration = Duration::from_millis(250);

/// The same if nothing does: first...
const QUIET: Duration = Duration::from_millis(500);

/// ...and in the end. Other processes may finish items, which no watch tells.
const QUIETEST: Duration = Duration::from_secs(2);

/// A look that takes long is rare: looks are no more than one part in so many of the time.
const SHARE: u32 = 20;

/// How long the looks for a question may take together before others have their share of the time.
const FOR_A_QUESTION: Duration = Duration::from_millis(10);

/// A question waits for the looks at all queues if they keep their share of the time within this. Where there are more queues, each
/// question is for some of them.
const WAIT: Duration = Duration::from_millis(500);

/// Where there are many queues they share so many looks: one in so long while nobody looks at the status...
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

    /// Whether a look at it began at this time or later.
    pub(super) fn was_looked_at_since(&self, since: Instant) -> bool {
        self.last.is_some_and(|(last, took)| last.checked_sub(took).is_some_and(|began| began >= since))
    }

    /// From when on it may be looked at for somebody who asks, so that looks keep their share of the time; none: at once.
    fn rested(&self) -> Option<Instant> {
        self.last.map(|(last, took)| last + took.saturating_mul(SHARE))
    }
}

/// Which queues are looked at because somebody asks.
#[derive(Debug, Default)]
pub(super) struct Questions {
    /// Until then looks for questions have had their share of the time.
    rest: Option<Instant>,
}

impl Questions {
    /// Of these queues those to look at now: the ones that wait longest first, no more than fit into the time for a question.
    pub(super) fn due<'a, N>(&self, now: Instant, paces: impl Iterator<Item = (N, &'a Pace)>) -> Vec<N> {
        if self.rest.is_some_and(|rest| now < rest) {
            return Vec::new();
        }
        let mut may: Vec<_> =
            paces.filter(|(_, pace)| pace.rested().is_none_or(|rested| now >= rested)).collect();
        may.sort_by_key(|(_, pace)| pace.last.map(|(last, _)| last));
        let mut left = Some(FOR_A_QUESTION);
        let fits = may.into_iter().take_while(|(_, pace)| {
            // The first fits however long it takes: it has rested for that.
            let fits = left.is_some();
            let took = pace.last.map_or(Duration::ZERO, |(_, took)| took);
            left = left.and_then(|left| left.checked_sub(took));
            fits
        });
        fits.map(|(name, _)| name).collect()
    }

    /// When the next of these queues may be looked at, if a question is to wait for all of them; none if it is not.
    pub(super) fn next<'a>(&self, paces: impl Iterator<Item = &'a Pace> + Clone) -> Option<Instant> {
        let took: Duration = paces.clone().filter_map(|pace| pace.last).map(|(_, took)| took).sum();
        if took.saturating_mul(SHARE) > WAIT {
            return None;
        }
        let rested = paces.map(Pace::rested).min()?;
        Some(rested.max(self.rest).unwrap_or_else(Instant::now))
    }

    /// Looks for a question took so long.
    pub(super) fn looked(&mut self, now: Instant, took: Duration) {
        self.rest = Some(now + took.saturating_mul(SHARE));
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

    /// Asks every 50 ms for a minute. Returns the part of the time that looks took, and the oldest figures at the end.
    fn asked(mut paces: Vec<Pace>, look: Duration) -> (f64, Duration) {
        let start = Instant::now();
        let (mut now, mut busy) = (start, Duration::ZERO);
        let mut questions = Questions::default();
        paces.iter_mut().for_each(|pace| pace.looked(start, look, false));
        while now < start + Duration::from_secs(60) {
            let due = questions.due(now, paces.iter().enumerate());
            let took = look * u32::try_from(due.len()).unwrap();
            for queue in due {
                paces[queue].looked(now, look, true);
            }
            if took > Duration::ZERO {
                questions.looked(now, took);
            }
            (busy, now) = (busy + took, now + took + Duration::from_millis(50));
        }
        let oldest = paces.iter().filter_map(|pace| pace.last).map(|(last, _)| now - last).max().unwrap();
        (busy.as_secs_f64() / 60.0, oldest)
    }

    #[test]
    fn looks_keep_their_share_however_often_somebody_asks() {
        let share = 1.0 / f64::from(SHARE);
        // A long queue whose keys are all read.
        let (busy, _) = asked(vec![Pace::default()], Duration::from_millis(400));
        assert!(busy <= share + 0.01, "{busy}");
        // Many queues, of which each look is quick.
        let many = (0..1_000).map(|_| Pace::default()).collect();
        let (busy, oldest) = asked(many, Duration::from_micros(200));
        assert!(busy <= share + 0.01 && oldest < Duration::from_secs(10), "{busy}, {oldest:?}");
        // A quick one stays fresh.
        let (busy, oldest) = asked(vec![Pace::default()], Duration::from_millis(1));
        assert!(busy < 0.03 && oldest < Duration::from_millis(100), "{busy}, {oldest:?}");
    }

    #[test]
    fn a_question_waits_for_a_few_queues_and_not_for_many() {
        let (now, ms) = (Instant::now(), Duration::from_millis);
        let of = |queues: usize, took: Duration| -> Vec<Pace> {
            let mut paces: Vec<_> = (0..queues).map(|_| Pace::default()).collect();
            paces.iter_mut().for_each(|pace| pace.looked(now, took, false));
            paces
        };
        let next = |paces: &[Pace], questions: &Questions| questions.next(paces.iter());
        let mut questions = Questions::default();
        assert_eq!(next(&of(10, ms(1)), &questions), Some(now + ms(20)));
        questions.looked(now, ms(2));
        assert_eq!(next(&of(10, ms(1)), &questions), Some(now + ms(40)));
        assert_eq!(next(&[], &questions), None);
        assert_eq!(next(&of(1_000, ms(1)), &questions), None);
        assert_eq!(next(&of(1, ms(400)), &questions), None);
        let looked = &of(1, ms(1))[0];
        assert!(looked.was_looked_at_since(now - ms(1)) && !looked.was_looked_at_since(now));
        assert!(!Pace::default().was_looked_at_since(now));
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
