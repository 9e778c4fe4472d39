//! Options that cells share, and their bounds.

use std::{num::NonZeroUsize, path::PathBuf, time::Duration};

use clap::{Args, ValueEnum, value_parser};
use jiff::SignedDuration;
use kvqueue::config::{Delivery, FetchStrategy, QueueConfig};

use super::{UsageError, tally::MAX_ITEMS};

/// The most bytes of the payloads of one transaction; FoundationDB allows 10 MB, keys and counters included.
const MAX_BYTES: usize = 8_000_000;

/// Options of every cell.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Options of every cell")]
pub(super) struct Common {
    /// How long to measure [default: 3; without CELL, 1.5 for each]
    #[arg(long, global = true, value_name = "SECONDS", value_parser = seconds)]
    pub(super) seconds: Option<Duration>,
    /// The length of the payloads
    #[arg(long, global = true, value_name = "BYTES", default_value_t = 100, value_parser = value_parser!(u32).range(8..=100_000))]
    pub(super) payload: u32,
    /// Where to make the throw-away database [default: the system's temporary directory]
    #[arg(long, global = true, value_name = "DIR")]
    pub(super) dir: Option<PathBuf>,
    /// Give up a cell that has not ended after this time
    #[arg(long, global = true, value_name = "SECONDS", default_value = "300", value_parser = seconds)]
    pub(super) limit: Duration,
}

impl Common {
    /// How long a cell measures.
    pub(super) fn time(&self) -> Duration {
        self.seconds.unwrap_or(Duration::from_secs(3))
    }

    /// Where throw-away directories are made.
    pub(super) fn above(&self) -> PathBuf {
        self.dir.clone().unwrap_or_else(std::env::temp_dir)
    }

    pub(super) fn payload(&self) -> usize {
        self.payload as usize
    }

    /// Refuses to measure for longer than it may take.
    pub(super) fn check(&self) -> Result<(), UsageError> {
        let (seconds, limit) = (self.time().as_secs_f64(), self.limit.as_secs_f64());
        if seconds < limit {
            return Ok(());
        }
        Err(UsageError(format!(
            "--seconds {seconds} is not below --limit {limit}; lower it, or raise --limit"
        )))
    }

    /// Refuses batches that do not fit into a transaction.
    pub(super) fn check_batch(&self, batch: u32) -> Result<(), UsageError> {
        let bytes = u64::from(batch) * u64::from(self.payload);
        if bytes > MAX_BYTES as u64 {
            let problem = format!(
                "--batch {batch} times --payload {} is {bytes} bytes, and a transaction holds {MAX_BYTES}; lower one of them",
                self.payload
            );
            return Err(UsageError(problem));
        }
        Ok(())
    }
}

/// Who handles the items, and how.
#[derive(Clone, Debug, Args)]
pub(super) struct Work {
    /// The number of consumers
    #[arg(long, value_name = "W", default_value_t = 4, value_parser = value_parser!(u16).range(1..=1_000))]
    pub(super) workers: u16,
    /// Items per take
    #[arg(long, short, value_name = "K", default_value_t = 10, value_parser = value_parser!(u16).range(1..=10_000))]
    pub(super) k: u16,
    /// What is promised about how often an item is handled [default: at-least-once]
    #[arg(long, value_enum)]
    delivery: Option<Delivery>,
    /// Where a take looks for items [default: spread]
    #[arg(long, value_enum)]
    fetch_strategy: Option<FetchStrategy>,
    /// Whether the handler gets the items of a take together, or one by one [default: each]
    #[arg(long, value_enum)]
    handler: Option<HandlerKind>,
    /// Instead of the daemon, the Erlang KvQueue's consumers: each pops K items from the front and waits on a watch where there are fewer
    #[arg(long, conflicts_with_all = ["delivery", "fetch_strategy", "handler"])]
    pub(super) baseline: bool,
}

/// How a handler gets its items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum HandlerKind {
    /// Those of a take together.
    Batch,
    /// One by one.
    #[default]
    Each,
}

impl Work {
    pub(super) fn k(&self) -> NonZeroUsize {
        NonZeroUsize::new(usize::from(self.k)).unwrap_or(NonZeroUsize::MIN)
    }

    pub(super) fn handler(&self) -> HandlerKind {
        self.handler.unwrap_or_default()
    }

    /// Whether finished items are counted in the database: otherwise an item is finished when it is taken.
    pub(super) fn acknowledges(&self) -> bool {
        !self.baseline && self.delivery() != Delivery::AtMostOnce
    }

    pub(super) fn delivery(&self) -> Delivery {
        if self.baseline { Delivery::AtMostOnce } else { self.delivery.unwrap_or_default() }
    }

    pub(super) fn fetch_strategy(&self) -> FetchStrategy {
        if self.baseline { FetchStrategy::Front } else { self.fetch_strategy.unwrap_or_default() }
    }

    /// The daemon's configuration of such a queue.
    pub(super) fn queue(&self, handler: &str) -> QueueConfig {
        let queue = QueueConfig::new(handler).with_consumers(self.k().get(), usize::from(self.workers));
        let mut queue = queue.with_delivery(self.delivery());
        queue.fetch_strategy = self.fetch_strategy();
        queue
    }
}

/// Reads a number of seconds, as in `3` or `0.5`.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds, such as 3 or 0.5".to_owned())?;
    if (0.01..=3_600.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("not in 0.01..=3600 seconds".to_owned())
    }
}

/// Reads a pause, as in `200ms`.
pub(super) fn pause(text: &str) -> Result<Duration, String> {
    let pause: SignedDuration = text.parse().map_err(|_| "not a time such as 200ms".to_owned())?;
    let pause = Duration::try_from(pause).map_err(|_| "a time is not negative".to_owned())?;
    if (Duration::from_millis(1)..=Duration::from_mins(1)).contains(&pause) {
        Ok(pause)
    } else {
        Err("not in 1ms..=1m".to_owned())
    }
}

/// Reads a number of items.
pub(super) fn items(text: &str) -> Result<u64, String> {
    let items: u64 = text.parse().map_err(|_| "not a number of items".to_owned())?;
    if (1..=MAX_ITEMS).contains(&items) { Ok(items) } else { Err(format!("not in 1..={MAX_ITEMS}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_out_of_bounds_are_refused() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(pause("200ms"), Ok(Duration::from_millis(200)));
        assert_eq!(items("7"), Ok(7));
        for wrong in ["0", "-1", "x", "", "inf", "NaN", "1e9", "1h", "99999999999"] {
            assert!(seconds(wrong).is_err() && items(wrong).is_err() && pause(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn baseline_fetches_from_the_front_at_most_once() {
        let work =
            Work { workers: 1, k: 1, delivery: None, fetch_strategy: None, handler: None, baseline: true };
        assert_eq!((work.delivery(), work.fetch_strategy()), (Delivery::AtMostOnce, FetchStrategy::Front));
        assert!(!work.acknowledges());
    }
}
