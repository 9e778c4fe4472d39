//! The difference between two configurations: what changes, and whether it can change while the daemon runs. Pure,
//! except for `left`, which counts the items of removed queues.

mod diff;
mod left;
mod plan;
mod restart;

pub(super) use left::left;
pub(super) use plan::Plan;
