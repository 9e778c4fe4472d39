//! Futures: results that arrive later, and the getters for what they hold.

use std::ffi::{c_char, c_int, c_void};

use crate::types::{
    FDBCallback, FDBFuture, FDBKey, FDBKeyRange, FDBKeyValue, FDBMappedKeyValue, fdb_bool_t, fdb_error_t,
};

unsafe extern "C" {
    /// Cancels the operation behind a future that is not ready.
    pub fn fdb_future_cancel(f: *mut FDBFuture);

    /// Gives up what earlier getters returned; the future itself stays.
    pub fn fdb_future_release_memory(f: *mut FDBFuture);

    /// Cancels the operation if it is pending and frees the future.
    pub fn fdb_future_destroy(f: *mut FDBFuture);

    /// Blocks the calling thread until the future is ready. Not on the network thread.
    pub fn fdb_future_block_until_ready(f: *mut FDBFuture) -> fdb_error_t;

    /// Non-zero when the future holds a value or an error.
    pub fn fdb_future_is_ready(f: *mut FDBFuture) -> fdb_bool_t;

    /// Has `callback` called once when the future is ready, at once if it already is.
    pub fn fdb_future_set_callback(
        f: *mut FDBFuture,
        callback: FDBCallback,
        callback_parameter: *mut c_void,
    ) -> fdb_error_t;

    /// 0 when the future holds a value, otherwise its error; 2015 when it is not ready.
    pub fn fdb_future_get_error(f: *mut FDBFuture) -> fdb_error_t;

    /// Reads a future of a truth value.
    pub fn fdb_future_get_bool(f: *mut FDBFuture, out: *mut fdb_bool_t) -> fdb_error_t;

    /// Reads a future of a signed number: versions, sizes, tenant ids.
    pub fn fdb_future_get_int64(f: *mut FDBFuture, out: *mut i64) -> fdb_error_t;

    /// Reads a future of an unsigned number: the server protocol.
    pub fn fdb_future_get_uint64(f: *mut FDBFuture, out: *mut u64) -> fdb_error_t;

    /// Reads a future of a floating-point number: durations in seconds.
    pub fn fdb_future_get_double(f: *mut FDBFuture, out: *mut f64) -> fdb_error_t;

    /// Reads a future of a key; the bytes belong to the future.
    pub fn fdb_future_get_key(
        f: *mut FDBFuture,
        out_key: *mut *const u8,
        out_key_length: *mut c_int,
    ) -> fdb_error_t;

    /// Reads a future of a value that may be absent; the bytes belong to the future.
    pub fn fdb_future_get_value(
        f: *mut FDBFuture,
        out_present: *mut fdb_bool_t,
        out_value: *mut *const u8,
        out_value_length: *mut c_int,
    ) -> fdb_error_t;

    /// Reads a range result; `out_more` is set when a limit ended the read.
    pub fn fdb_future_get_keyvalue_array(
        f: *mut FDBFuture,
        out_kv: *mut *const FDBKeyValue,
        out_count: *mut c_int,
        out_more: *mut fdb_bool_t,
    ) -> fdb_error_t;

    /// Reads a mapped range result; `out_more` is set when a limit ended the read.
    pub fn fdb_future_get_mappedkeyvalue_array(
        f: *mut FDBFuture,
        out_kv: *mut *const FDBMappedKeyValue,
        out_count: *mut c_int,
        out_more: *mut fdb_bool_t,
    ) -> fdb_error_t;

    /// Reads a list of keys, such as split points.
    pub fn fdb_future_get_key_array(
        f: *mut FDBFuture,
        out_key_array: *mut *const FDBKey,
        out_count: *mut c_int,
    ) -> fdb_error_t;

    /// Reads a list of NUL-terminated strings, such as addresses.
    pub fn fdb_future_get_string_array(
        f: *mut FDBFuture,
        out_strings: *mut *mut *const c_char,
        out_count: *mut c_int,
    ) -> fdb_error_t;

    /// Reads a list of key ranges.
    pub fn fdb_future_get_keyrange_array(
        f: *mut FDBFuture,
        out_ranges: *mut *const FDBKeyRange,
        out_count: *mut c_int,
    ) -> fdb_error_t;
}
