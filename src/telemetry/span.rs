//! The span of a call of a handler: what is logged in it names the item, or the queue if the call
//! is for several items.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use kvqueue_queue::Item;
use tracing::{Span, field::Empty};

use super::traceparent::TraceParent;

/// The target of these spans. Every `log.level` that does not name it keeps it on, so that what is logged of an item at any level
/// names the item.
pub const TARGET: &str = module_path!();

/// The span of a call of the handler. It continues the trace that an item was pushed for; the
/// traces of several items are linked to it.
pub(crate) fn of(queue: &str, handler: &str, items: &[Item]) -> Span {
    let [item] = items else {
        let span = tracing::error_span!(target: TARGET, "items", %queue, %handler, items = items.len(), otel.kind = kind());
        items.iter().filter_map(TraceParent::of).for_each(|parent| link(&span, parent));
        return span;
    };
    let parent = TraceParent::of(item);
    let span = tracing::error_span!(
        target: TARGET,
        "item",
        %queue,
        item = %item.id,
        attempt = item.attempt,
        %handler,
        trace_parent = parent.map(tracing::field::display),
        outcome = Empty,
        otel.kind = kind(),
        otel.status_code = Empty,
    );
    if let Some(parent) = parent {
        go_on(&span, parent);
    }
    span
}

/// Whether it matters to somebody that an item is done: to traces, or to the subscriber of a program that kvqueue is a part of.
static DONE: AtomicBool = AtomicBool::new(true);

/// Notes whether spans are for traces too, or for the log alone.
pub(super) fn heard_by(traces: bool) {
    DONE.store(traces, Relaxed);
}

/// Whether the log names the item of the current span already, so that an event need not. Not where the span is for traces alone.
pub(crate) fn names_item() -> bool {
    !DONE.load(Relaxed) && Span::current().metadata().is_some_and(|span| span.name() == "item")
}

/// Records the outcome of the item whose span this is.
pub(crate) fn outcome(span: impl FnOnce() -> Span, outcome: &'static str) {
    // Nothing more is logged of a done item, so only traces need its outcome.
    if outcome == "done" && !DONE.load(Relaxed) {
        return;
    }
    let span = span();
    span.record("outcome", outcome);
    if kind().is_some() && matches!(outcome, "retry" | "dead" | "lost") {
        span.record("otel.status_code", "ERROR");
    }
}

#[cfg(feature = "otel")]
use super::otel::{go_on, kind, link};

/// Only traces tell kinds of spans apart.
#[cfg(not(feature = "otel"))]
fn kind() -> Option<&'static str> {
    None
}

#[cfg(not(feature = "otel"))]
fn go_on(_: &Span, _: TraceParent) {}

#[cfg(not(feature = "otel"))]
fn link(_: &Span, _: TraceParent) {}
