//! FoundationDB's client API with an embedded engine.
//!
//! This crate exports the `fdb_*` functions of FoundationDB's C API, so that an unmodified
//! `foundationdb` crate links against them. A database whose path starts with `embedded:` is a
//! local directory, served by the engine in this crate. Any other path is forwarded to the real
//! `libfdb_c.so`, which is loaded when it is first needed.
//!
//! The embedded engine guarantees:
//!
//! * A commit is acknowledged after it was flushed to the disk, and survives a kill at any moment.
//! * Transactions are serializable and optimistic, with FoundationDB's conflict rules and error
//!   codes.
//! * Reading a page that was damaged on the disk is an error; damaged data is never returned.
//! * Every version of the last five seconds can be read.
//! * Versions never go back, over restarts and changes of the system's time.
//! * Several processes can use a directory. The first one hosts it and the others are its guests.
//!   When the host ends in any way, a guest takes over.
//!
//! All functions of FoundationDB's 7.3 client library exist for both kinds of database. Features
//! that an embedded database lacks answer as a cluster without them does: a tenant is not found
//! (2131, 2136). Queries about blob granules find none, and other granule calls fail with
//! `unsupported_operation` (2108). No server is restarted or makes a snapshot. The crate `fdb-c`
//! builds the shared library `libfdb_c.so` from this one. See `docs/EMBEDDED.md`.
//!
//! A program that links the `foundationdb` crate has to refer to this crate, or rustc drops it:
//! `use fdb_embedded as _;`.

pub mod backup;
mod capi;
pub mod client;
pub mod doctor;
pub mod engine;
mod error;
mod files;
mod fork;
mod future;
mod key_map;
mod limits;
mod link;
mod network;
mod network_options;
mod options;
mod range_set;
mod reports;
mod rows;
pub mod space;
mod url;

pub use backup::{BackupError, BackupStats, BackupStep, backup, is_database};
#[cfg(feature = "testing")]
#[doc(hidden)]
pub use capi::testing;
pub use capi::{Network, StartError, client_version, embedded_directory, open_error};
pub use engine::OpenError;
#[cfg(feature = "testing")]
pub use engine::faults::{Fault, Faults, Gate, HeldBackoff, HeldCommit};
#[cfg(feature = "testing")]
pub use engine::holdings::Holdings;
pub use error::{Code, Result};
pub use future::{Future, Output};
#[cfg(feature = "testing")]
pub use link::testing::ProcessHoldings;
pub use reports::{last_failure, report_to};
pub use url::{SCHEME, instead_of_two_slashes};
