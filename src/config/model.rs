//! The keys and their defaults.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use super::{Http, MinFreeSpace, QueueConfig, duration};

/// All settings of the daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Config {
    /// `embedded:DIRECTORY`, or the path of a FoundationDB cluster file.
    pub database: String,
    /// How much of the disk of an embedded database must stay free, so that pushes are accepted.
    pub min_free_space: MinFreeSpace,
    /// Put before every key, so that several installations can share one database.
    pub prefix: String,
    /// How long a stop waits for the items in hand.
    #[serde(with = "duration")]
    pub shutdown_timeout: Duration,
    /// The log's level and format.
    pub log: Log,
    /// The API, the metrics and the page.
    pub http: Http,
    /// The queues to process, by name.
    pub queues: BTreeMap<String, QueueConfig>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            database: "embedded:./kvqueue-data".to_owned(),
            min_free_space: MinFreeSpace::Auto,
            prefix: String::new(),
            shutdown_timeout: Duration::from_secs(30),
            log: Log::default(),
            http: Http::default(),
            queues: BTreeMap::new(),
        }
    }
}

/// Logging, to stderr or to the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Log {
    /// Lines for people, one JSON object per event, or the journal.
    pub format: LogFormat,
    /// A level, or levels by target as in `info,kvqueue::actors=debug`.
    pub level: String,
}

impl Default for Log {
    fn default() -> Self {
        Self { format: LogFormat::Auto, level: "info".to_owned() }
    }
}

/// The form of a log event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum LogFormat {
    /// The journal where stderr goes there, and else lines for people.
    Auto,
    /// One readable line, coloured at a terminal.
    Human,
    /// One JSON object.
    Json,
    /// A message to the journal, with fields.
    Journald,
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
