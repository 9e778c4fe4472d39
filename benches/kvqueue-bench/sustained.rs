//! `kvqueue bench sustained`: producers and consumers together, at a fixed rate.

use std::time::{Duration, Instant};

use clap::value_parser;
use tokio::time::{sleep, timeout};

use super::{
    Bench, UsageError,
    consumers::Consumers,
    finished::{Watcher, times},
    keys::Keys,
    options::{Common, Work},
    pacer::{self, Schedule},
    producers::Target,
    report::Report,
    tally::{MAX_ITEMS, Tally},
};

/// How long consumers have from their start to the first push, to be idle by then.
const SETTLE: Duration = Duration::from_millis(200);

/// How long consumers have for what is left after the last push.
const REST: Duration = Duration::from_secs(10);

/// Items are pushed at fixed times while a daemon handles them
///
/// Whatever the answers, each item is pushed at its time, one a transaction, and its latencies count from that: to the start of its
/// handler (`latency_us`), to the answer of its push (`push_us`), and to its durable end (`ack_us`), as a watch on the queue's counter of
/// finished items tells it. With at-most-once delivery and the baseline an item's durable end is before its handler's start.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    work: Work,
    /// Items a second
    #[arg(long, value_name = "R", default_value_t = 1_000, value_parser = value_parser!(u32).range(1..=200_000))]
    rate: u32,
    /// The most pushes at the same time
    #[arg(long, value_name = "P", default_value_t = 1_000, value_parser = value_parser!(u16).range(1..=10_000))]
    producers: u16,
}

impl Args {
    fn items(&self, common: &Common) -> u64 {
        ((f64::from(self.rate) * common.time().as_secs_f64()).round() as u64).max(1)
    }

    pub(super) fn check(&self, common: &Common) -> Result<(), UsageError> {
        if self.items(common) <= MAX_ITEMS {
            return Ok(());
        }
        let (rate, seconds) = (self.rate, common.time().as_secs_f64());
        Err(UsageError(format!(
            "--rate {rate} for --seconds {seconds} is more than {MAX_ITEMS} items; lower one of them"
        )))
    }

    pub(super) async fn measure(&self, bench: &Bench) -> anyhow::Result<Report> {
        let target = bench.target("", Tally::with_times())?;
        let (place, items) = (bench.place(&target), self.items(&bench.common));
        bench.say(format!("sustained: {} items a second", self.rate));
        let watcher = self.work.acknowledges().then(|| {
            Watcher::start(target.db.clone(), Keys::new(&place.prefix, &target.queue), target.tally.clone())
        });
        let consumers = Consumers::start(&place, &self.work, &target.tally, false)?;
        sleep(SETTLE).await;
        let every = Duration::from_secs_f64(1.0 / f64::from(self.rate));
        let at_once = usize::from(self.producers);
        let schedule = Schedule { begin: Instant::now(), every, items, at_once };
        let answers = pacer::push(&target, &schedule).await?;
        // What takes longer is still in the queue, and counted there.
        let _ = timeout(REST, target.tally.reaches(items)).await;
        let (given_up, conflicts) = (Instant::now(), consumers.conflicts_per_100_takes());
        consumers.stop().await?;
        let seen = match watcher {
            Some(watcher) => Some(watcher.stop().await?),
            None => None,
        };
        let left = bench.walk(&target).await?;
        let report = bench
            .report("sustained")
            .work(&self.work)
            .set("rate", self.rate)
            .set("producers", self.producers);
        let starts = starts(&target, items, given_up);
        let last = starts.last().map_or(0, |(_, at)| *at);
        let took = Duration::from_nanos(last.saturating_sub(target.tally.nanos(schedule.begin)));
        let acks = seen.map(|seen| acks(&starts, &seen, &schedule, &target, given_up));
        Ok(report
            .rate(items - left.min(items), took)
            .latency("latency_us", starts.iter().map(|(number, at)| since(&schedule, &target, *number, *at)))
            .latency("ack_us", acks.into_iter().flatten())
            .latency("push_us", answers)
            .set("unfinished", left)
            .set("conflicts_per_100_takes", conflicts)
            .faults(target.tally.faults()))
    }
}

/// Each item's number, and when its handler started, in the order of that. One that was not handled counts until it was given up.
fn starts(target: &Target, items: u64, given_up: Instant) -> Vec<(u64, u64)> {
    let given_up = target.tally.nanos(given_up);
    let at = |number| target.tally.handled_at(number).unwrap_or(given_up);
    let mut starts: Vec<_> = (0..items).map(|number| (number, at(number))).collect();
    starts.sort_by_key(|(number, at)| (*at, *number));
    starts
}

/// From an item's time to a time of the tally's, in nanoseconds.
fn since(schedule: &Schedule, target: &Target, number: u64, at: u64) -> u64 {
    at.saturating_sub(target.tally.nanos(schedule.time(number)))
}

/// How long each item took to its durable end.
fn acks(
    starts: &[(u64, u64)],
    seen: &[(u64, u64)],
    schedule: &Schedule,
    target: &Target,
    given_up: Instant,
) -> Vec<u64> {
    let given_up = target.tally.nanos(given_up);
    let ends = times(seen, starts.len()).map(|at| at.unwrap_or(given_up));
    starts.iter().zip(ends).map(|((number, _), at)| since(schedule, target, *number, at)).collect()
}
