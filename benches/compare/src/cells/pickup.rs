//! One item at a time to a worker that waits.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::{SETTLE_LIMIT, WAIT, microseconds_between};
use crate::cell::PICKUP_EVERY_MS;
use crate::error::Error;
use crate::outcome::{Outcome, microseconds};
use crate::peers::{Consumer, Peer};
use crate::tally::{self, Tally};

/// Latency from the push call to the handler's start.
pub fn run(peer: &dyn Peer, count: u64) -> Result<Outcome, Error> {
    let every = Duration::from_millis(PICKUP_EVERY_MS);
    let mut producer = peer.address().producer(true)?;
    let consumer = peer.address().consumer(0, true)?;
    let tally = Tally::new(count);
    let mut latency = microseconds();
    thread::scope(|scope| {
        let (report, reports) = mpsc::channel();
        let over = Instant::now() + every * u32::try_from(count).unwrap_or(u32::MAX) + SETTLE_LIMIT;
        let tally = &tally;
        let worker = scope.spawn(move || work(consumer, count, over, &report));
        let mut calls = Vec::new();
        let mut payload = tally::payloads(0, 1);
        for number in 0..count {
            thread::sleep(every);
            tally::renumber(&mut payload, number);
            calls.push(Instant::now());
            producer.push(&payload)?;
        }
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        for (number, started) in reports {
            tally.saw(number)?;
            let called = usize::try_from(number).expect("the tally knows it");
            latency.saturating_record(microseconds_between(calls[called], started));
        }
        Ok::<_, Error>(())
    })?;
    let outcome = Outcome { lost: tally.lost(), repeated: tally.repeated(), ..Outcome::default() };
    Ok(outcome.with_latency("start", &latency))
}

fn work(
    mut consumer: Box<dyn Consumer>,
    count: u64,
    over: Instant,
    report: &mpsc::Sender<(u64, Instant)>,
) -> Result<(), Error> {
    let mut numbers = Vec::new();
    let mut handled = 0;
    while handled < count && Instant::now() < over {
        numbers.clear();
        consumer.take(1, Some(WAIT), &mut numbers)?;
        let started = Instant::now();
        for number in &numbers {
            handled += 1;
            // The other end is there as long as this thread.
            let _ = report.send((*number, started));
        }
        consumer.finish()?;
    }
    Ok(())
}
