//! Logs, to stderr or to the journal, and a span for each item.
//!
//! | file | role |
//! |---|---|
//! | `output` | in which form, by the configuration and by where the process runs |
//! | `human` | lines for people |
//! | `json` | lines of JSON |
//! | `journal` | the journal's native protocol |
//! | `out`, `writer` | where messages go; the thread that writes them |
//! | `level` | what is logged; it can change while the process runs |
//! | `events` | tests: the codes of events are those of docs/EVENTS.md |
//! | `list` | lists of names of a bounded length |
//! | `span` | what is logged, or traced, of an item's call belongs to it |
//! | `traceparent` | the trace that an item was pushed for |
//! | `otel` (feature) | spans to a collector, by OTLP over HTTP |

#[cfg(test)]
mod events;
mod human;
mod journal;
mod json;
mod level;
mod list;
#[cfg(feature = "otel")]
pub(crate) mod otel;
mod out;
mod output;
pub(crate) mod span;
#[cfg(test)]
mod tests;
mod traceparent;
mod writer;

use std::any::Any;

use kvqueue_queue::Item;
use tracing_subscriber::{
    Registry,
    layer::{Layer, SubscriberExt},
    util::SubscriberInitExt,
};

pub(crate) use self::traceparent::{NO_TRACE_PARENT, is_trace_parent};
use self::{
    json::Objects,
    out::{Out, to_stderr},
    output::Output,
    traceparent::TraceParent,
};
use crate::config::{ConfigError, Log};

pub(crate) use level::parse as parse_level;
pub use level::set as set_level;
pub(crate) use list::listed;
pub(crate) use out::{dropped, flush, note};
pub use span::TARGET as SPAN_TARGET;

/// Something that hears of events and spans.
type Boxed = Box<dyn Layer<Registry> + Send + Sync>;

/// Starts logging for the rest of the process; panics are logged like everything else from here on. A thread writes the log, so that a
/// reader that stalls holds up nothing: what it has no room for is dropped and counted. [`finish`] writes what is left.
///
/// When a subscriber is set already (an embedding program's), that one stays.
///
/// # Errors
/// `log.level` is none; or `log.format` is `journald`, and there is no journal.
pub fn init(log: &Log) -> Result<(), ConfigError> {
    start(log, true, || None)
}

/// As [`init`], for a command that ends soon: it waits for each message to be written.
///
/// # Errors
/// As [`init`].
pub(crate) fn init_command(log: &Log) -> Result<(), ConfigError> {
    start(log, false, || None)
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
            (Objects(out.clone()).boxed(), out, true)
        }
        Output::Journal => {
            let journal = journal::layer(queued);
            let out = journal.out().clone();
            (journal.boxed(), out, false)
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

/// Waits until what was traced has been sent, and what was logged is written, though not for long. Nothing is traced after it.
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

/// What the embedded engine cannot tell any caller.
fn log_engine(message: &str) {
    tracing::warn!(target: "fdb_embedded", event = "engine_warning", "{message}");
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

/// What a panic said.
pub(crate) fn panic_text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
