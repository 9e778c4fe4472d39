//! Schedules: reading and changing them, and firing what is due.
//!
//! Every transaction that changes a schedule reads its state with a conflict. So of two that overlap one commits, and the other begins
//! again with what the first one has stored.

pub(crate) mod change;
pub(crate) mod due;
pub(crate) mod fire;
pub(crate) mod read;
pub(crate) mod write;
