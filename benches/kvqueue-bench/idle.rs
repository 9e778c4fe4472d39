//! `kvqueue bench idle`: what a daemon uses that has nothing to do.

use std::time::{Duration, Instant};

use clap::value_parser;
use tokio::{task::block_in_place, time::sleep};

use super::{
    Bench,
    child::Running,
    report::{Report, rounded},
    tally::Faults,
    usage,
};
use kvqueue::config::{Config, QueueConfig};

/// How long a daemon has, after it is ready, to become idle.
const SETTLE: Duration = Duration::from_secs(1);

/// What a daemon uses that waits for items
///
/// `kvqueue run` is started as a process of its own: CPU seconds per second, and resident memory in kB; per queue, what it has more than
/// one with a single queue.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The number of queues
    #[arg(long, value_name = "Q", default_value_t = 1, value_parser = value_parser!(u16).range(1..=10_000))]
    queues: u16,
    /// The number of consumers of each
    #[arg(long, value_name = "W", default_value_t = 1, value_parser = value_parser!(u16).range(1..=1_000))]
    workers: u16,
}

/// What was used.
struct Used {
    cpu: f64,
    resident_kb: u64,
}

impl Args {
    pub(super) async fn measure(&self, bench: &Bench) -> anyhow::Result<Report> {
        let time = bench.common.time();
        let single = match self.queues {
            1 => None,
            _ => Some(self.used(bench, 1, Duration::ZERO).await?),
        };
        let used = self.used(bench, self.queues, time).await?;
        let more = |single: Used| used.resident_kb.saturating_sub(single.resident_kb) as f64;
        let per_queue = single.map(|single| rounded(more(single) / f64::from(self.queues - 1), 1));
        let report = bench.report("idle").set("queues", self.queues).set("workers", self.workers);
        Ok(report
            .rate(0, time)
            .set("cpu_seconds_per_second", rounded(used.cpu, 6))
            .set("resident_kb", used.resident_kb)
            .set("resident_kb_per_queue", per_queue)
            .set("latency_us", serde_json::Value::Null)
            .faults(Faults::default()))
    }

    async fn used(&self, bench: &Bench, queues: u16, time: Duration) -> anyhow::Result<Used> {
        bench.say(format!("idle: a daemon with {queues} queues"));
        let config = self.config(bench, queues)?;
        let daemon = block_in_place(|| Running::start(&config))?;
        sleep(SETTLE).await;
        let (before, begun) = (usage::cpu(daemon.pid())?, Instant::now());
        sleep(time).await;
        let cpu = usage::cpu(daemon.pid())?.saturating_sub(before);
        let used = Used {
            cpu: cpu.as_secs_f64() / begun.elapsed().as_secs_f64().max(f64::MIN_POSITIVE),
            resident_kb: usage::resident_kb(daemon.pid())?,
        };
        block_in_place(|| daemon.stop())?;
        Ok(used)
    }

    fn config(&self, bench: &Bench, queues: u16) -> anyhow::Result<Config> {
        let queue = QueueConfig::new("log").with_consumers(10, usize::from(self.workers));
        let names = (0..queues).map(|number| bench.ground.queue_name(&format!("-{number}")));
        let queues = names.map(|name| Ok((name?, queue.clone()))).collect::<anyhow::Result<_>>()?;
        let mut config = Config::new(bench.ground.url());
        (config.prefix, config.queues) = (bench.ground.prefix().to_owned(), queues);
        Ok(config)
    }
}
