//! `kvqueue bench push`

use clap::value_parser;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{
    Bench, UsageError,
    options::Common,
    producers::{produce, produce_shared},
    report::Report,
    tally::Tally,
};

/// Clients that push one transaction after the other
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The number of clients at the same time, each with a session of its own
    #[arg(long, value_name = "C", default_value_t = 1, value_parser = value_parser!(u32).range(1..=10_000))]
    clients: u32,
    /// Items of a transaction
    #[arg(long, value_name = "B", default_value_t = 1, value_parser = value_parser!(u32).range(1..=10_000))]
    batch: u32,
    /// One producer for all clients, instead of a session for each: pushes at the same time share transactions
    #[arg(long, conflicts_with = "batch")]
    shared: bool,
}

impl Args {
    pub(super) fn check(&self, common: &Common) -> Result<(), UsageError> {
        common.check_batch(self.batch)
    }

    pub(super) async fn measure(&self, bench: &Bench) -> anyhow::Result<Report> {
        let target = bench.target("", Tally::new())?;
        let (clients, stop) = (self.clients as usize, CancellationToken::new());
        let how = match self.shared {
            true => "one producer".to_owned(),
            false => format!("{} items a transaction", self.batch),
        };
        bench.say(format!("push: {clients} clients, {how}"));
        let push = async {
            match self.shared {
                true => produce_shared(&target, clients, stop.clone()).await,
                false => produce(&target, clients, self.batch, stop.clone()).await,
            }
        };
        let (pushes, ()) = tokio::join!(push, async {
            sleep(bench.common.time()).await;
            stop.cancel();
        });
        let pushes = pushes?;
        bench.walk(&target).await?;
        let report = bench.report("push").set("clients", self.clients).set("batch", self.batch);
        Ok(report
            .set("shared", self.shared)
            .rate(pushes.items, pushes.time)
            .latency("latency_us", pushes.nanos)
            .faults(target.tally.faults()))
    }
}
