//! What is wrong with a configuration: the key, the value and the fix.

use std::path::PathBuf;

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read configuration {} (name a readable file with --config)", path.display())]
    Unreadable {
        /// The file as given.
        path: PathBuf,
        /// What the system said.
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
    #[error("{key}: {problem} ({origin}); see docs/CONFIG.md")]
    Key {
        /// The dotted path of the key.
        key: String,
        /// What is wrong and what is accepted.
        problem: String,
        /// The file or the variable it came from.
        origin: String,
    },
    /// A value that no setting may have, alone or beside another.
    #[error("{key} = {value}: {problem}; {fix}")]
    Value {
        /// The dotted path of the key.
        key: String,
        /// The value as given.
        value: String,
        /// Why it cannot be.
        problem: String,
        /// What to do.
        fix: String,
    },
    /// A handler could not be made from its settings.
    #[error("{key}: handler {handler:?}: {problem}")]
    Handler {
        /// The dotted path of the handler's settings.
        key: String,
        /// The handler's name.
        handler: String,
        /// What it found, and the fix.
        problem: String,
    },
}

impl ConfigError {
    /// A value that cannot be, with the reason and the fix.
    pub(crate) fn value(
        key: impl Into<String>,
        value: impl std::fmt::Display,
        problem: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self::Value { key: key.into(), value: value.to_string(), problem: problem.into(), fix: fix.into() }
    }
}
