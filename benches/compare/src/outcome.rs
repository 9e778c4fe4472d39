//! What one system did in one cell, once.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::Serialize;

/// A named number. Names end with their unit.
pub type Figures = BTreeMap<String, f64>;

/// Items a second: acknowledged pushes, or finished items.
pub const PER_SECOND: &str = "per_second";
/// Pushes a second next to the pops of the flood cell.
pub const PUSHES_PER_SECOND: &str = "pushes_per_second";
/// From the push call (sustained: from when it should have been made) to the handler's start.
pub const START_P50: &str = "start_p50_us";
/// CPU seconds a second, in percent of one core.
pub const CPU: &str = "cpu_percent";
/// Memory in use: each page's share of the processes that map it.
pub const RESIDENT: &str = "resident_kib";
/// Conflicts for a hundred takes.
pub const CONFLICTS: &str = "conflicts_per_100_takes";

/// What one system did in one cell, once.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// The numbers.
    pub figures: Figures,
    /// Items that were acknowledged and never seen again.
    pub lost: u64,
    /// Times an item was handled after the first.
    pub repeated: u64,
}

impl Outcome {
    /// With one number more.
    pub fn with(mut self, name: &str, value: f64) -> Self {
        self.figures.insert(name.to_owned(), value);
        self
    }

    /// With the quantiles of a histogram of microseconds.
    pub fn with_latency(mut self, prefix: &str, latency: &Histogram<u64>) -> Self {
        for (name, quantile) in [("p50", 0.5), ("p99", 0.99), ("p99_9", 0.999)] {
            self = self.with(&format!("{prefix}_{name}_us"), as_f64(latency.value_at_quantile(quantile)));
        }
        self.with(&format!("{prefix}_max_us"), as_f64(latency.max()))
    }
}

/// A histogram of microseconds up to a minute, to three digits.
pub fn microseconds() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000, 3).expect("the bounds are in order and the digits at most five")
}

/// A count as a number to calculate with; exact below 2^53.
pub fn as_f64(count: u64) -> f64 {
    count as f64
}
