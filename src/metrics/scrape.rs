//! Writing all metrics at one moment.

use std::{fmt, sync::Arc};

use prometheus_client::{
    collector::Collector,
    encoding::{
        DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeMetric, MetricEncoder, NoLabelSet,
        text,
    },
    metrics::{MetricType, counter::Counter, family::Family, histogram::Histogram},
    registry::Registry,
};

use super::catalogue::{CATALOGUE, Figures, Metric};
use crate::{
    meters::{Metrics, QueueMeters, Request},
    status::{QueueJson, Snapshot},
};

/// The `Content-Type` of the text.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Everything that the metrics are written from, at one moment.
#[derive(Debug)]
pub(crate) struct Scrape {
    pub(super) snapshot: Snapshot,
    pub(super) queues: Vec<(Arc<str>, Arc<QueueMeters>)>,
    /// Reloads that were applied, and reloads that were refused.
    pub(super) reloads: [Counter; 2],
    requests: Family<Request, Counter>,
    pub(super) displaced: Counter,
}

/// Returns all metrics as text, in the order of the catalogue.
pub(crate) fn render(metrics: &Metrics, snapshot: Snapshot) -> String {
    let scrape = Scrape {
        snapshot,
        queues: metrics.queues(),
        reloads: [metrics.reloads_applied.clone(), metrics.reloads_refused.clone()],
        requests: metrics.requests.clone(),
        displaced: metrics.displaced.clone(),
    };
    let mut registry = Registry::default();
    registry.register_collector(Box::new(scrape));
    let mut text = String::new();
    text::encode(&mut text, &registry).expect("a string takes everything that is written");
    text
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for metric in CATALOGUE {
            // The encoder appends the suffix of counters.
            let name = match metric.kind {
                MetricType::Counter => metric.name.trim_end_matches("_total"),
                _ => metric.name,
            };
            let encoder = encoder.encode_descriptor(name, &format!("{}.", metric.help), None, metric.kind)?;
            if let Figures::Requests = metric.figures {
                self.requests.encode(encoder)?;
                continue;
            }
            let mut samples = Samples { metric, encoder, result: Ok(()) };
            self.write(&mut samples);
            samples.result?;
        }
        Ok(())
    }
}

impl Scrape {
    fn write(&self, samples: &mut Samples<'_>) {
        match &samples.metric.figures {
            Figures::Computed(write) => write(self, samples),
            Figures::Requests => {}
            Figures::Queue(read) => {
                self.queues.iter().for_each(|(name, meters)| samples.counter(&[name], read(meters).get()));
            }
            Figures::Queues(reads) => {
                for (name, meters) in &self.queues {
                    reads
                        .iter()
                        .for_each(|(value, read)| samples.counter(&[name, value], read(meters).get()));
                }
            }
            Figures::Timed(read) => {
                self.queues.iter().for_each(|(name, meters)| samples.histogram(&[name], read(meters)));
            }
        }
    }

    /// The queues of the active configuration.
    pub(super) fn configured(&self) -> impl Iterator<Item = &QueueJson> {
        self.snapshot.queues.iter()
    }
}

/// Writes the samples of one metric.
pub(crate) struct Samples<'a> {
    metric: &'static Metric,
    encoder: MetricEncoder<'a>,
    /// The first error.
    result: fmt::Result,
}

impl Samples<'_> {
    /// A gauge's value, with the values of the metric's labels.
    pub(super) fn gauge(&mut self, values: &[&str], value: impl EncodeGaugeValue + Copy) {
        self.add(values, |encoder| encoder.encode_gauge(&value));
    }

    /// A counter's value, with the values of the metric's labels.
    pub(super) fn counter(&mut self, values: &[&str], value: impl EncodeCounterValue + Copy) {
        self.add(values, |encoder| encoder.encode_counter::<NoLabelSet, _, u64>(&value, None));
    }

    fn add(&mut self, values: &[&str], write: impl FnOnce(&mut MetricEncoder<'_>) -> fmt::Result) {
        let result = match values {
            [] => write(&mut self.encoder),
            values => {
                let labels = labels(self.metric, values);
                self.encoder.encode_family(&labels).and_then(|mut encoder| write(&mut encoder))
            }
        };
        self.result = self.result.and(result);
    }

    /// A histogram, with the values of the metric's labels.
    fn histogram(&mut self, values: &[&str], histogram: &Histogram) {
        let labels = labels(self.metric, values);
        let result = self.encoder.encode_family(&labels).and_then(|encoder| histogram.encode(encoder));
        self.result = self.result.and(result);
    }
}

fn labels<'a>(metric: &Metric, values: &[&'a str]) -> Vec<(&'static str, &'a str)> {
    debug_assert_eq!(values.len(), metric.labels.len(), "{}", metric.name);
    metric.labels.iter().copied().zip(values.iter().copied()).collect()
}
