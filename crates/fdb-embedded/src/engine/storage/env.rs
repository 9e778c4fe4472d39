//! The clock, randomness and flusher of storage. The simulation replaces them.

use std::fmt::Debug;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use super::memtable_flusher::{FlusherThread, MemtableFlusher};
use super::tree::Tree;

/// The environment of an open storage.
pub trait StorageEnv: Debug + Send + 'static {
    /// The monotonic clock.
    fn now(&self) -> Instant;

    /// A random number that no other process draws.
    fn random(&self) -> u64;

    /// Starts a flusher for `tree`.
    fn start_flusher(&self, tree: &Arc<Tree>) -> io::Result<Box<dyn MemtableFlusher>>;
}

/// The real environment.
#[derive(Debug)]
pub struct SystemEnv;

impl StorageEnv for SystemEnv {
    fn now(&self) -> Instant {
        baton::now()
    }

    fn random(&self) -> u64 {
        baton::random()
    }

    fn start_flusher(&self, tree: &Arc<Tree>) -> io::Result<Box<dyn MemtableFlusher>> {
        Ok(Box::new(FlusherThread::start(tree)?))
    }
}
