//! `log.level`.

use tracing_subscriber::filter::LevelFilter;

use super::ConfigError;

/// Reads `info` or `info,kvqueue::actors=debug`: levels, each with its target if it has one.
pub(crate) fn log_levels(text: &str) -> Result<Vec<(Option<&str>, LevelFilter)>, ConfigError> {
    text.split(',').map(|part| level(text, part.trim())).collect()
}

/// Reads one of the parts of `text`.
fn level<'t>(text: &str, part: &'t str) -> Result<(Option<&'t str>, LevelFilter), ConfigError> {
    let (target, level) = match part.split_once('=') {
        Some((target, level)) => (Some(target), level),
        None => (None, part),
    };
    // An empty text would parse as "error".
    let parsed = if level.is_empty() { None } else { level.parse().ok() };
    Ok((target, parsed.ok_or_else(|| error(text, level))?))
}

fn error(text: &str, level: &str) -> ConfigError {
    ConfigError::value(
        "log.level",
        format_args!("{text:?}"),
        format!("{level:?} is not a level"),
        "use error, warn, info, debug or trace, alone or by target as in \"info,kvqueue::actors=debug\"",
    )
}
