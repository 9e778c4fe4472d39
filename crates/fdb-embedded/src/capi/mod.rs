//! The C ABI: every `fdb_*` function that FoundationDB's client library of version 7.3 exports.
//!
//! A handle of the embedded engine has its lowest bit set, and a handle of the real library does
//! not. So both kinds can be used at once, and each function calls the engine of its handle. A
//! panic in an `extern "C"` function aborts the process, as an internal failure does in
//! FoundationDB, and never unwinds into the caller.

#![expect(unsafe_code, reason = "this is the C ABI")]

mod arrays;
mod boot;
mod chosen;
mod cluster_file;
mod database;
mod forwarded;
mod future;
mod granule;
mod handle;
mod legacy;
mod missing;
mod network;
mod open;
pub mod process;
mod real;
mod result;
mod shared_object;
mod tenant;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod testing;
mod transaction;
mod unknown_tenant;
mod yielding;

pub use boot::{Network, StartError};
pub use cluster_file::embedded_directory;
pub use open::open_error;
pub use real::client_version;

use std::ffi::c_int;

use crate::error::{Code, Result};

/// The oldest API version that can be selected.
const OLDEST_API_VERSION: c_int = 520;

/// The bytes given by a pointer and a length.
///
/// # Panics
/// Aborts the process, as FoundationDB does, on a negative length, or a null pointer with a length.
/// Taken for an empty key, it could clear a database.
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

/// Like [`bytes`], for the value of an option, which may be absent. A negative length is an error,
/// as in FoundationDB.
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

/// An out-parameter of a C function.
#[derive(Clone, Copy)]
struct Slot<T>(*mut T);

impl<T> Slot<T> {
    /// Writes the result.
    fn write(self, value: T) {
        // SAFETY: `slot`'s caller promised it. A slot cannot leave the call: it is bound to its thread, and no object stores one.
        unsafe { self.0.write(value) }
    }
}

/// An out-parameter.
///
/// # Safety
/// `pointer` must be writable for one value for as long as the slot is used, which is during the call at most.
unsafe fn slot<T>(pointer: *mut T) -> Slot<T> {
    Slot(pointer)
}

/// The C API's return value for a result.
fn status(result: Result<()>) -> c_int {
    result.err().map_or(0, Code::raw)
}
