//! The bounds of requests that wait for items.

use tokio::sync::Semaphore;

/// The most requests that wait for items at a time. Each has one of the database's watches, of which there are 10,000.
const MOST: usize = 1_000;

/// The most of them that ask the database at a time. Further ones wait.
const LOOKS: usize = 8;

/// Bounds of the requests that wait for items.
#[derive(Debug)]
pub(super) struct ItemWaits {
    pub(super) places: Semaphore,
    pub(super) looks: Semaphore,
}

impl Default for ItemWaits {
    fn default() -> Self {
        Self { places: Semaphore::new(MOST), looks: Semaphore::new(LOOKS) }
    }
}
