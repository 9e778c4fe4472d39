//! `kvqueue bench pickup`: one item at a time, to a daemon that has nothing else to do.

use std::{
    thread,
    time::{Duration, Instant},
};

use clap::value_parser;
use tokio::{
    runtime::Handle,
    task::spawn_blocking,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    Bench,
    consumers::Consumers,
    ground::session,
    options::{Work, pause},
    pacer::nanos_between,
    producers::Target,
    report::Report,
    tally::{Tally, payload},
};

/// How long consumers have from their start to the first push, to be idle by then.
const SETTLE: Duration = Duration::from_millis(300);

/// How long the last items may take.
const REST: Duration = Duration::from_secs(10);

/// The longest sleep before one looks whether the cell was interrupted.
const NAP: Duration = Duration::from_millis(50);

/// One item at a time to an idle daemon: from the push call to the handler's start
///
/// Where a push answers only after the next one's time, that one's latency counts from its time and not from its call.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    work: Work,
    /// The time from one push to the next
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = pause)]
    every: Duration,
    /// The number of items [default: as many as there is time for in --seconds]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=100_000))]
    count: Option<u32>,
}

/// What the pusher did.
struct Pushes {
    /// What each item's latency counts from.
    froms: Vec<Instant>,
    /// How long each call took, in nanoseconds.
    nanos: Vec<u64>,
    time: Duration,
}

impl Args {
    fn count(&self, bench: &Bench) -> u32 {
        let fit = bench.common.time().as_secs_f64() / self.every.as_secs_f64();
        self.count.unwrap_or((fit as u32).max(1))
    }

    pub(super) async fn measure(&self, bench: &Bench) -> anyhow::Result<Report> {
        let target = bench.target("", Tally::with_times())?;
        let consumers = Consumers::start(&bench.place(&target), &self.work, &target.tally, false)?;
        sleep(SETTLE).await;
        let count = self.count(bench);
        bench.say(format!("pickup: {count} items, one every {} ms", self.every.as_millis()));
        let stop = CancellationToken::new();
        let _stop_when_dropped = stop.clone().drop_guard();
        let (own, every) = (target.clone(), self.every);
        let pushes = spawn_blocking(move || push(&own, every, count, &stop)).await??;
        // What takes longer is still in the queue, and counted there.
        let _ = timeout(REST, target.tally.reaches(u64::from(count))).await;
        let (given_up, conflicts) = (target.tally.nanos(Instant::now()), consumers.conflicts_per_100_takes());
        consumers.stop().await?;
        let left = bench.walk(&target).await?;
        let latencies = pushes.froms.iter().zip(0..).map(|(from, number)| {
            let at = target.tally.handled_at(number).unwrap_or(given_up);
            at.saturating_sub(target.tally.nanos(*from))
        });
        let report = bench.report("pickup").work(&self.work).set("every_ms", every.as_millis() as u64);
        Ok(report
            .rate(u64::from(count) - left, pushes.time)
            .latency("latency_us", latencies)
            .latency("push_us", pushes.nanos)
            .set("conflicts_per_100_takes", conflicts)
            .faults(target.tally.faults()))
    }
}

/// Pushes from this thread, without a timer or another thread in between.
fn push(target: &Target, every: Duration, count: u32, stop: &CancellationToken) -> anyhow::Result<Pushes> {
    let (runtime, begun) = (Handle::current(), Instant::now());
    let mut session = session(&target.queue);
    let mut pushes = Pushes { froms: Vec::new(), nanos: Vec::new(), time: Duration::ZERO };
    for n in 0..count {
        let time = begun + every * n;
        let is_late = n > 0 && Instant::now() > time;
        while Instant::now() < time {
            anyhow::ensure!(!stop.is_cancelled(), "interrupted");
            thread::sleep(time.saturating_duration_since(Instant::now()).min(NAP));
        }
        let Some(number) = target.tally.number(1) else { break };
        let payloads = [payload(number, target.payload)];
        let called = Instant::now();
        pushes.froms.push(if is_late { time } else { called });
        runtime.block_on(session.push(&target.db, &payloads))?;
        pushes.nanos.push(nanos_between(called, Instant::now()));
        target.tally.pushed(number, 1);
    }
    pushes.time = begun.elapsed();
    Ok(pushes)
}
