//! Logs, to stderr or to the journal, and a span for each item.
//!
//! | file | role |
//! |---|---|
//! | `output` | in which form, by the configuration and by where the process runs |
//! | `human` | lines for people |
//! | `journal` | the journal's native protocol |
//! | `level` | what is logged; it can change while the process runs |
//! | `span` | what is logged, or traced, of an item's call belongs to it |
//! | `traceparent` | the trace that an item was pushed for |
//! | `otel` (feature) | spans to a collector, by OTLP over HTTP |

mod human;
mod journal;
mod level;
#[cfg(feature = "otel")]
pub(crate) mod otel;
mod output;
pub(crate) mod span;
#[cfg(test)]
mod tests;
mod traceparent;

use std::any::Any;

use kvqueue_queue::Item;
use tracing_subscriber::{
    Registry, fmt,
    layer::{Layer, SubscriberExt},
    util::SubscriberInitExt,
};

use self::{output::Output, traceparent::TraceParent};
use crate::config::{ConfigError, Log};

pub(crate) use level::parse as parse_level;
pub use level::set as set_level;

/// Something that hears of events and spans.
type Boxed = Box<dyn Layer<Registry> + Send + Sync>;

/// Starts logging for the rest of the process; panics are logged like everything else from here on.
///
/// When a subscriber is set already (an embedding program's), that one stays.
///
/// # Errors
/// `log.level` is none; or `log.format` is `journald`, and there is no journal.
pub fn init(log: &Log) -> Result<(), ConfigError> {
    start(log, || None)
}

/// As [`init`], for a daemon: with the feature `otel`, and where the environment names a collector, spans of items are sent there. Call
/// [`finish`] at the end.
///
/// # Errors
/// As [`init`].
pub fn init_daemon(log: &Log) -> Result<(), ConfigError> {
    start(log, traces)
}

fn start(log: &Log, traces: impl FnOnce() -> Option<Boxed>) -> Result<(), ConfigError> {
    let (filter, levels) = level::filter(&log.level)?;
    let lines: Boxed = match Output::of(log.format)? {
        Output::Human => human::layer(),
        Output::Json => fmt::layer().with_writer(std::io::stderr).json().flatten_event(true).boxed(),
        Output::Journal(journal) => journal.boxed(),
    };
    let mut layers = vec![lines.with_filter(filter).boxed()];
    layers.extend(traces());
    let traced = layers.len() > 1;
    if tracing_subscriber::registry().with(layers).try_init().is_ok() {
        level::keep(levels);
        span::heard_by(traced);
        std::panic::set_hook(Box::new(log_panic));
    }
    Ok(())
}

/// Waits until what was traced has been sent, though not for long. Nothing is traced after it.
pub fn finish() {
    #[cfg(feature = "otel")]
    otel::finish();
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
