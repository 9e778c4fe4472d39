//! `kvqueue bench start`: from the start of the process to a daemon that is ready.

use std::{io::Write, process::Stdio, time::Duration};

use anyhow::Context;
use clap::value_parser;
use serde_json::{Value, json};
use tokio::task::{block_in_place, yield_now};

use super::{
    Bench,
    child::{self, Running},
    options::items,
    report::{Report, rounded},
    tally::Faults,
};
use crate::config::{Config, QueueConfig};

/// From the start of `kvqueue run` to its word that it is ready
///
/// On an empty database, or on one that holds items. `latency_us` is null; `start_ms` has the median, the least and the most.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Items that are in the database
    #[arg(long, value_name = "N", value_parser = items)]
    items: Option<u64>,
    /// So many starts
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = value_parser!(u16).range(1..=1_000))]
    count: u16,
}

impl Args {
    pub(super) async fn measure(&self, bench: &Bench) -> anyhow::Result<Report> {
        let filled = bench.ground.queue_name("")?;
        let idle = bench.ground.queue_name("-idle")?;
        let items = self.items.unwrap_or(0);
        if items > 0 {
            bench.say(format!("start: filling the database with {items} items"));
            block_in_place(|| push(bench, &filled, items))?;
        }
        let mut times = Vec::new();
        for n in 0..self.count {
            bench.say(format!("start: {} of {}", n + 1, self.count));
            // An empty directory is empty only once.
            let another = if items == 0 { bench.ground.another(&format!("start-{n}")) } else { None };
            let config = Config {
                database: another.unwrap_or_else(|| bench.ground.url().to_owned()),
                prefix: bench.ground.prefix().to_owned(),
                // Not the queue with the items: they are to be there the next time.
                queues: [(idle.clone(), QueueConfig::new("log"))].into(),
                ..Config::default()
            };
            times.push(block_in_place(|| {
                let daemon = Running::start(&config)?;
                let time = daemon.ready_after;
                daemon.stop().map(|()| time)
            })?);
            // Here an interruption is heard.
            yield_now().await;
        }
        let left = if items > 0 { block_in_place(|| len(bench, &filled))? } else { 0 };
        let faults =
            Faults { lost: items.saturating_sub(left), invented: left.saturating_sub(items), repeated: 0 };
        let total = times.iter().sum();
        times.sort_unstable();
        Ok(bench
            .report("start")
            .set("count", self.count)
            .rate(items, total)
            .set("per_second", Value::Null)
            .set("start_ms", json!({"p50": millis(times[times.len() / 2]), "min": millis(times[0]), "max": millis(times[times.len() - 1])}))
            .set("latency_us", Value::Null)
            .faults(faults))
    }
}

fn millis(time: Duration) -> f64 {
    rounded(time.as_secs_f64() * 1_000.0, 3)
}

/// Pushes by another process: the directory must not be held by this one.
fn push(bench: &Bench, queue: &str, items: u64) -> anyhow::Result<()> {
    let mut command = command(bench, &["push", queue, "--lines", "-"])?;
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
    let mut input = std::io::BufWriter::new(child.stdin.take().context("it has no standard input")?);
    for number in 0..items {
        // Lines are text.
        let line: Vec<u8> = format!("{number:0>width$}\n", width = bench.common.payload()).into_bytes();
        input.write_all(&line)?;
    }
    input.flush()?;
    drop(input);
    anyhow::ensure!(child.wait()?.success(), "cannot fill the queue");
    Ok(())
}

/// How many items are ready, counted by another process.
fn len(bench: &Bench, queue: &str) -> anyhow::Result<u64> {
    let output = command(bench, &["len", queue])?.output()?;
    anyhow::ensure!(output.status.success(), "cannot count the queue's items");
    String::from_utf8_lossy(&output.stdout).trim().parse().context("the queue's length is no number")
}

fn command(bench: &Bench, args: &[&str]) -> anyhow::Result<std::process::Command> {
    let mut command = child::command()?;
    command
        .args(args)
        .args(["--database", bench.ground.url(), "-q"])
        .env("KVQUEUE_PREFIX", bench.ground.prefix());
    command.stderr(Stdio::inherit());
    Ok(command)
}
