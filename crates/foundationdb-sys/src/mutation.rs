//! A transaction's writes, which the client keeps until the commit.

use std::ffi::c_int;

use crate::options::{FDBConflictRangeType, FDBMutationType};
use crate::types::{FDBTransaction, fdb_error_t};

unsafe extern "C" {
    /// Writes a value under a key.
    pub fn fdb_transaction_set(
        tr: *mut FDBTransaction,
        key_name: *const u8,
        key_name_length: c_int,
        value: *const u8,
        value_length: c_int,
    );

    /// Applies an atomic operation to a key, without reading it.
    pub fn fdb_transaction_atomic_op(
        tr: *mut FDBTransaction,
        key_name: *const u8,
        key_name_length: c_int,
        param: *const u8,
        param_length: c_int,
        operation_type: FDBMutationType,
    );

    /// Clears a key.
    pub fn fdb_transaction_clear(tr: *mut FDBTransaction, key_name: *const u8, key_name_length: c_int);

    /// Clears the keys from the begin key up to, and without, the end key.
    pub fn fdb_transaction_clear_range(
        tr: *mut FDBTransaction,
        begin_key_name: *const u8,
        begin_key_name_length: c_int,
        end_key_name: *const u8,
        end_key_name_length: c_int,
    );

    /// Adds a range to the reads or writes that decide about conflicts.
    pub fn fdb_transaction_add_conflict_range(
        tr: *mut FDBTransaction,
        begin_key_name: *const u8,
        begin_key_name_length: c_int,
        end_key_name: *const u8,
        end_key_name_length: c_int,
        conflict_type: FDBConflictRangeType,
    ) -> fdb_error_t;
}
