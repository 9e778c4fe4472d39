//! `kvqueue bench burn`: a full queue is worked off.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use clap::value_parser;
use kvqueue_queue::{RetryPolicy, retry};
use tokio::time::{sleep, timeout};

use super::{
    Bench,
    consumers::Consumers,
    helper::Helpers,
    options::{Work, items},
    producers::{Target, fill},
    report::Report,
    tally::Tally,
};
use crate::cli::UsageError;

/// How long a trial is, that finds out how many items are needed.
const TRIAL: Duration = Duration::from_millis(500);

/// Items of a trial.
const TRIAL_ITEMS: u64 = 20_000;

/// The most items that a trial asks for.
const MOST: f64 = 5_000_000.0;

/// How often one looks whether all is settled, once all is handled.
const LOOK: Duration = Duration::from_millis(1);

/// How often one looks whether anything is left to be taken, where other processes take, too.
const RARE_LOOK: Duration = Duration::from_millis(10);

/// Work off a queue that was filled before
///
/// The time is that from the first take to the moment at which every item is finished, durably: nothing is ready, and nothing is leased.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    work: Work,
    /// Items to work off [default: what takes about --seconds, by a short trial]
    #[arg(long, value_name = "N", value_parser = items)]
    items: Option<u64>,
    /// So many processes, each with a daemon of W consumers; this one is the first
    #[arg(long, value_name = "P", default_value_t = 1, value_parser = value_parser!(u16).range(1..=64))]
    processes: u16,
}

impl Args {
    pub(super) fn check(&self) -> Result<(), UsageError> {
        if self.work.baseline && self.processes > 1 {
            let problem = "--baseline runs in one process; leave out --processes, or raise --workers";
            return Err(UsageError(problem.to_owned()));
        }
        Ok(())
    }

    pub(super) async fn measure(&self, bench: &Bench) -> anyhow::Result<Report> {
        let items = match self.items {
            Some(items) => items,
            None => self.trial(bench).await?,
        };
        let target = bench.target("", Tally::new())?;
        bench.say(format!("burn: filling the queue with {items} items"));
        fill(&target, items).await?;
        bench.say(format!("burn: working off {items} items"));
        let mut helpers =
            Helpers::start(self.processes - 1, &bench.place(&target), &self.work, items).await?;
        let mut consumers = Consumers::start(&bench.place(&target), &self.work, &target.tally, true)?;
        helpers.go().await?;
        let ended = self.settled(&target, &mut consumers, items).await?;
        let begun = consumers.begun().context("nothing was taken")?;
        let conflicts = consumers.conflicts_per_100_takes();
        consumers.stop().await?;
        helpers.finish(&target.tally).await?;
        let left = bench.walk(&target).await?;
        let report = bench.report("burn").work(&self.work).set("processes", self.processes);
        Ok(report
            .rate(items - left.min(items), ended.saturating_duration_since(begun))
            .set("conflicts_per_100_takes", conflicts)
            .set("latency_us", serde_json::Value::Null)
            .faults(target.tally.faults()))
    }

    /// Waits until everything is settled, and returns when that was. A daemon that ended has nothing left to settle.
    async fn settled(
        &self,
        target: &Target,
        consumers: &mut Consumers,
        items: u64,
    ) -> anyhow::Result<Instant> {
        let all_settled = async {
            if self.processes == 1 {
                target.tally.reaches(items).await;
            }
            let pause = if self.processes == 1 { LOOK } else { RARE_LOOK };
            while !is_at_rest(target).await? {
                sleep(pause).await;
            }
            anyhow::Ok(Instant::now())
        };
        tokio::select! {
            at = all_settled => at,
            ended = consumers.ended() => ended.map(|()| Instant::now()),
        }
    }

    /// How many items take about the time that was asked for.
    async fn trial(&self, bench: &Bench) -> anyhow::Result<u64> {
        bench.say("burn: a trial, to see how many items are needed");
        let target = bench.target("-trial", Tally::new())?;
        fill(&target, TRIAL_ITEMS).await?;
        let begun = Instant::now();
        let consumers = Consumers::start(&bench.place(&target), &self.work, &target.tally, false)?;
        // Either is an answer.
        let _ = timeout(TRIAL, target.tally.reaches(TRIAL_ITEMS)).await;
        let rate = target.tally.count() as f64 / begun.elapsed().as_secs_f64();
        consumers.stop().await?;
        // The trial's own time is mostly that of beginning where many are taken at a time.
        let wanted = rate * bench.common.time().as_secs_f64() * f64::from(self.processes);
        Ok(wanted.clamp(f64::from(self.work.workers) * f64::from(self.work.k), MOST) as u64)
    }
}

/// Whether nothing is ready, leased, or put aside.
async fn is_at_rest(target: &Target) -> anyhow::Result<bool> {
    let (policy, queue) = (RetryPolicy::default(), Arc::new(target.queue.clone()));
    let rest = retry::run(&target.db, &policy, |tr| {
        let queue = queue.clone();
        async move {
            let rest = queue.unfinished(&tr).await;
            (tr, rest)
        }
    });
    Ok(rest.await?.value.is_none())
}
