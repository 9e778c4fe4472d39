//! The embedded engine through the unmodified `foundationdb` crate.

#![expect(clippy::unwrap_used, reason = "tests")]

mod backup;
mod common;
mod crash;
mod gate;
mod helper;
mod hostile;
mod mapped;
mod options;
mod processes;
mod sizes;
mod special;
mod stepdown;
mod storage;
mod system;
mod takeover;
mod transactions;
mod versions;
