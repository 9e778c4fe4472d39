//! Results: like futures, but complete from the start. Only blob granule calls return them, so ours
//! hold an error.

use std::ffi::c_int;

use foundationdb_sys::{FDBBGMutation, FDBKeyValue, FDBResult, fdb_bool_t, fdb_error_t};

use super::forwarded::forwarded;
use super::handle;
use super::missing::Missing;
use crate::error::Code;

/// Returns an error to the caller as a result.
pub(super) fn give(code: Code) -> *mut FDBResult {
    handle::give(code)
}

impl Missing for *mut FDBResult {
    fn missing() -> *mut FDBResult {
        give(Code::UNSUPPORTED_OPERATION)
    }
}

/// Frees a result.
///
/// # Safety
/// The handle must be live and is not to be used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_result_destroy(result: *mut FDBResult) {
    // SAFETY: the caller's promise.
    if unsafe { handle::take::<Code, _>(result) }.is_none() {
        let destroy = RealResults::get().fdb_result_destroy;
        // SAFETY: the handle is the real library's, and the caller's promise.
        unsafe { destroy(result) }
    }
}

forwarded! {
    table RealResults; handle FDBResult; object Code;
    also { [since 710] fn fdb_result_destroy(); }

    /// The rows of a result.
    [since 710] fn fdb_result_get_keyvalue_array(
        own, _out_rows: *mut *const FDBKeyValue, _out_count: *mut c_int, _out_more: *mut fdb_bool_t,
    ) -> fdb_error_t {
        own.raw()
    }

    /// The mutations of a parsed delta file.
    [since 730] fn fdb_result_get_bg_mutations_array(
        own, _out_mutations: *mut *const FDBBGMutation, _out_count: *mut c_int,
    ) -> fdb_error_t {
        own.raw()
    }
}
