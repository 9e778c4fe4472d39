//! `KVQUEUE_LOG__LEVEL` is `log.level`: two underscores separate, one is a hyphen.

use std::collections::HashMap;

const PREFIX: &str = "KVQUEUE_";

/// Variables that begin alike and are not settings: the file's name, and what the `exec` handler tells its
/// commands (which may well call `kvqueue push`).
const RESERVED: [&str; 7] = [
    "KVQUEUE_CONFIG",
    "KVQUEUE_QUEUE",
    "KVQUEUE_ITEM",
    "KVQUEUE_ATTEMPT",
    "KVQUEUE_ATTRIBUTES",
    "KVQUEUE_CONTENT_TYPE",
    "KVQUEUE_ENQUEUED_AT",
];

/// Set by test runs; no setting starts so.
const RESERVED_PREFIX: &str = "KVQUEUE_TEST_";

/// Where systemd has a service keep its data (`StateDirectory=`): directories, separated by colons.
const STATE_DIRECTORY: &str = "STATE_DIRECTORY";

/// The settings among environment variables, and which variable gave each.
#[derive(Debug, Default)]
pub(super) struct Environment {
    values: HashMap<String, String>,
    names: HashMap<String, String>,
    state_directory: Option<String>,
}

impl Environment {
    pub(super) fn from_vars(vars: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut found = Self::default();
        for (name, value) in vars {
            if name == STATE_DIRECTORY {
                let first = value.split(':').next().filter(|directory| !directory.is_empty());
                found.state_directory = first.map(str::to_owned);
            } else if let Some(key) = key_of(&name) {
                found.values.insert(key.clone(), value);
                found.names.insert(key, name);
            }
        }
        found
    }

    /// The values by key, as a source for the `config` crate.
    pub(super) fn source(&self) -> config::Environment {
        config::Environment::default().separator(".").source(Some(self.values.clone()))
    }

    /// The first directory that systemd has made for this service's data.
    pub(super) fn state_directory(&self) -> Option<&str> {
        self.state_directory.as_deref()
    }

    /// The variable that set `key`, or something below it.
    pub(super) fn variable_of(&self, key: &str) -> Option<&str> {
        let below = format!("{key}.");
        self.names
            .iter()
            .find(|(found, _)| found.as_str() == key || found.starts_with(&below))
            .map(|(_, name)| name.as_str())
    }
}

/// Whether a variable is no setting although it begins like one.
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
    use super::key_of;

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
    fn other_variables_are_left_alone() {
        for name in ["PATH", "KVQUEUE_", "KVQUEUE_ITEM", "KVQUEUE_CONFIG", "KVQUEUE_TEST_CLUSTER_FILE"] {
            assert_eq!(key_of(name), None, "{name}");
        }
    }
}
