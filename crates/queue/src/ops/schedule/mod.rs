//! Schedules: reading and changing them, and firing what is due.
//!
//! Every transaction that changes a schedule reads its state with a conflict. So of looks and changes that overlap one commits, and the
//! others begin again with what it has stored.

pub(crate) mod change;
pub(crate) mod fire;
pub(crate) mod look;
pub(crate) mod read;
pub(crate) mod write;
