//! Transactions: their life, reads and commit. Writes are in [`crate::mutation`].

use std::ffi::c_int;

use crate::options::{FDBStreamingMode, FDBTransactionOption};
use crate::types::{FDBFuture, FDBTransaction, fdb_bool_t, fdb_error_t};

unsafe extern "C" {
    /// Frees the transaction; what is still pending in it fails.
    pub fn fdb_transaction_destroy(tr: *mut FDBTransaction);

    /// Fails what is pending and all further use until [`fdb_transaction_reset`].
    pub fn fdb_transaction_cancel(tr: *mut FDBTransaction);

    /// Returns the transaction to the state it was created in.
    pub fn fdb_transaction_reset(tr: *mut FDBTransaction);

    /// Sets an option of this transaction.
    pub fn fdb_transaction_set_option(
        tr: *mut FDBTransaction,
        option: FDBTransactionOption,
        value: *const u8,
        value_length: c_int,
    ) -> fdb_error_t;

    /// Chooses the version to read at, before anything was read.
    pub fn fdb_transaction_set_read_version(tr: *mut FDBTransaction, version: i64);

    /// A future of the version all reads of this transaction see.
    pub fn fdb_transaction_get_read_version(tr: *mut FDBTransaction) -> *mut FDBFuture;

    /// A future of the value under a key, or of its absence.
    pub fn fdb_transaction_get(
        tr: *mut FDBTransaction,
        key_name: *const u8,
        key_name_length: c_int,
        snapshot: fdb_bool_t,
    ) -> *mut FDBFuture;

    /// A future of the key that a selector resolves to.
    pub fn fdb_transaction_get_key(
        tr: *mut FDBTransaction,
        key_name: *const u8,
        key_name_length: c_int,
        or_equal: fdb_bool_t,
        offset: c_int,
        snapshot: fdb_bool_t,
    ) -> *mut FDBFuture;

    /// A future of the addresses of the servers that store a key.
    pub fn fdb_transaction_get_addresses_for_key(
        tr: *mut FDBTransaction,
        key_name: *const u8,
        key_name_length: c_int,
    ) -> *mut FDBFuture;

    /// A future of the rows between two selectors; limits of 0 mean unlimited.
    pub fn fdb_transaction_get_range(
        tr: *mut FDBTransaction,
        begin_key_name: *const u8,
        begin_key_name_length: c_int,
        begin_or_equal: fdb_bool_t,
        begin_offset: c_int,
        end_key_name: *const u8,
        end_key_name_length: c_int,
        end_or_equal: fdb_bool_t,
        end_offset: c_int,
        limit: c_int,
        target_bytes: c_int,
        mode: FDBStreamingMode,
        iteration: c_int,
        snapshot: fdb_bool_t,
        reverse: fdb_bool_t,
    ) -> *mut FDBFuture;

    /// A future of the rows between two selectors, each with what `mapper_name` derives from it.
    pub fn fdb_transaction_get_mapped_range(
        tr: *mut FDBTransaction,
        begin_key_name: *const u8,
        begin_key_name_length: c_int,
        begin_or_equal: fdb_bool_t,
        begin_offset: c_int,
        end_key_name: *const u8,
        end_key_name_length: c_int,
        end_or_equal: fdb_bool_t,
        end_offset: c_int,
        mapper_name: *const u8,
        mapper_name_length: c_int,
        limit: c_int,
        target_bytes: c_int,
        mode: FDBStreamingMode,
        iteration: c_int,
        snapshot: fdb_bool_t,
        reverse: fdb_bool_t,
    ) -> *mut FDBFuture;

    /// A future that fires when the key's value changes, armed by the commit of this transaction.
    pub fn fdb_transaction_watch(
        tr: *mut FDBTransaction,
        key_name: *const u8,
        key_name_length: c_int,
    ) -> *mut FDBFuture;

    /// A future of the commit.
    pub fn fdb_transaction_commit(tr: *mut FDBTransaction) -> *mut FDBFuture;

    /// The version the transaction committed at; -1 when it wrote nothing.
    pub fn fdb_transaction_get_committed_version(
        tr: *mut FDBTransaction,
        out_version: *mut i64,
    ) -> fdb_error_t;

    /// A future of the 10 bytes that versionstamped operations received; ask before commit.
    pub fn fdb_transaction_get_versionstamp(tr: *mut FDBTransaction) -> *mut FDBFuture;

    /// A future of the seconds that throttling by tag has held the transaction back.
    pub fn fdb_transaction_get_tag_throttled_duration(tr: *mut FDBTransaction) -> *mut FDBFuture;

    /// A future of what the transaction has cost so far, in bytes.
    pub fn fdb_transaction_get_total_cost(tr: *mut FDBTransaction) -> *mut FDBFuture;

    /// A future of the commit's size so far, in bytes.
    pub fn fdb_transaction_get_approximate_size(tr: *mut FDBTransaction) -> *mut FDBFuture;

    /// A future that is ready when a retry is due, after the back-off that `error` calls for; it fails when
    /// the error is not retryable.
    pub fn fdb_transaction_on_error(tr: *mut FDBTransaction, error: fdb_error_t) -> *mut FDBFuture;

    /// A future of the approximate number of bytes stored in a range.
    pub fn fdb_transaction_get_estimated_range_size_bytes(
        tr: *mut FDBTransaction,
        begin_key_name: *const u8,
        begin_key_name_length: c_int,
        end_key_name: *const u8,
        end_key_name_length: c_int,
    ) -> *mut FDBFuture;

    /// A future of keys that split a range into parts of about `chunk_size` bytes.
    pub fn fdb_transaction_get_range_split_points(
        tr: *mut FDBTransaction,
        begin_key_name: *const u8,
        begin_key_name_length: c_int,
        end_key_name: *const u8,
        end_key_name_length: c_int,
        chunk_size: i64,
    ) -> *mut FDBFuture;
}
