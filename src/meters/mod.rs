//! What this process counts. Code that counts holds the handle of its counter, so counting looks nothing up. The room `metrics` writes the
//! figures for Prometheus.

mod queue;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
};

pub(crate) use queue::{OccurrenceMeters, QueueMeters};

/// All counters of a process.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    queues: Mutex<BTreeMap<Arc<str>, Arc<QueueMeters>>>,
    /// Configurations that took effect after the start.
    pub(crate) reloads_applied: Counter,
    /// Configurations that were refused.
    pub(crate) reloads_refused: Counter,
    /// Answers to HTTP requests.
    pub(crate) requests: Family<Request, Counter>,
    /// HTTP connections of strangers that were closed for newer ones.
    pub(crate) displaced: Counter,
}

/// A kind of HTTP request. Clients choose neither label, so the number of kinds is bounded.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Request {
    /// The route, as the list of routes has it.
    pub(crate) route: &'static str,
    /// The status of the answer.
    pub(crate) code: u16,
}

impl Metrics {
    /// The meters of a configured queue. They stay when the queue goes.
    pub(crate) fn queue(&self, name: &Arc<str>) -> Arc<QueueMeters> {
        self.lock().entry(name.clone()).or_default().clone()
    }

    /// All queues that were ever configured.
    pub(crate) fn queues(&self) -> Vec<(Arc<str>, Arc<QueueMeters>)> {
        self.lock().iter().map(|(name, meters)| (name.clone(), meters.clone())).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Arc<QueueMeters>>> {
        self.queues.lock().expect("nothing panics while it holds the lock")
    }
}

/// The number of items that handlers have, or of processes that run.
#[derive(Debug, Default)]
pub(crate) struct InFlight(Gauge);

impl InFlight {
    /// Adds items until the returned guard is dropped.
    pub(crate) fn hold(&self, items: usize) -> Held<'_> {
        let items = i64::try_from(items).unwrap_or(i64::MAX);
        self.0.inc_by(items);
        Held { gauge: &self.0, items }
    }

    /// The current number.
    pub(crate) fn get(&self) -> i64 {
        self.0.get()
    }
}

/// Items that a handler has, or processes that run.
#[derive(Debug)]
pub(crate) struct Held<'a> {
    gauge: &'a Gauge,
    items: i64,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.gauge.dec_by(self.items);
    }
}
