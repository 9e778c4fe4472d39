//! FoundationDB's client API, answered in process.
//!
//! This crate exports the `fdb_*` functions of FoundationDB's C API, so an unmodified `foundationdb` crate above it
//! links against them. A database whose path starts with `embedded:` is a local directory, served by the engine
//! in here; any other path is forwarded to the real `libfdb_c.so`, which is loaded at first use. What it promises:
//!
//! * A commit is acknowledged after it has been flushed to disk, and survives a kill at any moment.
//! * Transactions are serializable: optimistic, with FoundationDB's conflict rules and error codes.
//! * A page that was damaged on the disk is an error when it is read, never data.
//! * Every version of the last five seconds can be read.
//! * Versions never go back, over restarts and clock changes.
//! * Several processes share a directory: the first to open it hosts it, the others are its guests, and when the host
//!   ends, however it does, one of them takes over.
//!
//! | module | what |
//! |---|---|
//! | [`engine`] | storage, versions, conflict detection, commit batches, watches |
//! | `link` | the link to a directory: hosting it, or being a guest of the process that does |
//! | [`client`] | transactions: read-your-writes, selectors, options, retries |
//! | `capi` | the C ABI, and the forwarding |
//! | [`Network`] | starts and stops the thread that runs callbacks |
//! | [`backup()`] | copies an open database |
//! | [`space`] | how much of the disk must stay free |
//! | [`doctor`] | checks a directory without changing it |
//! | [`Faults`] | commit outcomes that are rare, on purpose, for tests |
//! | [`Gate`] | commits that wait for a test's word, for simulations |
//!
//! Every function of FoundationDB's 7.3 client library is there, for both kinds of database. What an embedded database
//! does not have is answered as by a cluster without it: a tenant is not found (2131, 2136), there are no blob granules
//! (queries say so, the rest is `unsupported_operation`, 2108), no server is restarted or makes a snapshot. The crate
//! `fdb-c` makes the shared library `libfdb_c.so` of it. `docs/EMBEDDED.md` says more.
//!
//! A program that links the `foundationdb` crate needs a reference to this one, or rustc leaves it out:
//! `use fdb_embedded as _;` does.

pub mod backup;
mod capi;
pub mod client;
pub mod doctor;
pub mod engine;
mod error;
mod fork;
mod future;
mod key_map;
mod limits;
mod link;
mod mutant;
mod network;
mod network_options;
mod options;
mod range_set;
mod rows;
pub mod space;
mod url;

pub use backup::{BackupError, Copied, Step, backup, is_database};
#[cfg(feature = "testing")]
#[doc(hidden)]
pub use capi::testing;
pub use capi::{Network, client_version, embedded_directory, open_error};
pub use engine::OpenError;
pub use engine::faults::{Fault, Faults, Gate, HeldBackoff, HeldCommit};
pub use error::{Code, Result};
pub use future::{Future, Output};
pub use url::SCHEME;

/// Where [`report`] goes.
static REPORT: std::sync::OnceLock<fn(&str)> = std::sync::OnceLock::new();

/// Calls `report` with each failure that no call returns, instead of writing a line to standard error. `report` runs on the
/// engine's threads, so it must not block. The first call counts.
pub fn report_to(report: fn(&str)) {
    let _ = REPORT.set(report);
}

/// The last failure that ended a database of this process.
static FAILURE: parking_lot::Mutex<Option<String>> = parking_lot::Mutex::new(None);

/// Why an embedded database of this process last failed: the file, and what the operating system said. Clients have only error 1510 for
/// it. `None` if none failed here; if another process hosts the database, that process knows.
#[must_use]
pub fn last_failure() -> Option<String> {
    FAILURE.lock().clone()
}

/// Keeps a failure for [`last_failure`].
fn keep_failure(message: String) {
    *FAILURE.lock() = Some(message);
}

/// Reports a failure that no call returns.
fn report(message: &str) {
    use std::io::Write;
    match REPORT.get() {
        Some(report) => report(message),
        // Nothing is left to do if standard error is gone too.
        None => drop(writeln!(std::io::stderr().lock(), "fdb-embedded: {message}")),
    }
}
