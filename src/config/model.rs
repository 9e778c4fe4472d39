//! The keys and their defaults.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use super::{duration, number};

/// Everything the daemon can be told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Config {
    /// `embedded:DIRECTORY`, or the path of a FoundationDB cluster file.
    pub database: String,
    /// Put before every key, so that several installations can share one database.
    pub prefix: String,
    /// How long a stop waits for the items in hand.
    #[serde(with = "duration")]
    pub grace: Duration,
    /// What is logged and in which form.
    pub log: Log,
    /// The queues to work off, by name.
    pub queues: BTreeMap<String, QueueConfig>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            database: "embedded:./kvqueue-data".to_owned(),
            prefix: String::new(),
            grace: Duration::from_secs(30),
            log: Log::default(),
            queues: BTreeMap::new(),
        }
    }
}

/// Logging, to stderr.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Log {
    /// Lines for people, or one JSON object per event.
    pub format: LogFormat,
    /// A level, or levels by target as in `info,kvqueue::actors=debug`.
    pub level: String,
}

impl Default for Log {
    fn default() -> Self {
        Self { format: LogFormat::Human, level: "info".to_owned() }
    }
}

/// The form of a log event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// One readable line, coloured at a terminal.
    Human,
    /// One JSON object.
    Json,
}

/// One queue and how it is worked off.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct QueueConfig {
    /// The name of a registered handler.
    pub handler: String,
    /// Consumers, in groups with the same K.
    #[serde(default = "ConsumerGroup::defaults")]
    pub consumers: Vec<ConsumerGroup>,
    /// How long an item may take; none: as long as it likes.
    #[serde(default, with = "duration::optional", skip_serializing_if = "Option::is_none")]
    pub handler_timeout: Option<Duration>,
    /// How often an idle consumer looks although no push woke it.
    #[serde(default = "QueueConfig::default_slow_look", with = "duration")]
    pub slow_look: Duration,
    /// Settings of the handler, in the handler's own form.
    #[serde(default, skip_serializing_if = "toml::Table::is_empty")]
    pub handler_config: toml::Table,
}

impl QueueConfig {
    /// A queue worked off by one consumer, everything else by default.
    pub fn new(handler: impl Into<String>) -> Self {
        Self {
            handler: handler.into(),
            consumers: ConsumerGroup::defaults(),
            handler_timeout: None,
            slow_look: Self::default_slow_look(),
            handler_config: toml::Table::new(),
        }
    }

    fn default_slow_look() -> Duration {
        Duration::from_secs(30)
    }
}

/// Consumers that take the same number of items at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct ConsumerGroup {
    /// Items taken in one transaction.
    #[serde(deserialize_with = "number::deserialize")]
    pub k: usize,
    /// Consumers of this kind.
    #[serde(deserialize_with = "number::deserialize")]
    pub count: usize,
}

impl ConsumerGroup {
    fn defaults() -> Vec<Self> {
        vec![Self::default()]
    }
}

impl Default for ConsumerGroup {
    fn default() -> Self {
        Self { k: 10, count: 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The keys of a table with their defaults, as the reference writes them.
    fn rows(table: &toml::Table, path: &str) -> Vec<String> {
        let row = |(key, value): (&String, &toml::Value)| match value {
            toml::Value::Table(inner) => rows(inner, &format!("{path}{key}.")),
            value => vec![format!("| `{path}{key}` | `{value}` |")],
        };
        table.iter().flat_map(row).collect()
    }

    #[test]
    fn the_reference_has_every_key_with_its_default() {
        let reference = include_str!("../../docs/CONFIG.md");
        let mut config = toml::Table::try_from(Config::default()).unwrap();
        config.remove("queues");
        let mut queue = toml::Table::try_from(QueueConfig::new("log")).unwrap();
        queue.remove("handler");
        for row in rows(&config, "").into_iter().chain(rows(&queue, "")) {
            assert!(reference.contains(&row), "docs/CONFIG.md lacks {row}");
        }
    }
}
