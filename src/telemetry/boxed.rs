//! Layers of the log of any kind.

use tracing_subscriber::{Registry, layer::Layer};

/// A layer that gets events and spans.
pub(super) type Boxed = Box<dyn Layer<Registry> + Send + Sync>;
