//! `kvqueue bench flood`: producers at full speed, and consumers at the same time.

use std::time::{Duration, Instant};

use clap::value_parser;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{
    Bench, UsageError,
    consumers::Consumers,
    options::{Common, Work},
    producers::{produce, produce_like_baseline, produce_shared},
    report::{Report, rate},
    tally::Tally,
};

/// How long consumers have from their start to the first push, to be idle by then.
const SETTLE: Duration = Duration::from_millis(200);

/// Producers at full speed while a daemon processes the items
///
/// `per_second` and `items` count the items that were handled within the time, `pushes_per_second` and `pushes` the pushed ones, and `left` the
/// items that no consumer had fetched at the end.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    work: Work,
    /// The number of producers
    #[arg(long, value_name = "P", default_value_t = 32, value_parser = value_parser!(u32).range(1..=10_000))]
    producers: u32,
    /// Items of a push
    #[arg(long, value_name = "B", default_value_t = 1, value_parser = value_parser!(u32).range(1..=10_000))]
    batch: u32,
    /// One producer for all of them, instead of a session for each: pushes at the same time share transactions
    #[arg(long, conflicts_with = "batch")]
    shared: bool,
}

impl Args {
    pub(super) fn check(&self, common: &Common) -> Result<(), UsageError> {
        common.check_batch(self.batch)
    }

    pub(super) async fn measure(&self, bench: &Bench) -> anyhow::Result<Report> {
        let target = bench.target("", Tally::new())?;
        let consumers = Consumers::start(&bench.place(&target), &self.work, &target.tally, false)?;
        sleep(SETTLE).await;
        bench.say(format!("flood: {} producers and {} consumers", self.producers, self.work.workers));
        let (stop, begun) = (CancellationToken::new(), Instant::now());
        let timer = async {
            sleep(bench.common.time()).await;
            let popped = (target.tally.count(), begun.elapsed());
            stop.cancel();
            popped
        };
        let producers = async {
            let clients = self.producers as usize;
            match (self.shared, self.work.baseline) {
                (true, _) => produce_shared(&target, clients, stop.clone()).await,
                (_, true) => produce_like_baseline(&target, clients, self.batch, stop.clone()).await,
                _ => produce(&target, clients, self.batch, stop.clone()).await,
            }
        };
        let (pushes, (popped, time)) = tokio::join!(producers, timer);
        let (pushes, conflicts) = (pushes?, consumers.conflicts_per_100_takes());
        consumers.stop().await?;
        let left = bench.walk(&target).await?;
        let report = bench.report("flood").work(&self.work);
        Ok(report
            .set("producers", self.producers)
            .set("batch", self.batch)
            .set("shared", self.shared)
            .rate(popped, time)
            .set("pushes", pushes.items)
            .set("pushes_per_second", rate(pushes.items, pushes.time))
            .set("pops_per_second", rate(popped, time))
            .set("left", left)
            .set("latency_us", serde_json::Value::Null)
            .latency("push_us", pushes.nanos)
            .set("conflicts_per_100_takes", conflicts)
            .faults(target.tally.faults()))
    }
}
