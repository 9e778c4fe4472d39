//! Injected faults: events of real clusters and disks that a healthy local one does not have. And a gate, at
//! which a test holds commits.
//!
//! Both need the feature `testing`. Without it, the types of `absent` take their places: no environment variable and
//! no call can inject a fault.

#[cfg(not(feature = "testing"))]
mod absent;
#[cfg(feature = "testing")]
mod gate;
#[cfg(feature = "testing")]
mod gate_queue;
#[cfg(feature = "testing")]
mod installed;
#[cfg(feature = "testing")]
mod parse;
#[cfg(feature = "testing")]
mod plan;

use std::time::Duration;

#[cfg(not(feature = "testing"))]
pub(crate) use absent::{GateQueue, InstalledFaults, is_any_closed as is_any_gate_closed};
#[cfg(feature = "testing")]
pub use gate::{Gate, HeldCommit};
#[cfg(feature = "testing")]
pub(super) use gate_queue::GateQueue;
#[cfg(feature = "testing")]
pub use gate_queue::HeldBackoff;
#[cfg(feature = "testing")]
pub(crate) use gate_queue::is_any_closed as is_any_gate_closed;
#[cfg(feature = "testing")]
pub(super) use installed::InstalledFaults;
#[cfg(feature = "testing")]
pub use parse::{FaultPlanError, VARIABLE};
#[cfg(feature = "testing")]
pub use plan::Faults;

/// The fault injected into a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// None: the commit proceeds as usual.
    None,
    /// The commit happens unless it conflicts, and the client gets `commit_unknown_result` (1021).
    UnknownCommitted,
    /// The commit does not happen, and the client gets `commit_unknown_result` (1021).
    UnknownNotCommitted,
    /// The commit does not happen, and the client gets `not_committed` (1020), as after a conflict.
    Conflict,
    /// The commit does not happen, and the client gets `transaction_too_old` (1007).
    TooOld,
    /// The write of its batch takes this much longer.
    Slow(Duration),
    /// The disk fails before the batch is written: its clients get `commit_unknown_result` (1021)
    /// and the engine ends. The process closes the directory, and opens it again.
    DiskFailure,
    /// The flush fails after the batch is written: its clients get `commit_unknown_result` (1021)
    /// and the engine ends as above. The next opening finds the commit.
    FlushFailure,
}
