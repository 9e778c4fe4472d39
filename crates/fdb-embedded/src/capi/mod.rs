//! The C ABI: every `fdb_*` function that FoundationDB's client library of version 7.3 exports.
//!
//! | file | what |
//! |---|---|
//! | `handle` | pointers that say which engine they belong to |
//! | `open`, `cluster_file` | opening databases; what a path means |
//! | `network`, `database`, `tenant`, `transaction`, `future`, `result` | the functions, by the object they act on |
//! | `arrays`, `yielding` | what futures and transactions need beside them |
//! | `granule` | the functions about blob granules, of all objects |
//! | `legacy` | functions that left the API |
//! | `real`, `missing` | the real `libfdb_c.so`, loaded at first use, the forwarding, and what it may lack |
//! | `atfork` | what a forked child does not get |
//! | `heap` | the C library's memory, given back |
//! | `boot` | [`Network`], the safe way to start it all |
//! | `testing` | the functions as safe calls, for tests |
//!
//! A handle of the embedded engine has its lowest bit set, one of the real library does not; so both kinds are in
//! use at once, and every function asks the handle whom to call. A panic in an `extern "C"` function aborts the
//! process, as an internal failure does in FoundationDB: nothing unwinds into a caller.

#![expect(unsafe_code, reason = "this is the C ABI")]

mod arrays;
pub mod atfork;
mod boot;
mod cluster_file;
mod database;
mod future;
mod granule;
mod handle;
pub mod heap;
mod legacy;
mod missing;
mod network;
mod open;
mod real;
mod result;
mod tenant;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod testing;
mod transaction;
mod yielding;

pub use boot::Network;
pub use cluster_file::embedded_directory;
pub use open::open_error;
pub use real::client_version;

use std::ffi::c_int;

use crate::error::{Code, Result};

/// The bytes that a pointer and a length stand for.
///
/// # Panics
/// On a negative length, or a null pointer to something, which ends the process, as it does in FoundationDB: taken
/// for an empty key it could clear a database.
///
/// # Safety
/// `pointer` must be null, with length 0, or point at `length` readable bytes that stay as they are for `'a`.
unsafe fn bytes<'a>(pointer: *const u8, length: c_int) -> &'a [u8] {
    let length = usize::try_from(length).expect("a caller of the C API gave a negative length");
    if length == 0 {
        return &[];
    }
    assert!(!pointer.is_null(), "a caller of the C API gave a null pointer to {length} bytes");
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(pointer, length) }
}

/// Like [`bytes`], for an option's value, which may be absent. A negative length is an error, as in FoundationDB.
///
/// # Safety
/// As for [`bytes`].
unsafe fn option_value<'a>(pointer: *const u8, length: c_int) -> Result<Option<&'a [u8]>> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    if length < 0 { Err(Code::INTERNAL_ERROR) } else { Ok(Some(unsafe { bytes(pointer, length) })) }
}

/// Where a caller of the C API wants a result.
#[derive(Clone, Copy)]
struct Slot<T>(*mut T);

impl<T> Slot<T> {
    /// Writes the result.
    fn write(self, value: T) {
        // SAFETY: `slot`'s caller promised it. A slot cannot leave the call: it is bound to its thread, and no object stores one.
        unsafe { self.0.write(value) }
    }
}

/// The place for a result.
///
/// # Safety
/// `pointer` must be writable for one value for as long as the slot is used, which is during the call at most.
unsafe fn slot<T>(pointer: *mut T) -> Slot<T> {
    Slot(pointer)
}

/// The number that the C API returns for a result.
fn status(result: Result<()>) -> c_int {
    result.err().map_or(0, Code::raw)
}
