//! The handler of a queue.

use std::{fmt, sync::Arc, time::Duration};

use super::{BatchHandler, Handler};

/// A queue's handler: for one item, or for all items of a fetch together.
#[derive(Clone)]
pub(crate) enum AnyHandler {
    /// One call per item.
    Each(Arc<dyn Handler>),
    /// One call for the items of one fetch.
    Batch(Arc<dyn BatchHandler>),
}

impl AnyHandler {
    /// Why the handler is likely not to work.
    pub(crate) fn warning(&self) -> Option<String> {
        match self {
            Self::Each(handler) => handler.warning(),
            Self::Batch(handler) => handler.warning(),
        }
    }

    /// The time limit at which the daemon ends a call.
    pub(crate) fn limit(&self, configured: Option<Duration>) -> Option<Duration> {
        match self {
            Self::Each(handler) if handler.limits_itself() => None,
            Self::Batch(handler) if handler.limits_itself() => None,
            Self::Each(_) | Self::Batch(_) => configured,
        }
    }

    /// How many of these items go into one call.
    pub(crate) fn items_of_a_call(&self, items: usize) -> usize {
        match self {
            Self::Each(_) => items.min(1),
            Self::Batch(_) => items,
        }
    }
}

impl fmt::Debug for AnyHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Each(_) => "Each",
            Self::Batch(_) => "Batch",
        })
    }
}
