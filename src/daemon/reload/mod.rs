//! From the configuration in force to another: what changes, and whether it can while the daemon runs. Pure.
//!
//! | file | role |
//! |---|---|
//! | `diff` | the keys that differ |
//! | `restart` | those that take effect at a start only |
//! | `plan` | what becomes of each queue |

mod diff;
mod plan;
mod restart;

pub(super) use plan::Plan;
