//! The installed plan of faults of an engine.

use std::sync::atomic::{AtomicBool, Ordering};

use baton::Mutex;

use super::{Fault, Faults};
use crate::error::Result;

/// The plan of one engine, if one is installed.
#[derive(Debug, Default)]
pub(in crate::engine) struct InstalledFaults {
    plan: Mutex<Option<Faults>>,
    /// Avoids the lock while no plan is installed.
    is_on: AtomicBool,
}

impl InstalledFaults {
    /// Installs a plan, or removes it with `None`.
    pub fn set(&self, faults: Option<Faults>) {
        let mut plan = self.plan.lock();
        self.is_on.store(faults.is_some(), Ordering::Release);
        *plan = faults;
    }

    /// The fault for the next commit.
    pub fn commit(&self) -> Fault {
        if !self.is_on.load(Ordering::Acquire) {
            return Fault::None;
        }
        self.plan.lock().as_mut().map_or(Fault::None, Faults::next)
    }

    /// Fails if the plan makes the next read fail.
    pub fn read(&self) -> Result<()> {
        if !self.is_on.load(Ordering::Acquire) {
            return Ok(());
        }
        self.plan.lock().as_mut().and_then(Faults::next_read).map_or(Ok(()), Err)
    }
}
