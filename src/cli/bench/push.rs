//! `kvqueue bench push`

use clap::value_parser;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{Bench, options::Common, producers::produce, report::Report, tally::Tally};
use crate::cli::UsageError;

/// Clients that push one transaction after the other
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// So many clients at the same time, each with a session of its own
    #[arg(long, value_name = "C", default_value_t = 1, value_parser = value_parser!(u32).range(1..=10_000))]
    clients: u32,
    /// Items of a transaction
    #[arg(long, value_name = "B", default_value_t = 1, value_parser = value_parser!(u32).range(1..=10_000))]
    batch: u32,
}

impl Args {
    pub(super) fn check(&self, common: &Common) -> Result<(), UsageError> {
        common.check_batch(self.batch)
    }

    pub(super) async fn measure(&self, bench: &Bench) -> anyhow::Result<Report> {
        let target = bench.target("", Tally::new())?;
        bench.say(format!("push: {} clients, {} items a transaction", self.clients, self.batch));
        let stop = CancellationToken::new();
        let (pushes, ()) =
            tokio::join!(produce(&target, self.clients as usize, self.batch, stop.clone()), async {
                sleep(bench.common.time()).await;
                stop.cancel();
            });
        let pushes = pushes?;
        bench.walk(&target).await?;
        let report = bench.report("push").set("clients", self.clients).set("batch", self.batch);
        Ok(report
            .rate(pushes.items, pushes.time)
            .latency("latency_us", pushes.nanos)
            .faults(target.tally.faults()))
    }
}
