//! Logs, to stderr or to the journal, and a span for each item.

mod boxed;
mod destination;
#[cfg(test)]
mod events;
mod human;
mod journal;
mod level;
#[cfg(feature = "otel")]
pub(crate) mod otel;
pub(crate) mod span;
mod structured;
#[cfg(test)]
mod tests;
mod traceparent;
mod writer;

use std::{
    any::Any,
    env, fs,
    io::{self, IsTerminal},
    os::{fd::AsFd, linux::fs::MetadataExt},
};

use kvqueue_queue::Item;
use tracing_subscriber::{
    layer::{Layer, SubscriberExt},
    util::SubscriberInitExt,
};

use self::{
    boxed::Boxed,
    destination::{Out, to_stderr},
    structured::{Gathered, Json},
    traceparent::TraceParent,
};
use crate::config::{ConfigError, Log, LogFormat};

pub(crate) use self::traceparent::{NO_TRACE_PARENT, is_trace_parent};

pub(crate) use destination::{dropped, flush, note};
pub use level::set as set_level;
pub use span::TARGET as SPAN_TARGET;

/// Starts logging for the rest of the process; from here on, panics are logged too. A thread writes the log, so
/// a reader that stalls blocks nothing: messages that it has no room for are dropped and counted. [`finish`]
/// writes the rest.
///
/// If an embedding program has set a subscriber, that one stays.
///
/// # Errors
/// `log.level` is not a level; or `log.format` is `journald`, and there is no journal.
pub fn init(log: &Log) -> Result<(), ConfigError> {
    start(log, true, || None)
}

/// As [`init`], for a command that ends soon: it waits for each message to be written. At a terminal it writes for people, whatever
/// the daemon's format is.
///
/// # Errors
/// As [`init`].
pub(crate) fn init_command(log: &Log) -> Result<(), ConfigError> {
    let mut log = log.clone();
    if io::stderr().is_terminal() {
        log.format = LogFormat::Human;
    }
    start(&log, false, || None)
}

/// As [`init`], for a daemon: with the feature `otel`, and where the environment names a collector, spans of items are sent there. Call
/// [`finish`] at the end.
///
/// # Errors
/// As [`init`].
pub fn init_daemon(log: &Log) -> Result<(), ConfigError> {
    start(log, true, traces)
}

fn start(log: &Log, queued: bool, traces: impl FnOnce() -> Option<Boxed>) -> Result<(), ConfigError> {
    let (filter, levels) = level::filter(&log.level)?;
    let stderr = || Out::to(to_stderr, queued);
    let (lines, out, is_stderr): (Boxed, Out, bool) = match Output::of(log.format)? {
        Output::Human => {
            let out = stderr();
            (human::layer(out.clone()), out, true)
        }
        Output::Json => {
            let out = stderr();
            (Gathered(Json(out.clone())).boxed(), out, true)
        }
        Output::Journal => {
            let journal = journal::open(queued);
            let out = journal.out().clone();
            (Gathered(journal).boxed(), out, false)
        }
    };
    let mut layers = vec![lines.with_filter(filter).boxed()];
    layers.extend(traces());
    let traced = layers.len() > 1;
    if tracing_subscriber::registry().with(layers).try_init().is_ok() {
        level::keep(levels);
        out.keep(is_stderr);
        span::heard_by(traced);
        std::panic::set_hook(Box::new(log_panic));
        fdb_embedded::report_to(log_engine);
    }
    Ok(())
}

/// Waits a short time until traces are sent and the log is written. Nothing is traced after it.
pub fn finish() {
    #[cfg(feature = "otel")]
    otel::finish();
    flush();
}

#[cfg(feature = "otel")]
fn traces() -> Option<Boxed> {
    otel::layer()
}

#[cfg(not(feature = "otel"))]
fn traces() -> Option<Boxed> {
    None
}

/// The W3C `traceparent` for what a handler sets off for an item, such as a request to another service: of the current span, if spans are
/// exported (feature `otel`), and else the one that the item was pushed with, if it is well-formed.
pub fn trace_parent(item: &Item) -> Option<String> {
    here().or_else(|| TraceParent::of(item)).map(|parent| parent.to_string())
}

#[cfg(feature = "otel")]
use otel::here;

#[cfg(not(feature = "otel"))]
fn here() -> Option<TraceParent> {
    None
}

/// Logs what the embedded engine cannot report to a caller.
fn log_engine(message: &str) {
    tracing::warn!(
        target: "fdb_embedded",
        event = "engine_warning",
        reason = message,
        "the embedded engine reports a problem"
    );
}

fn log_panic(panic: &std::panic::PanicHookInfo<'_>) {
    let thread = std::thread::current();
    tracing::error!(
        event = "panicked",
        reason = panic_text(panic.payload()),
        location = panic.location().map(tracing::field::display),
        thread = thread.name().unwrap_or("unnamed"),
        "a thread panicked"
    );
}

/// The message of a panic.
pub(crate) fn panic_text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// Where events go.
enum Output {
    Human,
    Json,
    Journal,
}

impl Output {
    /// The output of a setting. `auto` is the journal if stderr goes there anyway, and otherwise
    /// lines for people.
    fn of(format: LogFormat) -> Result<Self, ConfigError> {
        match format {
            LogFormat::Human => Ok(Self::Human),
            LogFormat::Json => Ok(Self::Json),
            LogFormat::Journald => journal::probe().map(|()| Self::Journal).map_err(|error| {
                ConfigError::value(
                    "log.format",
                    "\"journald\"",
                    format!("there is no journal to write to: {error}"),
                    "use \"auto\", \"human\" or \"json\", or run it where systemd-journald runs",
                )
            }),
            // A journal that takes lines and no messages is one of another kind.
            LogFormat::Auto if is_journal() => Ok(journal::probe().map_or(Self::Human, |()| Self::Journal)),
            LogFormat::Auto => Ok(Self::Human),
        }
    }
}

/// Whether stderr is the journal's: systemd names it in the environment, which may have been handed on to something that writes
/// elsewhere.
fn is_journal() -> bool {
    let Some(named) = env::var("JOURNAL_STREAM").ok().and_then(|text| device_and_inode(&text)) else {
        return false;
    };
    if io::stderr().is_terminal() {
        return false;
    }
    let stderr = io::stderr().as_fd().try_clone_to_owned();
    let there = stderr.and_then(|stderr| fs::File::from(stderr).metadata());
    there.is_ok_and(|there| named == (there.st_dev(), there.st_ino()))
}

/// `8:1234`, in decimal.
fn device_and_inode(text: &str) -> Option<(u64, u64)> {
    let (device, inode) = text.split_once(':')?;
    Some((device.parse().ok()?, inode.parse().ok()?))
}

/// A list is cut before it gets longer, in bytes. journald splits lines of more than 48 KiB.
const LONGEST_LIST: usize = 4 << 10;

/// Names with commas between them. A long list is cut: the first ones, and how many more there are.
pub(crate) fn listed(names: &[impl AsRef<str>]) -> String {
    let mut text = String::new();
    for (at, name) in names.iter().map(AsRef::as_ref).enumerate() {
        if at > 0 && text.len() + name.len() > LONGEST_LIST {
            return format!("{text} and {} more", names.len() - at);
        }
        if at > 0 {
            text.push_str(", ");
        }
        text.push_str(name);
    }
    text
}
