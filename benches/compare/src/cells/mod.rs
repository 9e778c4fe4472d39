//! How a cell is run on a peer whose producers and workers are threads of the harness.

mod burn;
pub mod idle;
mod pickup;
mod push;
mod sustained;

use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use crate::cell::{Cell, PICKUP_EVERY_MS};
use crate::error::Error;
use crate::outcome::Outcome;
use crate::peers::{Peer, Size, System};
use crate::process::Processes;

/// Longest that one system may take for one cell.
pub const LIMIT: Duration = Duration::from_secs(60);
/// Longest wait of a worker for items, before it looks whether the cell is over.
const WAIT: Duration = Duration::from_secs(1);
/// Longest for what is on its way when the producers have ended.
const SETTLE_LIMIT: Duration = Duration::from_secs(15);

/// Seconds of the sustained cell, where another has `seconds`: its quantiles want many items.
pub fn sustained_seconds(seconds: f64) -> f64 {
    seconds * 2.0
}

/// Items of the pickup cell, where another has `seconds`.
pub fn pickup_count(seconds: f64) -> u64 {
    let each = Duration::from_millis(PICKUP_EVERY_MS).as_secs_f64();
    // Positive and small.
    ((seconds * 2.0 / each).round() as u64).max(3)
}

/// A peer as a system: its queue is emptied before every cell.
pub struct Threads {
    peer: Box<dyn Peer>,
    processes: Processes,
}

impl Threads {
    /// This peer.
    pub fn new(peer: impl Peer + 'static, processes: Processes) -> Self {
        Self { peer: Box::new(peer), processes }
    }
}

impl System for Threads {
    fn name(&self) -> &str {
        self.peer.name()
    }

    fn setup(&self) -> String {
        self.peer.setup()
    }

    fn runs(&self, cell: Cell) -> bool {
        match cell {
            Cell::Burn { .. } => true,
            // PostgreSQL's clients are those of the burn-down.
            Cell::Pull { .. } => ["beanstalkd", "redis-list", "redis-stream"].contains(&self.peer.name()),
            Cell::Flood { .. } => false,
            // How PostgreSQL's rows are taken makes no difference there; the sustained cell and the rest are the lease's.
            _ => self.peer.name() != "postgres-held",
        }
    }

    fn run(&mut self, cell: Cell, size: Size) -> Result<Outcome, Error> {
        self.peer.reset()?;
        let peer = self.peer.as_ref();
        Processes::limited(&[peer.server()], LIMIT, || match cell {
            Cell::Push { clients, batch } => push::run(peer, clients, batch, size.seconds),
            Cell::Burn { workers, k } | Cell::Pull { workers, k } => burn::run(peer, workers, k, size.items),
            Cell::Sustained => sustained::run(peer, sustained_seconds(size.seconds)),
            Cell::Pickup => pickup::run(peer, pickup_count(size.seconds)),
            Cell::Idle => idle::run(peer, &self.processes, size.seconds),
            Cell::Flood { .. } => Err(Error::Unusable("no such cell".to_owned())),
        })
    }
}

/// What all threads returned; the first error, if one has one.
fn all<T>(threads: Vec<ScopedJoinHandle<'_, Result<T, Error>>>) -> Result<Vec<T>, Error> {
    threads
        .into_iter()
        .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        .collect()
}

/// Microseconds from one moment to another; none if it is not later.
fn microseconds_between(from: Instant, to: Instant) -> u64 {
    u64::try_from(to.saturating_duration_since(from).as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pickup_cell_has_at_least_three_items() {
        assert_eq!(pickup_count(1.5), 15);
        assert_eq!(pickup_count(0.01), 3);
    }
}
