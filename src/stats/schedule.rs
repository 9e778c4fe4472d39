//! When the stats poller reads, and which queues. Pure.
//!
//! A round reads queues every five seconds, twice a second while somebody views the status, and at once when
//! somebody asks. What that costs the database is bounded: reading one queue takes at most 1/20 of the
//! time, and reading all queues that are quick to read takes at most 1/20 of the time together. So a
//! queue that takes long is read rarely, and of very many queues each round reads those whose figures are
//! oldest. The tests measure both.

use std::time::{Duration, Instant};

/// The time from one round to the next.
pub(super) const PERIOD: Duration = Duration::from_secs(5);

/// The same while somebody views the status.
pub(super) const VIEWED_PERIOD: Duration = Duration::from_millis(500);

/// Reading takes at most one part in this many of the time.
const SHARE: u32 = 20;

/// A request waits for a queue that may be read again within this time, and not for others.
const REQUEST_WAIT: Duration = Duration::from_millis(400);

/// When something was read, and how long that took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub(super) began: Instant,
    pub(super) took: Duration,
}

impl Reading {
    /// From when on it may be read again, so that reading keeps its share of the time.
    fn rested(&self) -> Instant {
        self.began + self.took + self.took.saturating_mul(SHARE)
    }
}

/// Of these queues, the ones to read now: those whose figures are oldest, as many as this period's share of
/// the time allows. One queue may take longer than that; it rests longer, too.
pub(super) fn due<N>(
    now: Instant,
    period: Duration,
    queues: impl Iterator<Item = (N, Option<Reading>)>,
) -> Vec<N> {
    let is_rested = |reading: &Option<Reading>| reading.is_none_or(|reading| reading.rested() <= now);
    let mut queues: Vec<_> = queues.filter(|(_, reading)| is_rested(reading)).collect();
    queues.sort_by_key(|(_, reading)| reading.map(|reading| reading.began));
    let mut left = Some(period / SHARE);
    let fits = queues.into_iter().take_while(|(_, reading)| {
        let fits = left.is_some();
        let took = reading.map_or(Duration::ZERO, |reading| reading.took);
        left = left.and_then(|left| left.checked_sub(took));
        fits
    });
    fits.map(|(name, _)| name).collect()
}

/// When the next round begins. `last` is the round before, `requested` the time of the first request that
/// it has not answered, and `queues` what was read of each queue.
pub(super) fn next_round(
    period: Duration,
    last: Reading,
    requested: Option<Instant>,
    queues: impl Iterator<Item = Reading>,
) -> Instant {
    let Some(requested) = requested else { return last.began + period.max(last.took) };
    // A queue that takes long rests by itself, and does not delay the others.
    let rested = Reading { took: last.took.min(period / SHARE), ..last }.rested();
    let awaited = queues.map(|queue| queue.rested()).filter(|rested| *rested <= requested + REQUEST_WAIT);
    awaited.fold(rested, Instant::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    /// Polls queues for a minute, with a request every 50 ms or none. `queues` is how long reading each takes.
    /// Returns the part of the time that reading took, and the age of the oldest figures in the end.
    fn polled(period: Duration, queues: &[Duration], requests: bool) -> (f64, Duration) {
        let start = Instant::now();
        let (mut now, mut reading) = (start, Duration::ZERO);
        let mut readings: Vec<_> = queues.iter().map(|took| Reading { began: start, took: *took }).collect();
        let mut last = Reading { began: start, took: Duration::ZERO };
        let mut requested = requests.then_some(start);
        while now < start + MINUTE {
            let next = next_round(period, last, requested, readings.iter().copied());
            now = now.max(next);
            last = Reading { began: now, took: Duration::ZERO };
            for queue in due(now, period, readings.clone().into_iter().map(Some).enumerate()) {
                readings[queue] = Reading { began: now, took: queues[queue] };
                now += queues[queue];
                last.took += queues[queue];
            }
            reading += last.took;
            if requests {
                now += Duration::from_millis(50);
                requested = Some(now);
            }
        }
        let oldest = readings.iter().map(|queue| now - queue.began).max().unwrap();
        (reading.as_secs_f64() / MINUTE.as_secs_f64(), oldest)
    }

    #[test]
    fn polling_uses_a_bounded_share_of_time() {
        let (ms, us) = (Duration::from_millis, Duration::from_micros);
        for (period, requests) in
            [(PERIOD, false), (VIEWED_PERIOD, false), (PERIOD, true), (VIEWED_PERIOD, true)]
        {
            let share = |queues: &[Duration]| polled(period, queues, requests).0;
            for queues in [vec![ms(400)], vec![ms(1)], vec![us(200); 1_000], vec![us(200); 10_000]] {
                let part = share(&queues);
                assert!(part <= 0.055, "{part} for {} queues of {:?}", queues.len(), queues[0]);
            }
        }
    }

    #[test]
    fn a_slow_queue_does_not_delay_statistics_of_others() {
        let queues = [Duration::from_secs(8), Duration::from_millis(1), Duration::from_millis(1)];
        let (_, oldest) = polled(PERIOD, &queues[1..], false);
        assert!(oldest <= PERIOD, "{oldest:?}");
        let start = Instant::now();
        let readings = queues.map(|took| Some(Reading { began: start, took }));
        let next = start + PERIOD;
        assert_eq!(due(next, PERIOD, readings.into_iter().enumerate()), [1, 2]);
        let rested = start + Duration::from_secs(8 * 21);
        assert_eq!(due(rested, PERIOD, readings.into_iter().enumerate())[0], 0);
    }

    #[test]
    fn a_queue_never_polled_is_polled_first() {
        let read = Reading { began: Instant::now(), took: Duration::from_secs(1) };
        let queues = [("read", Some(read)), ("new", None)];
        assert_eq!(due(read.rested(), PERIOD, queues.into_iter()), ["new", "read"]);
    }

    #[test]
    fn a_request_waits_for_quick_queues_and_not_for_slow_ones() {
        let (now, ms) = (Instant::now(), Duration::from_millis);
        let last = Reading { began: now, took: ms(1) };
        let next = |queues: &[Duration]| {
            let queues = queues.iter().map(|took| Reading { began: now, took: *took });
            next_round(PERIOD, last, Some(now), queues) - now
        };
        assert_eq!(next(&[]), ms(21));
        assert_eq!(next(&[ms(2), ms(10)]), ms(210));
        assert_eq!(next(&[ms(2), ms(1_000)]), ms(42));
        assert_eq!(next_round(PERIOD, last, None, std::iter::empty()) - now, PERIOD);
    }
}
