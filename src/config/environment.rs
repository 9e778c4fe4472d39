//! Settings in environment variables: `KVQUEUE_LOG__LEVEL` is `log.level`. Two underscores separate the parts of a key,
//! and one stands for a hyphen.
//!
//! Other software sets variables that begin with `KVQUEUE_`, too: Kubernetes does for each Service named `kvqueue`. A
//! variable is a setting only if its first part names one of the configuration's top-level keys. Every other variable
//! is ignored, and the program says so once.

use std::collections::HashMap;

use super::Config;

const PREFIX: &str = "KVQUEUE_";

/// Variables that begin with the prefix and are not settings: the file's name, a token, and the variables that the `exec`
/// handler sets for its commands (which may call `kvqueue push`).
const RESERVED: [&str; 11] = [
    "KVQUEUE_CONFIG",
    "KVQUEUE_TOKEN",
    "KVQUEUE_QUEUE",
    "KVQUEUE_ITEM",
    "KVQUEUE_KEY",
    "KVQUEUE_KEY_BASE64",
    "KVQUEUE_ATTEMPT",
    "KVQUEUE_ATTRIBUTES",
    "KVQUEUE_CONTENT_TYPE",
    "KVQUEUE_ENQUEUED_AT",
    "KVQUEUE_RUN",
];

/// The prefix of variables that test runs set. No setting has it.
const RESERVED_PREFIX: &str = "KVQUEUE_TEST_";

/// The variable in which systemd names a service's data directories (`StateDirectory=`), separated by colons.
const STATE_DIRECTORY: &str = "STATE_DIRECTORY";

/// The settings among environment variables, and which variable gave each.
#[derive(Debug, Default)]
pub(super) struct Environment {
    values: HashMap<String, String>,
    names: HashMap<String, String>,
    /// Variables that begin with `KVQUEUE_` and name no setting, sorted.
    ignored: Vec<String>,
    state_directory: Option<String>,
}

impl Environment {
    pub(super) fn from_vars(vars: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut found = Self::default();
        let top_level = top_level_keys();
        for (name, value) in vars {
            if name == STATE_DIRECTORY {
                let first = value.split(':').next().filter(|directory| !directory.is_empty());
                found.state_directory = first.map(str::to_owned);
            } else if let Some(key) = key_of(&name) {
                if !top_level.iter().any(|known| known == first_part(&key)) {
                    found.ignored.push(name);
                    continue;
                }
                found.values.insert(key.clone(), value);
                found.names.insert(key, name);
            }
        }
        found.ignored.sort_unstable();
        found
    }

    /// Reads this process's variables. One that is not Unicode cannot be a setting.
    pub(super) fn of_process() -> Self {
        let vars =
            std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
        Self::from_vars(vars)
    }

    /// The values by key, as a source for the `config` crate.
    pub(super) fn source(&self) -> config::Environment {
        config::Environment::default().separator(".").source(Some(self.values.clone()))
    }

    /// The first directory that systemd has made for this service's data.
    pub(super) fn state_directory(&self) -> Option<&str> {
        self.state_directory.as_deref()
    }

    /// The values by their dotted key.
    pub(super) fn values(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// The variable that set `key`, something below it, or a list or table around it.
    pub(super) fn variable_of(&self, key: &str) -> Option<&str> {
        let is_in = |inner: &str, outer: &str| {
            inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        self.names.iter().find(|(set, _)| is_in(set, key) || is_in(key, set)).map(|(_, name)| name.as_str())
    }
}

/// The variables of this process that begin with `KVQUEUE_` and name no setting, sorted. They are ignored.
pub fn ignored_variables() -> Vec<String> {
    Environment::of_process().ignored
}

/// The keys that a configuration has at its top level.
fn top_level_keys() -> Vec<String> {
    // A key without a default is left out if it is not set.
    let config = Config { schedule_owner: Some(String::new()), ..Config::default() };
    let table = toml::Table::try_from(config).expect("the defaults serialise");
    table.into_iter().map(|(key, _)| key).collect()
}

/// The part of a key before its first dot.
fn first_part(key: &str) -> &str {
    key.split('.').next().unwrap_or(key)
}

/// Whether a variable begins with the prefix and is not a setting.
pub(crate) fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name) || name.starts_with(RESERVED_PREFIX)
}

fn key_of(name: &str) -> Option<String> {
    if is_reserved(name) {
        return None;
    }
    let rest = name.strip_prefix(PREFIX).filter(|rest| !rest.is_empty())?;
    Some(rest.to_lowercase().replace("__", ".").replace('_', "-"))
}

#[cfg(test)]
mod tests {
    use super::{Environment, key_of};

    #[test]
    fn variables_of_other_software_are_ignored_and_named() {
        // The variables that the kubelet gives every pod of a namespace with Services named kvqueue and kvqueue-http.
        let kubernetes = [
            ("KVQUEUE_SERVICE_HOST", "10.0.0.1"),
            ("KVQUEUE_SERVICE_PORT", "7420"),
            ("KVQUEUE_SERVICE_PORT_HTTP", "7420"),
            ("KVQUEUE_PORT", "tcp://10.0.0.1:7420"),
            ("KVQUEUE_PORT_7420_TCP", "tcp://10.0.0.1:7420"),
            ("KVQUEUE_PORT_7420_TCP_ADDR", "10.0.0.1"),
            ("KVQUEUE_HTTP_SERVICE_HOST", "10.0.0.2"),
            ("KVQUEUE_HTTP_PORT", "tcp://10.0.0.2:7420"),
            ("KVQUEUE_REVISION", "abc"),
        ];
        let setting = ("KVQUEUE_LOG__LEVEL", "warn");
        let vars = kubernetes.into_iter().chain([setting]);
        let found = Environment::from_vars(vars.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let mut names = kubernetes.map(|(name, _)| name);
        names.sort_unstable();
        assert_eq!(found.ignored, names);
        assert_eq!(found.values().collect::<Vec<_>>(), [("log.level", "warn")]);
    }

    #[test]
    fn names_map_to_keys() {
        assert_eq!(key_of("KVQUEUE_DATABASE").as_deref(), Some("database"));
        assert_eq!(key_of("KVQUEUE_LOG__LEVEL").as_deref(), Some("log.level"));
        assert_eq!(
            key_of("KVQUEUE_QUEUES__EMAILS__HANDLER_TIMEOUT").as_deref(),
            Some("queues.emails.handler-timeout")
        );
    }

    #[test]
    fn variables_that_are_not_settings_are_ignored() {
        for name in ["PATH", "KVQUEUE_", "KVQUEUE_ITEM", "KVQUEUE_CONFIG", "KVQUEUE_TEST_CLUSTER_FILE"] {
            assert_eq!(key_of(name), None, "{name}");
        }
    }
}
