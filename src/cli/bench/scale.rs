//! `kvqueue bench scale`: does an item cost the same, however many wait and however many have gone through?

use std::time::{Duration, Instant};

use clap::value_parser;
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::sleep};
use tokio_util::sync::CancellationToken;

use super::{
    Bench,
    consumers::Consumers,
    ground::session,
    options::{Work, items},
    producers::{Target, all, fill},
    report::{Report, rate, rounded},
    tally::{Faults, MAX_ITEMS, Tally, payload},
    usage,
};
use crate::cli::UsageError;

/// The first figure is that of so many items.
const FIRST: u64 = 1_000;

/// Sessions that keep the backlog.
const FEEDERS: usize = 4;

/// Items of their transactions.
const BATCH: u64 = 100;

/// How long a feeder waits when nothing is missing.
const PAUSE: Duration = Duration::from_millis(1);

/// Items flow through a queue whose length is kept: the cost of an item by decades of the total
///
/// It ends with the total, or with --limit.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Items that wait all the while
    #[arg(long, value_name = "N", default_value = "1000", value_parser = items)]
    backlog: u64,
    /// Items that flow through
    #[arg(long, value_name = "M", default_value = "100000", value_parser = items)]
    total: u64,
    /// Items per take
    #[arg(long, short, value_name = "K", default_value_t = 10, value_parser = value_parser!(u16).range(1..=10_000))]
    k: u16,
    /// So many consumers; several numbers, with commas between them, for one run each
    #[arg(long, value_name = "W,...", value_delimiter = ',', default_value = "4", value_parser = value_parser!(u16).range(1..=1_000))]
    workers: Vec<u16>,
}

/// A run with one number of consumers.
struct Run {
    workers: u16,
    time: Duration,
    decades: Vec<Value>,
    faults: Faults,
}

impl Args {
    pub(super) fn check(&self) -> Result<(), UsageError> {
        let (backlog, total) = (self.backlog, self.total);
        if backlog + total + FEEDERS as u64 * BATCH <= MAX_ITEMS {
            return Ok(());
        }
        let problem = format!(
            "--backlog {backlog} and --total {total} are together more than {MAX_ITEMS}; lower one of them"
        );
        Err(UsageError(problem))
    }

    pub(super) async fn measure(&self, bench: &Bench) -> anyhow::Result<Report> {
        let mut runs = Vec::new();
        for (n, workers) in self.workers.iter().enumerate() {
            runs.push(self.run(bench, n, *workers).await?);
        }
        let sum = |count: fn(&Faults) -> u64| runs.iter().map(|run| count(&run.faults)).sum();
        let faults = Faults {
            lost: sum(|faults| faults.lost),
            repeated: sum(|faults| faults.repeated),
            invented: sum(|faults| faults.invented),
        };
        let time = runs.iter().map(|run| run.time).sum();
        let each = |run: &Run| {
            let per_second = rate(self.total, run.time);
            json!({"workers": run.workers, "seconds": rounded(run.time.as_secs_f64(), 6), "per_second": per_second, "decades": run.decades})
        };
        let report =
            bench.report("scale").set("backlog", self.backlog).set("total", self.total).set("k", self.k);
        Ok(report
            .rate(self.total * self.workers.len() as u64, time)
            .set("runs", runs.iter().map(each).collect::<Vec<_>>())
            .set("latency_us", Value::Null)
            .faults(faults))
    }

    async fn run(&self, bench: &Bench, n: usize, workers: u16) -> anyhow::Result<Run> {
        let target = bench.target(&format!("-{n}"), Tally::new())?;
        bench.say(format!("scale: filling the queue with {} items", self.backlog));
        fill(&target, self.backlog).await?;
        bench.say(format!("scale: {} items through {workers} consumers", self.total));
        let stop = CancellationToken::new();
        let mut feeders = JoinSet::new();
        for _ in 0..FEEDERS {
            feeders.spawn(feed(target.clone(), self.backlog, self.total, stop.clone()));
        }
        let consumers =
            Consumers::start(&bench.place(&target), &Work::daemon(workers, self.k), &target.tally, false)?;
        let begun = Instant::now();
        let decades = self.decades(&target).await?;
        let time = begun.elapsed();
        stop.cancel();
        all(&mut feeders).await?;
        consumers.stop().await?;
        bench.walk(&target).await?;
        Ok(Run { workers, time, decades, faults: target.tally.faults() })
    }

    /// Waits for the total, and notes what the items of each decade have cost.
    async fn decades(&self, target: &Target) -> anyhow::Result<Vec<Value>> {
        let process = std::process::id();
        let (mut from, mut at, mut cpu) = (0, Instant::now(), usage::cpu(process)?);
        let mut decades = Vec::new();
        for mark in marks(self.total) {
            target.tally.reaches(mark).await;
            let (now, used) = (Instant::now(), usage::cpu(process)?);
            let each = |time: Duration| rounded(time.as_secs_f64() * 1e6 / (mark - from) as f64, 3);
            let (time_us, cpu_us) = (each(now - at), each(used.saturating_sub(cpu)));
            decades
                .push(json!({"from": from, "to": mark, "us_per_item": time_us, "cpu_us_per_item": cpu_us}));
            (from, at, cpu) = (mark, now, used);
        }
        Ok(decades)
    }
}

/// The ends of the decades of a total.
fn marks(total: u64) -> Vec<u64> {
    let decades = std::iter::successors(Some(FIRST), |mark| mark.checked_mul(10));
    decades.take_while(|mark| *mark < total).chain([total]).collect()
}

/// Pushes what is missing of the backlog, until the total has been pushed.
async fn feed(target: Target, backlog: u64, total: u64, stop: CancellationToken) -> anyhow::Result<()> {
    let mut session = session(&target.queue);
    while !stop.is_cancelled() {
        // Where the backlog is shorter than a batch, a batch is pushed when the queue is about to be empty.
        let goal = target.tally.count().min(total) + backlog.max(BATCH);
        if target.tally.numbers() + BATCH > goal {
            sleep(PAUSE).await;
            continue;
        }
        let Some(first) = target.tally.number(BATCH) else { break };
        let payloads: Vec<_> = (first..first + BATCH).map(|number| payload(number, target.payload)).collect();
        session.push(&target.db, &payloads).await?;
        target.tally.pushed(first, BATCH);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::marks;

    #[test]
    fn decades_end_with_the_total() {
        assert_eq!(marks(250_000), [1_000, 10_000, 100_000, 250_000]);
        assert_eq!(marks(10_000), [1_000, 10_000]);
        assert_eq!(marks(7), [7]);
    }
}
