//! A metric: its name, its help text, and where its figures come from.

use super::{Histogram, QueueMeters, scrape::Scrape, text::Samples};

/// How a metric's figures are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// They only rise: from 0 at the start of the process, or, if the database counts, from 0 when the queue was made.
    Counter,
    /// They rise and fall.
    Gauge,
    /// Durations in buckets.
    Histogram,
}

/// One metric, as the catalogue has it.
pub(crate) struct Metric {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) labels: &'static [&'static str],
    /// One sentence without its full stop; Prometheus shows it, and docs/METRICS.md.
    pub(crate) help: &'static str,
    pub(super) figures: Figures,
}

/// One figure of a queue's meters.
pub(super) type Read = fn(&QueueMeters) -> u64;

/// Where a metric's figures come from.
pub(super) enum Figures {
    /// One for each queue's meters.
    Queue(Read),
    /// Several for each, by the value of the second label.
    Queues(&'static [(&'static str, Read)]),
    /// One histogram for each.
    Timed(fn(&QueueMeters) -> &Histogram),
    /// From elsewhere.
    Other(fn(&Scrape<'_>, &mut Samples<'_>)),
}

impl Kind {
    /// As the text format has it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}
