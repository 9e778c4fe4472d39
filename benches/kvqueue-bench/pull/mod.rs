//! `kvqueue bench pull`: a full queue is processed by workers over HTTP.

mod worker;

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    time::{Duration, Instant},
};

use anyhow::Context;
use clap::value_parser;
use kvqueue::config::{Config, Listen, QueueConfig};
use tokio::task::{JoinSet, block_in_place};

use self::worker::Worker;
use super::{
    Bench,
    child::Running,
    options::items,
    producers::{Target, all, fill},
    report::{Report, rounded},
    tally::Tally,
    usage,
};

/// Items of a trial, that finds out how many items are needed.
const TRIAL_ITEMS: u64 = 20_000;

/// The most items that a trial asks for.
const MOST: f64 = 5_000_000.0;

/// Connections of the daemon that no worker has.
const SPARE: usize = 16;

/// Workers that lease items from a daemon over HTTP
///
/// `kvqueue run` is started as a process of its own. Each worker is a thread with a connection. The time is that from the first lease
/// to the answer to the last acknowledgement.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The number of workers
    #[arg(long, value_name = "W", default_value_t = 16, value_parser = value_parser!(u16).range(1..=256))]
    workers: u16,
    /// Items per lease
    #[arg(long, short, value_name = "K", default_value_t = 10, value_parser = value_parser!(u16).range(1..=1_000))]
    k: u16,
    /// Items to process [default: what takes about --seconds, by a short trial]
    #[arg(long, value_name = "N", value_parser = items)]
    items: Option<u64>,
    /// A request for each lease and one for each acknowledgement, instead of one for both
    #[arg(long)]
    separate: bool,
}

/// What a run of workers came to.
struct Run {
    items: u64,
    time: Duration,
    /// The CPU time of the daemon.
    cpu: Duration,
}

impl Args {
    pub(super) async fn measure(&self, bench: &Bench) -> anyhow::Result<Report> {
        let at = free_address()?;
        let config = self.config(bench, at)?;
        // The daemon opens the database before this process does, so it is the host of an embedded one.
        let daemon = block_in_place(|| Running::start(&config))?;
        let target = bench.target("", Tally::new())?;
        let items = match self.items {
            Some(items) => items,
            None => {
                bench.say("pull: a trial, to see how many items are needed");
                let trial = self.run(&target, at, daemon.pid(), TRIAL_ITEMS).await?;
                let rate = trial.items as f64 / trial.time.as_secs_f64().max(f64::MIN_POSITIVE);
                let least = f64::from(self.workers) * f64::from(self.k);
                (rate * bench.common.time().as_secs_f64()).clamp(least, MOST) as u64
            }
        };
        bench.say(format!("pull: processing {items} items"));
        let run = self.run(&target, at, daemon.pid(), items).await?;
        block_in_place(|| daemon.stop())?;
        bench.walk(&target).await?;
        let cpu = run.cpu.as_secs_f64() * 1e6 / (run.items as f64).max(1.0);
        let report = bench.report("pull").set("workers", self.workers).set("k", self.k);
        Ok(report
            .set("separate", self.separate)
            .rate(run.items, run.time)
            .set("daemon_cpu_us_per_item", rounded(cpu, 2))
            .set("latency_us", serde_json::Value::Null)
            .faults(target.tally.faults()))
    }

    /// Fills the queue, and processes it.
    async fn run(&self, target: &Target, at: SocketAddr, daemon: u32, items: u64) -> anyhow::Result<Run> {
        fill(target, items).await?;
        let name = String::from_utf8_lossy(target.queue.name()).into_owned();
        let workers = (0..self.workers).map(|_| Worker::connect(at, &name, self.k));
        let workers = workers.collect::<anyhow::Result<Vec<_>>>()?;
        let (cpu, begun) = (usage::cpu(daemon)?, Instant::now());
        let mut threads = JoinSet::new();
        for worker in workers {
            let (tally, separate) = (target.tally.clone(), self.separate);
            threads.spawn_blocking(move || worker.work(&tally, separate));
        }
        let finished = all(&mut threads).await.context("a worker failed")?;
        let time = begun.elapsed();
        let cpu = usage::cpu(daemon)?.saturating_sub(cpu);
        Ok(Run { items: finished.iter().sum(), time, cpu })
    }

    fn config(&self, bench: &Bench, at: SocketAddr) -> anyhow::Result<Config> {
        let name = bench.ground.queue_name("")?;
        let mut config = Config::new(bench.ground.url()).with_queue(name, QueueConfig::new("pull"));
        config.prefix = bench.ground.prefix().to_owned();
        (config.http.listen, config.http.require_token) = (Listen::Tcp(at), Some(false));
        config.http.max_connections = usize::from(self.workers) + SPARE;
        Ok(config)
    }
}

/// An address on loopback that was free a moment ago.
fn free_address() -> anyhow::Result<SocketAddr> {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot find a free port")?;
    taken.local_addr().context("cannot find a free port")
}
