//! How long something took, many times.

use hdrhistogram::Histogram;
use serde_json::{Value, json};

/// Digits that are kept of each time.
const DIGITS: u8 = 3;

/// Times in nanoseconds.
#[derive(Debug)]
pub(super) struct Latency(Histogram<u64>);

impl Latency {
    pub(super) fn of(nanos: impl IntoIterator<Item = u64>) -> Self {
        let mut histogram = Histogram::new(DIGITS).expect("0 to 5 digits can be kept");
        for nanos in nanos {
            histogram.record(nanos).expect("it grows as it has to");
        }
        Self(histogram)
    }

    /// In microseconds; `null` if there were none.
    pub(super) fn json(&self) -> Value {
        if self.0.is_empty() {
            return Value::Null;
        }
        let at = |quantile| micros(self.0.value_at_quantile(quantile));
        json!({"p50": at(0.5), "p99": at(0.99), "p99_9": at(0.999), "max": micros(self.0.max())})
    }
}

/// To a tenth of a microsecond.
fn micros(nanos: u64) -> f64 {
    (nanos as f64 / 100.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_in_microseconds() {
        let latency = Latency::of((1..=1000).map(|n| n * 1_000));
        assert_eq!(latency.json(), json!({"p50": 500.2, "p99": 990.2, "p99_9": 999.4, "max": 1000.4}));
        assert_eq!(Latency::of([]).json(), Value::Null);
    }
}
