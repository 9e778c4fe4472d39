//! What the process counts, and how that is written for Prometheus. Counting is a relaxed addition to a cell that the counted part holds itself;
//! nothing is looked up.
//!
//! A metric more is an entry in the catalogue and a row in docs/METRICS.md; a test compares the two. Why there is no library for this:
//! docs/decisions/0014-own-metrics.md.

mod catalogue;
mod cell;
mod family;
mod histogram;
mod meters;
mod other;
mod process;
mod requests;
mod scrape;
#[cfg(test)]
mod tests;
mod text;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
};

pub(crate) use catalogue::CATALOGUE;
pub(crate) use cell::{Counter, Gauge};
pub(crate) use histogram::Histogram;
pub(crate) use meters::QueueMeters;
pub(crate) use requests::Requests;
pub(crate) use scrape::{CONTENT_TYPE, render};

/// All that is counted in a process.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    queues: Mutex<BTreeMap<Arc<str>, Arc<QueueMeters>>>,
    /// Configurations that took effect after the start.
    pub(crate) reloads_applied: Counter,
    /// Configurations that were refused.
    pub(crate) reloads_refused: Counter,
    /// Answers to HTTP requests.
    pub(crate) requests: Requests,
}

impl Metrics {
    /// The meters of a configured queue, made when they are first asked for. They stay when the queue goes.
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
