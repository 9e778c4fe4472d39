//! A handler's own table, `queues.NAME.handler-config`, read into the handler's own type.

use std::{
    fmt::{Debug, Display},
    ops::RangeInclusive,
    str::FromStr,
    time::Duration,
};

use serde::de::DeserializeOwned;

/// The `handler-config` table of one queue.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    table: toml::Table,
    /// `handler-timeout` of the queue.
    pub(crate) handler_timeout: Option<Duration>,
}

/// Settings that a handler cannot be made from: a fragment that names the key and the fix.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SettingsError(pub String);

impl SettingsError {
    /// The error for an invalid value. `problem` has the fix.
    pub(crate) fn value(key: &str, value: impl Display, problem: impl Display) -> Self {
        Self(format!("{key} = {value}: {problem}"))
    }

    /// The same for a text, which is quoted.
    pub(crate) fn text(key: &str, value: &(impl Debug + ?Sized), problem: impl Display) -> Self {
        Self::value(key, format_args!("{value:?}"), problem)
    }
}

/// Checks lists that give numbers a meaning each: all numbers are in the range, which `fix`
/// names, and none is in two lists.
pub(crate) fn check_lists<N: PartialOrd + Display, const LISTS: usize>(
    lists: [(&str, &[N]); LISTS],
    range: RangeInclusive<N>,
    fix: &str,
) -> Result<(), SettingsError> {
    for (key, list) in lists {
        if let Some(wrong) = list.iter().find(|number| !range.contains(number)) {
            return Err(SettingsError::value(key, wrong, fix));
        }
    }
    for (at, (other, more)) in lists.iter().enumerate() {
        for (one, numbers) in &lists[..at] {
            if let Some(both) = more.iter().find(|number| numbers.contains(number)) {
                let problem = format!("it is in {one}, too; remove it from one of them");
                return Err(SettingsError::value(other, both, problem));
            }
        }
    }
    Ok(())
}

impl Settings {
    /// The settings in `table`.
    pub fn new(table: toml::Table) -> Self {
        Self { table, handler_timeout: None }
    }

    /// Of a queue with this `handler-timeout`.
    #[must_use]
    pub(crate) fn with_handler_timeout(self, handler_timeout: Option<Duration>) -> Self {
        Self { handler_timeout, ..self }
    }

    /// The value of a key as it is written in TOML, if the table has it.
    pub(crate) fn written(&self, key: &str) -> Option<String> {
        self.table.get(key).map(toml::Value::to_string)
    }

    /// Reads the whole table as `T`, which should be `#[serde(deny_unknown_fields)]`.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, SettingsError> {
        let value = toml::Value::Table(self.table.clone());
        serde_path_to_error::deserialize(value).map_err(
            |error: serde_path_to_error::Error<toml::de::Error>| {
                let problem = error.inner().message();
                match error.path().to_string().as_str() {
                    // The table as a whole, as when a key is missing.
                    "." => SettingsError(problem.to_owned()),
                    path => SettingsError(format!("{path}: {problem}")),
                }
            },
        )
    }

    /// For a handler that has no settings.
    pub fn expect_none(&self) -> Result<(), SettingsError> {
        match self.table.keys().next() {
            None => Ok(()),
            Some(key) => Err(SettingsError(format!("{key}: this handler has no settings; remove it"))),
        }
    }
}

/// From TOML, as it stands in the table: for tests.
impl FromStr for Settings {
    type Err = SettingsError;

    fn from_str(text: &str) -> Result<Self, SettingsError> {
        text.parse()
            .map(Self::new)
            .map_err(|error: toml::de::Error| SettingsError(error.message().to_owned()))
    }
}
