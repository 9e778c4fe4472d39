//! What programs use: a queue, a session, a lease, a producer, a sweeper.
//!
//! The methods of [`Queue`](crate::Queue) are in a file for each subject. Of two functions for the same, one is a part of a transaction of the
//! caller's, and the other one runs its own.

pub(crate) mod approach;
pub(crate) mod canceller;
pub(crate) mod dead;
pub(crate) mod history;
pub(crate) mod holds;
pub(crate) mod item_batch;
pub(crate) mod item_change;
pub(crate) mod item_wait;
pub(crate) mod lease;
#[cfg(feature = "migration")]
pub mod migration;
pub(crate) mod mover;
pub(crate) mod partitions;
pub(crate) mod producer;
pub(crate) mod queue;
pub mod recipes;
pub(crate) mod recount;
pub(crate) mod schedule;
pub(crate) mod scheduled;
pub mod session;
pub(crate) mod suspects;
pub(crate) mod sweep_tokens;
pub(crate) mod sweeper;
pub(crate) mod view;
