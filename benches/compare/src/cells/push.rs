//! Clients that push as fast as they are acknowledged.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::{all, microseconds_between};
use crate::error::Error;
use crate::outcome::{Outcome, PER_SECOND, as_f64, microseconds};
use crate::peers::Peer;
use crate::tally::{self, Tally};

/// Acknowledged items a second; then the queue is read, and what is not there is lost.
pub fn run(peer: &dyn Peer, clients: u32, batch: u32, seconds: f64) -> Result<Outcome, Error> {
    let producers = (0..clients).map(|_| peer.address().producer(false)).collect::<Result<Vec<_>, _>>()?;
    let next = AtomicU64::new(0);
    let begin = Instant::now();
    let end = begin + Duration::from_secs_f64(seconds);
    let batch_size = usize::try_from(batch).expect("a u32 fits");
    let client = |mut producer: Box<dyn crate::peers::Producer>| {
        let mut latency = microseconds();
        let mut payloads = tally::payloads(0, batch_size);
        while Instant::now() < end {
            tally::renumber(&mut payloads, next.fetch_add(u64::from(batch), Ordering::Relaxed));
            let called = Instant::now();
            producer.push(&payloads)?;
            latency.saturating_record(microseconds_between(called, Instant::now()));
        }
        Ok(latency)
    };
    let latencies = thread::scope(|scope| {
        let client = &client;
        all(producers.into_iter().map(|producer| scope.spawn(move || client(producer))).collect())
    })?;
    let elapsed = begin.elapsed().as_secs_f64();
    let items = next.load(Ordering::Relaxed);
    let mut latency = microseconds();
    for one in &latencies {
        latency.add(one).expect("all have the same bounds");
    }
    let tally = Tally::new(items);
    peer.walk(&mut |payload| tally.saw(tally::number_of(payload)?))?;
    let outcome = Outcome { lost: tally.lost(), repeated: tally.repeated(), ..Outcome::default() };
    Ok(outcome.with(PER_SECOND, as_f64(items) / elapsed).with_latency("call", &latency))
}
