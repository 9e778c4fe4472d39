//! A queue that is full from the start, processed.

use std::thread;
use std::time::Instant;

use super::all;
use crate::error::Error;
use crate::outcome::{Outcome, PER_SECOND, as_f64};
use crate::peers::{Consumer, Peer};
use crate::tally::{self, Tally};

/// Items in a push while the queue is filled.
const FILL: u64 = 1_000;

/// Finished items a second, from the first take to when all are finished.
pub fn run(peer: &dyn Peer, workers: u32, k: u32, items: u64) -> Result<Outcome, Error> {
    fill(peer, items)?;
    let consumers = (0..workers).map(|worker| peer.address().consumer(worker, false));
    let consumers = consumers.collect::<Result<Vec<_>, _>>()?;
    let tally = Tally::new(items);
    let k = usize::try_from(k).expect("a u32 fits");
    let begin = Instant::now();
    let finished = thread::scope(|scope| {
        let tally = &tally;
        all(consumers.into_iter().map(|consumer| scope.spawn(move || work(consumer, k, tally))).collect())
    })?;
    let elapsed = begin.elapsed().as_secs_f64();
    let finished: u64 = finished.iter().sum();
    let outcome = Outcome { lost: tally.lost(), repeated: tally.repeated(), ..Outcome::default() };
    Ok(outcome.with(PER_SECOND, as_f64(finished) / elapsed))
}

fn fill(peer: &dyn Peer, items: u64) -> Result<(), Error> {
    let mut producer = peer.address().producer(false)?;
    for first in (0..items).step_by(usize::try_from(FILL).expect("it is small")) {
        let count = usize::try_from(FILL.min(items - first)).expect("it is small");
        producer.push(&tally::payloads(first, count))?;
    }
    Ok(())
}

/// Takes, handles and finishes until there is nothing to take: nothing comes back in this cell.
fn work(mut consumer: Box<dyn Consumer>, k: usize, tally: &Tally) -> Result<u64, Error> {
    let mut finished = 0;
    let mut numbers = Vec::with_capacity(k);
    loop {
        numbers.clear();
        consumer.take(k, None, &mut numbers)?;
        if numbers.is_empty() {
            return Ok(finished);
        }
        for number in &numbers {
            tally.saw(*number)?;
        }
        consumer.finish()?;
        finished += u64::try_from(numbers.len()).expect("a usize fits");
    }
}
