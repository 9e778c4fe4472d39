//! Producers at a fixed rate, whatever the answers, next to workers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::{SETTLE_LIMIT, WAIT, all, microseconds_between};
use crate::cell::{SUSTAINED_EACH, SUSTAINED_K, SUSTAINED_RATE};
use crate::error::Error;
use crate::outcome::{Outcome, PER_SECOND, as_f64, microseconds};
use crate::peers::{Consumer, Peer, Producer};
use crate::tally::{self, Tally};

/// When which item is to be pushed: a producer that is late does not move what follows.
#[derive(Clone, Copy)]
struct Plan {
    begin: Instant,
    items: u64,
}

impl Plan {
    fn due(&self, number: u64) -> Instant {
        self.begin + Duration::from_secs_f64(as_f64(number) / f64::from(SUSTAINED_RATE))
    }
}

/// Latency from when an item was to be pushed to its handler's start, and to its acknowledged end.
pub fn run(peer: &dyn Peer, seconds: f64) -> Result<Outcome, Error> {
    // Positive and small.
    let items = (f64::from(SUSTAINED_RATE) * seconds) as u64;
    let address = peer.address();
    let producers = (0..SUSTAINED_EACH).map(|_| address.producer(true)).collect::<Result<Vec<_>, _>>()?;
    let consumers = (0..SUSTAINED_EACH).map(|worker| address.consumer(worker, true));
    let consumers = consumers.collect::<Result<Vec<_>, _>>()?;
    let (tally, handled) = (Tally::new(items), AtomicU64::new(0));
    let plan = Plan { begin: Instant::now() + Duration::from_millis(100), items };
    let over = plan.due(items) + SETTLE_LIMIT;
    let latencies = thread::scope(|scope| {
        let (tally, handled) = (&tally, &handled);
        let workers: Vec<_> = consumers
            .into_iter()
            .map(|consumer| scope.spawn(move || work(consumer, plan, tally, handled, over)))
            .collect();
        let pushing: Vec<_> = (0..)
            .zip(producers)
            .map(|(nth, producer)| scope.spawn(move || push(producer, plan, nth)))
            .collect();
        let pushed = all(pushing);
        let latencies = all(workers);
        pushed.and(latencies)
    })?;
    let last = latencies.iter().map(|(.., last)| *last).max().unwrap_or(plan.begin);
    let elapsed = last.saturating_duration_since(plan.begin).as_secs_f64();
    let (mut start, mut ack) = (microseconds(), microseconds());
    for (one_start, one_ack, _) in &latencies {
        start.add(one_start).expect("all have the same bounds");
        ack.add(one_ack).expect("all have the same bounds");
    }
    let outcome = Outcome { lost: tally.lost(), repeated: tally.repeated(), ..Outcome::default() };
    let outcome = outcome.with(PER_SECOND, as_f64(handled.load(Ordering::Relaxed)) / elapsed);
    Ok(outcome.with_latency("start", &start).with_latency("ack", &ack))
}

fn push(mut producer: Box<dyn Producer>, plan: Plan, nth: u64) -> Result<(), Error> {
    let mut payload = tally::payloads(0, 1);
    for number in (nth..plan.items).step_by(usize::try_from(SUSTAINED_EACH).expect("it is small")) {
        thread::sleep(plan.due(number).saturating_duration_since(Instant::now()));
        tally::renumber(&mut payload, number);
        producer.push(&payload)?;
    }
    Ok(())
}

/// To the start, to the end, and when the last one ended.
type Latencies = (Histogram<u64>, Histogram<u64>, Instant);

fn work(
    mut consumer: Box<dyn Consumer>,
    plan: Plan,
    tally: &Tally,
    handled: &AtomicU64,
    over: Instant,
) -> Result<Latencies, Error> {
    let (mut start, mut ack) = (microseconds(), microseconds());
    let mut last = plan.begin;
    let k = usize::try_from(SUSTAINED_K).expect("a u32 fits");
    let mut numbers = Vec::with_capacity(k);
    while handled.load(Ordering::Relaxed) < plan.items && Instant::now() < over {
        numbers.clear();
        consumer.take(k, Some(WAIT), &mut numbers)?;
        let started = Instant::now();
        for number in &numbers {
            tally.saw(*number)?;
        }
        consumer.finish()?;
        let finished = Instant::now();
        for number in &numbers {
            start.saturating_record(microseconds_between(plan.due(*number), started));
            ack.saturating_record(microseconds_between(plan.due(*number), finished));
        }
        if !numbers.is_empty() {
            last = finished;
        }
        handled.fetch_add(u64::try_from(numbers.len()).expect("a usize fits"), Ordering::Relaxed);
    }
    Ok((start, ack, last))
}
