//! What is logged: levels, by target.

use std::sync::OnceLock;

use tracing_subscriber::{
    Registry,
    filter::{LevelFilter, Targets},
    reload,
};

use super::span;
use crate::config::ConfigError;

/// By which levels are changed.
pub(super) type Levels = reload::Handle<Targets, Registry>;

/// Those of the process's log, once it has one.
static LEVELS: OnceLock<Levels> = OnceLock::new();

/// A filter for what is written, and by what it is changed.
pub(super) fn filter(text: &str) -> Result<(reload::Layer<Targets, Registry>, Levels), ConfigError> {
    Ok(reload::Layer::new(parse(text)?))
}

/// These are the process's.
pub(super) fn keep(levels: Levels) {
    // Where there is one already, `try_init` has failed.
    let _ = LEVELS.set(levels);
}

/// Changes what is logged from now on, for all threads. Where the log is an embedding program's, this is for that to do, and nothing
/// happens.
///
/// # Errors
/// The text names no level.
pub fn set(text: &str) -> Result<(), ConfigError> {
    let levels = parse(text)?;
    if let Some(handle) = LEVELS.get() {
        change(handle, levels);
    }
    Ok(())
}

pub(super) fn change(handle: &Levels, levels: Targets) {
    // It fails where the subscriber is gone: then there is no log either.
    let _ = handle.reload(levels);
}

/// What others' code says of itself at levels that are ours to give: of threads it starts, and of every request that is no HTTP, an error. It
/// is logged if it is named, as in `actix_http=debug`.
const NOISE: [(&str, LevelFilter); 2] =
    [("actix_http", LevelFilter::OFF), ("actix_server", LevelFilter::WARN)];

/// The spans of items are there whatever is logged. An event without its span would not name its item.
const SPANS: (&str, LevelFilter) = (span::TARGET, LevelFilter::ERROR);

/// Reads `info` or `info,kvqueue::actors=debug`.
pub(crate) fn parse(text: &str) -> Result<Targets, ConfigError> {
    let mut targets = Targets::new().with_targets(NOISE).with_targets([SPANS]);
    for part in text.split(',').map(str::trim) {
        let (target, level) = match part.split_once('=') {
            Some((target, level)) => (Some(target), level),
            None => (None, part),
        };
        // No level would parse as "error", and that is nobody's wish.
        let parsed = if level.is_empty() { None } else { level.parse::<LevelFilter>().ok() };
        let level = parsed.ok_or_else(|| error(text, level))?;
        targets = match target {
            Some(target) => targets.with_target(target, level),
            None => targets.with_default(level),
        };
    }
    Ok(targets)
}

fn error(text: &str, level: &str) -> ConfigError {
    ConfigError::value(
        "log.level",
        format_args!("{text:?}"),
        format!("{level:?} is not a level"),
        "use error, warn, info, debug or trace, alone or by target as in \"info,kvqueue::actors=debug\"",
    )
}
