//! Results: values computed on the spot, for blob granules.

use std::ffi::c_int;

use crate::granule_types::FDBBGMutation;
use crate::types::{FDBKeyValue, FDBResult, fdb_bool_t, fdb_error_t};

unsafe extern "C" {
    /// Frees a result and what was read from it.
    pub fn fdb_result_destroy(r: *mut FDBResult);

    /// Reads the rows of a result; `out_more` is set when a limit ended the read.
    pub fn fdb_result_get_keyvalue_array(
        r: *mut FDBResult,
        out_kv: *mut *const FDBKeyValue,
        out_count: *mut c_int,
        out_more: *mut fdb_bool_t,
    ) -> fdb_error_t;

    /// Reads the mutations of a parsed delta file.
    pub fn fdb_result_get_bg_mutations_array(
        r: *mut FDBResult,
        out_mutations: *mut *const FDBBGMutation,
        out_count: *mut c_int,
    ) -> fdb_error_t;
}
