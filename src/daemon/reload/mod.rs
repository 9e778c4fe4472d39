//! From the configuration in force to another: what changes, and whether it can while the daemon runs. Pure, but for `left`.
//!
//! | file | role |
//! |---|---|
//! | `diff` | the keys that differ |
//! | `restart` | those that take effect at a start only |
//! | `plan` | what becomes of each queue |
//! | `left` | items of queues that are removed |

mod diff;
mod left;
mod plan;
mod restart;

pub(super) use left::left;
pub(super) use plan::Plan;
