//! Errors in a configuration: the key, the value and the fix.

use std::path::PathBuf;

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read configuration {} (name a readable file with --config)", path.display())]
    Unreadable {
        /// The file as given.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file is not TOML.
    #[error("{} is not valid TOML; fix the line shown: {problem}", path.display())]
    Syntax {
        /// The file as given.
        path: PathBuf,
        /// Where, and what was expected there.
        problem: String,
    },
    /// A key that does not exist, or a value of the wrong type.
    #[error("{key}: {problem} ({origin}); see kvqueue.toml(5), or run: kvqueue config manual")]
    Key {
        /// The dotted path of the key.
        key: String,
        /// The problem, and the accepted values.
        problem: String,
        /// The file or the variable it came from.
        origin: String,
    },
    /// A value that is not permitted, alone or together with another.
    #[error("{key} = {value}: {problem}; {fix}")]
    Value {
        /// The dotted path of the key.
        key: String,
        /// The value as given.
        value: String,
        /// The reason.
        problem: String,
        /// The fix.
        fix: String,
    },
    /// A schedule that is not possible.
    #[error("{key}: {problem}")]
    Schedule {
        /// The dotted path of the key.
        key: String,
        /// The problem, and the fix.
        problem: String,
    },
    /// A handler could not be made from its settings.
    #[error("{key}: handler {handler:?}: {problem}")]
    Handler {
        /// The dotted path of the handler's settings.
        key: String,
        /// The handler's name.
        handler: String,
        /// The problem, and the fix.
        problem: String,
    },
}

impl ConfigError {
    /// The dotted path of the key at fault; empty if none is.
    pub(crate) fn key(&self) -> &str {
        match self {
            Self::Unreadable { .. } | Self::Syntax { .. } => "",
            Self::Key { key, .. }
            | Self::Value { key, .. }
            | Self::Schedule { key, .. }
            | Self::Handler { key, .. } => key,
        }
    }

    /// A value that is not permitted, with the reason and the fix.
    pub(crate) fn value(
        key: impl Into<String>,
        value: impl std::fmt::Display,
        problem: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self::Value { key: key.into(), value: value.to_string(), problem: problem.into(), fix: fix.into() }
    }
}

/// What people write into a queue's table that has another place or name, and what to write.
const OTHERS: &[(&[&str], &str)] = &[
    (&["k", "batch", "batch-size", "prefetch"], "`consumers = [{ count = 1, k = 10 }]`"),
    (&["count", "concurrency", "workers", "threads", "parallelism"], "`consumers = 4`"),
    (
        &["attempts", "max-attempts", "retries", "max-retries", "backoff"],
        "`retry = { max-attempts = 5, base = '1s' }`",
    ),
    (&["visibility-timeout", "visibility"], "`lease = '30s'`"),
    (&["timeout"], "`handler-timeout = '30s'`, or `lease`"),
    (&["expires", "expiry", "expire"], "`ttl = '1h'`"),
    (&["priority"], "`kind = 'priority'`; each push has its own `--priority`"),
    (&["env", "environment"], "variables of the daemon, which commands inherit"),
    (&["command", "url", "endpoint"], "`handler-config`, which is the table of the handler"),
    (&["cron", "every", "schedule"], "a table `[queues.NAME.schedules.SCHEDULE]`"),
    (
        &["running", "rate", "limit", "limits", "concurrency-limit", "rate-limit"],
        "`kind = 'keyed'` and `kvqueue limits`: limits are kept in the database, for all daemons",
    ),
];

/// A setting that the tables of queues have, and no other one.
const OF_QUEUES: &str = "handler-config";

/// Serde's error about an unknown key or value, with what may be meant, if that is known. The list of
/// all is left out then.
pub(super) fn with_suggestion(problem: &str) -> String {
    let names: Vec<_> = problem.split('`').skip(1).step_by(2).collect();
    let is_known = problem.starts_with("unknown field") || problem.starts_with("unknown variant");
    let Some((&wrong, names)) = names.split_first().filter(|_| is_known) else { return problem.to_owned() };
    let unknown = problem.split(',').next().unwrap_or(problem);
    let other = OTHERS.iter().find(|(others, _)| names.contains(&OF_QUEUES) && others.contains(&wrong));
    match (other, nearest(wrong, names.iter().copied())) {
        (Some((_, write)), _) => format!("{unknown}; what you may want is {write}"),
        (None, Some(near)) => format!("{unknown}; did you mean `{near}`?"),
        (None, None) => problem.to_owned(),
    }
}

/// The one of `names` that the user may have meant by `wrong`.
pub(crate) fn nearest<'n>(wrong: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let distances = names.map(|name| (strsim::damerau_levenshtein(wrong, name), name));
    distances.filter(|(distance, name)| *distance * 3 <= name.len()).min().map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_nearly_right_gets_a_suggestion() {
        let unknown = |name: &str| {
            with_suggestion(&format!(
                "unknown field `{name}`, expected one of `consumers`, `lease`, `k`, `retry`"
            ))
        };
        assert_eq!(unknown("consumer"), "unknown field `consumer`; did you mean `consumers`?");
        assert_eq!(unknown("lesae"), "unknown field `lesae`; did you mean `lease`?");
        for far in ["colour", "kk", "", "x"] {
            assert!(unknown(far).ends_with("`k`, `retry`"), "{}", unknown(far));
        }
        let in_queue = |name: &str| {
            with_suggestion(&format!("unknown field `{name}`, expected one of `consumers`, `handler-config`"))
        };
        let k = "unknown field `k`; what you may want is `consumers = [{ count = 1, k = 10 }]`";
        assert_eq!(in_queue("k"), k);
        assert!(in_queue("rate").contains("kvqueue limits"), "{}", in_queue("rate"));
        for name in OTHERS.iter().flat_map(|(names, _)| *names) {
            assert!(in_queue(name).contains("what you may want"), "{}", in_queue(name));
        }
        let other = "invalid type: string \"many\", expected a whole number";
        assert_eq!(with_suggestion(other), other);
    }
}
