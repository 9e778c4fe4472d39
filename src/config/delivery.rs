//! How items reach handlers: `delivery`, `fetch-strategy`, `retry`.

use std::time::Duration;

use kvqueue_queue::RetryRules;
use serde::{Deserialize, Serialize};

use super::{duration, number};

/// How often an item may be handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum Delivery {
    /// Until it is finished; again after a failure, a crash or a lost lease.
    #[default]
    AtLeastOnce,
    /// It leaves the queue when it is taken: never twice, and not at all if its daemon dies or it fails.
    AtMostOnce,
    /// As at least once; what the handler writes to the database commits together with the item's end, once.
    ExactlyOnce,
}

/// Where a fetch looks for items while other processes fetch too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum FetchStrategy {
    /// Always the first items; takes of several processes conflict on them.
    Front,
    /// The first items, and further behind the more often takes conflict.
    #[default]
    Spread,
    /// Requests are registered, and fulfilled in turn.
    Staged,
}

/// When a failed item is tried again, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    rename_all = "kebab-case",
    deny_unknown_fields,
    default,
    expecting = "a table such as { max-attempts = 3 }"
)]
#[non_exhaustive]
pub struct Retry {
    /// Attempts, the first one included; after the last one an item is a dead letter.
    #[serde(deserialize_with = "number::deserialize")]
    pub max_attempts: u32,
    /// The pause after the first failure. Each further one doubles it.
    #[serde(with = "duration")]
    pub base: Duration,
    /// The longest pause.
    #[serde(with = "duration")]
    pub max: Duration,
    /// Whether pauses are varied at random, so that items that failed together do not come back together.
    pub jitter: bool,
}

impl Retry {
    /// The rules for the queue layer.
    pub(crate) fn rules(&self) -> RetryRules {
        let Self { max_attempts, base, max, jitter } = *self;
        RetryRules { max_attempts, base, max, jitter }
    }
}

impl Default for Retry {
    fn default() -> Self {
        Self { max_attempts: 20, base: Duration::from_secs(1), max: Duration::from_hours(1), jitter: true }
    }
}
