//! Logs: to stderr, for people or as JSON.

use std::{any::Any, io::IsTerminal};

use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    fmt,
    layer::{Layer, SubscriberExt},
    util::SubscriberInitExt,
};

use crate::config::{ConfigError, Log, LogFormat};

/// Starts logging for the rest of the process; panics are logged like everything else from here on.
///
/// When a subscriber is set already (an embedding program's), that one stays.
pub fn init(log: &Log) -> Result<(), ConfigError> {
    let levels = parse_level(&log.level)?;
    let registry = tracing_subscriber::registry();
    let lines = fmt::layer().with_writer(std::io::stderr);
    let started = match log.format {
        LogFormat::Human => {
            let lines = lines.with_ansi(std::io::stderr().is_terminal()).with_target(false);
            registry.with(lines.with_filter(levels)).try_init()
        }
        LogFormat::Json => registry.with(lines.json().flatten_event(true).with_filter(levels)).try_init(),
    };
    if started.is_ok() {
        std::panic::set_hook(Box::new(log_panic));
    }
    Ok(())
}

fn log_panic(panic: &std::panic::PanicHookInfo<'_>) {
    let thread = std::thread::current();
    tracing::error!(
        reason = panic_text(panic.payload()),
        location = panic.location().map(tracing::field::display),
        thread = thread.name().unwrap_or("unnamed"),
        "panic"
    );
}

/// What a panic said.
pub(crate) fn panic_text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// Reads `info` or `info,kvqueue::actors=debug`.
pub(crate) fn parse_level(text: &str) -> Result<Targets, ConfigError> {
    let mut targets = Targets::new();
    for part in text.split(',').map(str::trim) {
        let (target, level) = match part.split_once('=') {
            Some((target, level)) => (Some(target), level),
            None => (None, part),
        };
        // No level would parse as "error", and that is nobody's wish.
        let parsed = if level.is_empty() { None } else { level.parse::<LevelFilter>().ok() };
        let level = parsed.ok_or_else(|| level_error(text, level))?;
        targets = match target {
            Some(target) => targets.with_target(target, level),
            None => targets.with_default(level),
        };
    }
    Ok(targets)
}

fn level_error(text: &str, level: &str) -> ConfigError {
    ConfigError::value(
        "log.level",
        format_args!("{text:?}"),
        format!("{level:?} is not a level"),
        "use error, warn, info, debug or trace, alone or by target as in \"info,kvqueue::actors=debug\"",
    )
}
