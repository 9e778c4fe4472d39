//! Where a plan of faults is installed.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::{Fault, Faults};
use crate::error::Result;

/// The plan of one engine, if there is one.
#[derive(Debug, Default)]
pub(in crate::engine) struct InstalledFaults {
    plan: Mutex<Option<Faults>>,
    /// Spares the lock as long as there is none.
    is_on: AtomicBool,
}

impl InstalledFaults {
    /// Installs or, with `None`, removes a plan.
    pub fn set(&self, faults: Option<Faults>) {
        let mut plan = self.plan.lock();
        self.is_on.store(faults.is_some(), Ordering::Release);
        *plan = faults;
    }

    /// What happens to the next commit.
    pub fn commit(&self) -> Fault {
        if !self.is_on.load(Ordering::Acquire) {
            return Fault::None;
        }
        self.plan.lock().as_mut().map_or(Fault::None, Faults::next)
    }

    /// Fails if the next read is to.
    pub fn read(&self) -> Result<()> {
        if !self.is_on.load(Ordering::Acquire) {
            return Ok(());
        }
        self.plan.lock().as_mut().and_then(Faults::next_read).map_or(Ok(()), Err)
    }
}
