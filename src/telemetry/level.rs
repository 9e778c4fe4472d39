//! The log levels, by target.

use std::sync::OnceLock;

use tracing_subscriber::{
    Registry,
    filter::{LevelFilter, Targets},
    reload,
};

use super::span;
use crate::config::{ConfigError, log_levels};

/// The handle that changes levels.
pub(super) type Levels = reload::Handle<Targets, Registry>;

/// The handle of the process's log, once it has one.
static LEVELS: OnceLock<Levels> = OnceLock::new();

/// A filter of events, and the handle that changes it.
pub(super) fn filter(text: &str) -> Result<(reload::Layer<Targets, Registry>, Levels), ConfigError> {
    Ok(reload::Layer::new(parse(text)?))
}

/// Makes this the handle of the process's log.
pub(super) fn keep(levels: Levels) {
    // Where there is one already, `try_init` has failed.
    let _ = LEVELS.set(levels);
}

/// Changes what is logged from now on, for all threads. Does nothing if an embedding program has
/// its own log.
///
/// # Errors
/// The text is not a level.
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

/// Quiets actix, which logs the threads that it starts, and each request that is not HTTP as an
/// error. It is logged if `log.level` names it, as in `actix_http=debug`.
const NOISE: [(&str, LevelFilter); 2] =
    [("actix_http", LevelFilter::OFF), ("actix_server", LevelFilter::WARN)];

/// The spans of items are always on: an event without its span would not name its item.
const SPANS: (&str, LevelFilter) = (span::TARGET, LevelFilter::ERROR);

/// The targets of `info` or `info,kvqueue::actors=debug`.
pub(super) fn parse(text: &str) -> Result<Targets, ConfigError> {
    let targets = Targets::new().with_targets(NOISE).with_targets([SPANS]);
    Ok(log_levels(text)?.into_iter().fold(targets, |targets, (target, level)| match target {
        Some(target) => targets.with_target(target, level),
        None => targets.with_default(level),
    }))
}
