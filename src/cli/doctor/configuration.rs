//! Whether the settings are right.

use std::path::Path;

use super::findings::Findings;
use crate::config::{Config, ConfigError};

const ABOUT: &str = "config";

/// Says what `kvqueue config check` says.
pub(super) fn look(
    file: Option<&Path>,
    config: &Config,
    checked: Result<&[String], &ConfigError>,
    findings: &mut Findings,
) {
    let from = file.map_or_else(
        || "no file, only defaults and the environment".to_owned(),
        |file| file.display().to_string(),
    );
    match checked {
        Ok(warnings) => {
            findings.fine(ABOUT, format!("{from}: valid, queues: {}", config.queues.len()));
            for warning in warnings {
                findings.note(
                    ABOUT,
                    warning,
                    "a daemon of another user, directory or PATH may see it differently",
                );
            }
        }
        Err(error) => {
            findings.problem(
                ABOUT,
                format!("{from}: {error}"),
                "no daemon starts with it; kvqueue.toml(5) and `kvqueue config manual` have all keys",
            );
        }
    }
}
