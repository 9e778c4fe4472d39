//! The hooks of injected faults in a build without them. They do nothing.

use std::sync::Arc;

use super::Fault;
use crate::engine::CommitRequest;
use crate::error::Result;
use crate::future::Future;

/// No plan.
#[derive(Debug, Default)]
pub(crate) struct InstalledFaults;

impl InstalledFaults {
    pub(crate) fn commit(&self) -> Fault {
        Fault::None
    }

    pub(crate) fn read(&self) -> Result<()> {
        Ok(())
    }
}

/// An open gate.
#[derive(Default)]
pub(crate) struct GateQueue;

impl GateQueue {
    pub(crate) fn stop(&self, request: CommitRequest) -> Option<CommitRequest> {
        Some(request)
    }

    pub(crate) fn stop_backoff(&self, _: &Arc<Future>) -> bool {
        false
    }
}

pub(crate) fn is_any_closed() -> bool {
    false
}
