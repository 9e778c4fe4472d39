//! The check of a whole configuration.

use std::{collections::BTreeMap, time::Duration};

use super::{Config, ConfigError, QueueConfig, consumers, settings};

impl Config {
    /// Checks every value and relation; the first fault is the error. The times of handlers are compared with the queue's when the handlers are made.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.validate_database()?;
        super::log_levels(&self.log.level)?;
        if let Some(first) = self.out_of_range().into_iter().next() {
            return Err(first);
        }
        self.validate_schedule_owner()?;
        self.http.validate()?;
        self.queues.iter().try_for_each(|(name, queue)| queue.validate(name, self.shutdown_timeout))
    }

    /// Values out of the ranges of the table of settings.
    pub(super) fn out_of_range(&self) -> Vec<ConfigError> {
        let own = Self { queues: BTreeMap::new(), ..self.clone() };
        match toml::Table::try_from(own) {
            Ok(table) => settings::out_of_range(&table).collect(),
            Err(error) => vec![not_toml("the configuration", &error)],
        }
    }
}

impl QueueConfig {
    pub(super) fn validate(&self, name: &str, shutdown_timeout: Duration) -> Result<(), ConfigError> {
        if name.is_empty() {
            return Err(ConfigError::value("queues", "\"\"", "a queue has no name", "name it"));
        }
        let key = |key: &str| format!("queues.{name}.{key}");
        self.validate_layout(key)?;
        // A schedule may have a value of JSON that TOML does not have. It has checks of its own.
        let own = Self { schedules: BTreeMap::new(), ..self.clone() };
        let table =
            toml::Table::try_from(own).map_err(|error| not_toml(&format!("queues.{name}"), &error))?;
        if let Some(first) = settings::out_of_range_in_queue(name, &table).next() {
            return Err(first);
        }
        self.validate_partitions(key)?;
        consumers::validate(&self.consumers, &key("consumers"))?;
        self.validate_pull(key)?;
        self.validate_timeout(key("handler-timeout"), shutdown_timeout)?;
        self.validate_schedules(key)?;
        self.validate_history_index(key)?;
        self.validate_expiry(key)?;
        self.validate_result(key)?;
        self.retry.validate(key)
    }
}

/// The error for settings of a program that no file can have, such as a path that is not text.
fn not_toml(place: &str, error: &toml::ser::Error) -> ConfigError {
    ConfigError::value(place, "(not shown)", error.to_string(), "use values that TOML has")
}
