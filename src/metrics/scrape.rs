//! All that the metrics are written from, at one moment.

use std::sync::Arc;

use super::{CATALOGUE, Metrics, QueueMeters, family::Figures, process::Process, text::Samples};
use crate::status::{QueueJson, Snapshot};

/// What is written, in its `Content-Type`.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// One moment.
pub(crate) struct Scrape<'a> {
    pub(super) metrics: &'a Metrics,
    pub(super) snapshot: &'a Snapshot,
    pub(super) process: Process,
    queues: Vec<(Arc<str>, Arc<QueueMeters>)>,
}

/// Writes all metrics for Prometheus to read. Their order is that of the catalogue.
pub(crate) fn render(metrics: &Metrics, snapshot: &Snapshot, out: &mut String) {
    let scrape = Scrape { metrics, snapshot, process: Process::now(), queues: metrics.queues() };
    for metric in CATALOGUE {
        scrape.write(&metric.figures, &mut Samples::begin(metric, out));
    }
}

impl Scrape<'_> {
    fn write(&self, figures: &Figures, samples: &mut Samples<'_>) {
        match figures {
            Figures::Other(write) => write(self, samples),
            Figures::Queue(read) => {
                self.queues.iter().for_each(|(name, meters)| samples.add(&[name], read(meters)));
            }
            Figures::Queues(reads) => {
                for (name, meters) in &self.queues {
                    reads.iter().for_each(|(value, read)| samples.add(&[name, value], read(meters)));
                }
            }
            Figures::Timed(read) => {
                for (name, meters) in &self.queues {
                    samples.add_histogram(&[name], &read(meters).read());
                }
            }
        }
    }

    /// The queues of the configuration in force.
    pub(super) fn configured(&self) -> impl Iterator<Item = &QueueJson> {
        self.snapshot.queues.iter()
    }
}
