//! `kvqueue bench burn`: a full queue is processed.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use kvqueue_queue::{RetryPolicy, retry};
use tokio::time::{sleep, timeout};

use super::{
    Bench,
    consumers::Consumers,
    options::{Work, items},
    producers::{Target, fill},
    report::Report,
    tally::Tally,
};

/// How long a trial is, that finds out how many items are needed.
const TRIAL: Duration = Duration::from_millis(500);

/// Items of a trial.
const TRIAL_ITEMS: u64 = 20_000;

/// The most items that a trial asks for.
const MOST: f64 = 5_000_000.0;

/// How often one looks whether all is settled, once all is handled.
const LOOK: Duration = Duration::from_millis(1);

/// Process a queue that was filled before
///
/// The time is that from when the consumers are ready to the moment at which every item is finished, durably: nothing is ready, and
/// nothing is leased.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    work: Work,
    /// Items to process [default: what takes about --seconds, by a short trial]
    #[arg(long, value_name = "N", value_parser = items)]
    items: Option<u64>,
}

impl Args {
    pub(super) async fn measure(&self, bench: &Bench) -> anyhow::Result<Report> {
        let items = match self.items {
            Some(items) => items,
            None => self.trial(bench).await?,
        };
        let target = bench.target("", Tally::new())?;
        bench.say(format!("burn: filling the queue with {items} items"));
        fill(&target, items).await?;
        bench.say(format!("burn: processing {items} items"));
        let mut consumers = Consumers::start(&bench.place(&target), &self.work, &target.tally, true)?;
        let ended = settled(&target, &mut consumers, items).await?;
        let begun = consumers.begun().context("nothing was taken")?;
        let conflicts = consumers.conflicts_per_100_takes();
        consumers.stop().await?;
        let left = bench.walk(&target).await?;
        let report = bench.report("burn").work(&self.work);
        Ok(report
            .rate(items - left.min(items), ended.saturating_duration_since(begun))
            .set("conflicts_per_100_takes", conflicts)
            .set("latency_us", serde_json::Value::Null)
            .faults(target.tally.faults()))
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
        let wanted = rate * bench.common.time().as_secs_f64();
        Ok(wanted.clamp(f64::from(self.work.workers) * f64::from(self.work.k), MOST) as u64)
    }
}

/// Waits until everything is settled, and returns when that was. A daemon that ended has nothing left to
/// settle.
async fn settled(target: &Target, consumers: &mut Consumers, items: u64) -> anyhow::Result<Instant> {
    let all_settled = async {
        target.tally.reaches(items).await;
        while !is_at_rest(target).await? {
            sleep(LOOK).await;
        }
        anyhow::Ok(Instant::now())
    };
    tokio::select! {
        at = all_settled => at,
        ended = consumers.ended() => ended.map(|()| Instant::now()),
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
