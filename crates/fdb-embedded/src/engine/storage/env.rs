//! What storage takes from outside: the time, random numbers, and an applier. The simulation has its own.

use std::fmt::Debug;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::sync::Arc;
use std::time::Instant;

use super::applier::{Applier, Apply};
use super::tree::Tree;

/// The environment of an open storage.
pub trait Env: Debug + Send + 'static {
    /// The monotonic clock.
    fn now(&self) -> Instant;

    /// A number that no other process draws.
    fn random(&self) -> u64;

    /// Starts an applier for `tree`.
    fn start_applier(&self, tree: &Arc<Tree>) -> io::Result<Box<dyn Apply>>;
}

/// The operating system.
#[derive(Debug)]
pub struct System;

impl Env for System {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn random(&self) -> u64 {
        RandomState::new().build_hasher().finish()
    }

    fn start_applier(&self, tree: &Arc<Tree>) -> io::Result<Box<dyn Apply>> {
        Ok(Box::new(Applier::start(tree)?))
    }
}
