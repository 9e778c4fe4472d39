//! The metrics of the process, in the OpenMetrics text format for Prometheus.
//!
//! The catalogue lists every metric with its name, help text and source, which is a meter of the room `meters` or is computed from the
//! daemon's status. To add a metric, add it there and to docs/METRICS.md; tests compare the two, and require that the dashboard shows
//! every metric of a queue.

mod catalogue;
mod computed;
mod scrape;
#[cfg(test)]
mod tests;

pub(crate) use scrape::{CONTENT_TYPE, render};
