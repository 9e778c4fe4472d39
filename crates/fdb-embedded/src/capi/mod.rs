//! The C ABI: every `fdb_*` function that the `foundationdb` crate calls.
//!
//! | file | what |
//! |---|---|
//! | `handle` | pointers that say which engine they belong to |
//! | `network`, `database`, `transaction`, `future` | the functions, by the object they act on |
//! | `mapped` | the array of a mapped range read |
//! | `real` | the real `libfdb_c.so`, loaded at first use, and the forwarding |
//! | `boot` | [`Network`], the safe way to start it all |
//!
//! A handle of the embedded engine has its lowest bit set, one of the real library does not; so both kinds are in
//! use at once, and every function asks the handle whom to call. A panic in an `extern "C"` function aborts the
//! process, as an internal failure does in FoundationDB: nothing unwinds into a caller.

#![expect(unsafe_code, reason = "this is the C ABI")]

mod boot;
mod database;
mod future;
mod handle;
mod mapped;
mod network;
mod real;
mod transaction;

pub use boot::Network;
pub use database::open_error;

use std::ffi::c_int;

use crate::error::{Code, Result};

/// The bytes that a pointer and a length stand for; none where the pointer is null.
///
/// # Panics
/// On a negative length, which ends the process: taken for an empty key it could clear a database.
///
/// # Safety
/// `pointer` must be null or point at `length` readable bytes that stay as they are for `'a`.
unsafe fn bytes<'a>(pointer: *const u8, length: c_int) -> &'a [u8] {
    let length = usize::try_from(length).expect("a caller of the C API gave a negative length");
    if length == 0 || pointer.is_null() {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(pointer, length) }
}

/// Like [`bytes`], for an option's value, which may be absent.
///
/// # Safety
/// As for [`bytes`].
unsafe fn option_value<'a>(pointer: *const u8, length: c_int) -> Option<&'a [u8]> {
    // SAFETY: the caller's promise.
    (!pointer.is_null()).then(|| unsafe { bytes(pointer, length) })
}

/// The number that the C API returns for a result.
fn status(result: Result<()>) -> c_int {
    result.err().map_or(0, Code::raw)
}
