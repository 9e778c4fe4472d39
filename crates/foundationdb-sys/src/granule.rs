//! Blob granules: change data kept in object storage. Declared for completeness.

use std::ffi::c_int;

use crate::granule_types::{
    FDBBGEncryptionCtx, FDBBGFileDescription, FDBBGTenantPrefix, FDBGranuleSummary, FDBReadBlobGranuleContext,
};
use crate::types::{FDBDatabase, FDBFuture, FDBResult, FDBTenant, FDBTransaction, fdb_bool_t, fdb_error_t};

unsafe extern "C" {
    /// Reads a list of granule summaries.
    pub fn fdb_future_get_granule_summary_array(
        f: *mut FDBFuture,
        out_summaries: *mut *const FDBGranuleSummary,
        out_count: *mut c_int,
    ) -> fdb_error_t;

    /// Reads the files that make up granules.
    pub fn fdb_future_readbg_get_descriptions(
        f: *mut FDBFuture,
        out: *mut *mut FDBBGFileDescription,
        desc_count: *mut c_int,
    ) -> fdb_error_t;

    /// Parses a granule's snapshot file.
    pub fn fdb_readbg_parse_snapshot_file(
        file_data: *const u8,
        file_len: c_int,
        tenant_prefix: *const FDBBGTenantPrefix,
        encryption_ctx: *const FDBBGEncryptionCtx,
    ) -> *mut FDBResult;

    /// Parses a granule's delta file.
    pub fn fdb_readbg_parse_delta_file(
        file_data: *const u8,
        file_len: c_int,
        tenant_prefix: *const FDBBGTenantPrefix,
        encryption_ctx: *const FDBBGEncryptionCtx,
    ) -> *mut FDBResult;

    /// Begins to delete granule data older than a version; a future of the purge's key.
    pub fn fdb_database_purge_blob_granules(
        db: *mut FDBDatabase,
        begin_key_name: *const u8,
        begin_key_name_length: c_int,
        end_key_name: *const u8,
        end_key_name_length: c_int,
        purge_version: i64,
        force: fdb_bool_t,
    ) -> *mut FDBFuture;

    /// A future that is ready when the purge has ended.
    pub fn fdb_database_wait_purge_granules_complete(
        db: *mut FDBDatabase,
        purge_key_name: *const u8,
        purge_key_name_length: c_int,
    ) -> *mut FDBFuture;

    /// Begins to keep granules for a range.
    pub fn fdb_database_blobbify_range(
        db: *mut FDBDatabase,
        begin_key_name: *const u8,
        begin_key_name_length: c_int,
        end_key_name: *const u8,
        end_key_name_length: c_int,
    ) -> *mut FDBFuture;

    /// Begins to keep granules for a range and waits until they can be read.
    pub fn fdb_database_blobbify_range_blocking(
        db: *mut FDBDatabase,
        begin_key_name: *const u8,
        begin_key_name_length: c_int,
        end_key_name: *const u8,
        end_key_name_length: c_int,
    ) -> *mut FDBFuture;

    /// Ceases to keep granules for a range.
    pub fn fdb_database_unblobbify_range(
        db: *mut FDBDatabase,
        begin_key_name: *const u8,
        begin_key_name_length: c_int,
        end_key_name: *const u8,
        end_key_name_length: c_int,
    ) -> *mut FDBFuture;

    /// A future of the ranges that granules are kept for.
    pub fn fdb_database_list_blobbified_ranges(
        db: *mut FDBDatabase,
        begin_key_name: *const u8,
        begin_key_name_length: c_int,
        end_key_name: *const u8,
        end_key_name_length: c_int,
        range_limit: c_int,
    ) -> *mut FDBFuture;

    /// A future of the version up to which a range can be read from granules.
    pub fn fdb_database_verify_blob_range(
        db: *mut FDBDatabase,
        begin_key_name: *const u8,
        begin_key_name_length: c_int,
        end_key_name: *const u8,
        end_key_name_length: c_int,
        version: i64,
    ) -> *mut FDBFuture;

    /// Writes a range's granules out up to a version.
    pub fn fdb_database_flush_blob_range(
        db: *mut FDBDatabase,
        begin_key_name: *const u8,
        begin_key_name_length: c_int,
        end_key_name: *const u8,
        end_key_name_length: c_int,
        compact: fdb_bool_t,
        version: i64,
    ) -> *mut FDBFuture;

    /// As for a database, within the tenant.
    pub fn fdb_tenant_purge_blob_granules(
        db: *mut FDBTenant,
        begin_key_name: *const u8,
        begin_key_name_length: c_int,
        end_key_name: *const u8,
        end_key_name_length: c_int,
        purge_version: i64,
        force: fdb_bool_t,
    ) -> *mut FDBFuture;

    /// As for a database, within the tenant.
    pub fn fdb_tenant_wait_purge_granules_complete(
        db: *mut FDBTenant,
        purge_key_name: *const u8,
        purge_key_name_length: c_int,
    ) -> *mut FDBFuture;

    /// As for a database, within the tenant.
    pub fn fdb_tenant_blobbify_range(
        tenant: *mut FDBTenant,
        begin_key_name: *const u8,
        begin_key_name_length: c_int,
        end_key_name: *const u8,
        end_key_name_length: c_int,
    ) -> *mut FDBFuture;

    /// As for a database, within the tenant.
    pub fn fdb_tenant_blobbify_range_blocking(
        tenant: *mut FDBTenant,
        begin_key_name: *const u8,
        begin_key_name_length: c_int,
        end_key_name: *const u8,
        end_key_name_length: c_int,
    ) -> *mut FDBFuture;

    /// As for a database, within the tenant.
    pub fn fdb_tenant_unblobbify_range(
        tenant: *mut FDBTenant,
        begin_key_name: *const u8,
        begin_key_name_length: c_int,
        end_key_name: *const u8,
        end_key_name_length: c_int,
    ) -> *mut FDBFuture;

    /// As for a database, within the tenant.
    pub fn fdb_tenant_list_blobbified_ranges(
        tenant: *mut FDBTenant,
        begin_key_name: *const u8,
        begin_key_name_length: c_int,
        end_key_name: *const u8,
        end_key_name_length: c_int,
        range_limit: c_int,
    ) -> *mut FDBFuture;

    /// As for a database, within the tenant.
    pub fn fdb_tenant_verify_blob_range(
        tenant: *mut FDBTenant,
        begin_key_name: *const u8,
        begin_key_name_length: c_int,
        end_key_name: *const u8,
        end_key_name_length: c_int,
        version: i64,
    ) -> *mut FDBFuture;

    /// As for a database, within the tenant.
    pub fn fdb_tenant_flush_blob_range(
        tenant: *mut FDBTenant,
        begin_key_name: *const u8,
        begin_key_name_length: c_int,
        end_key_name: *const u8,
        end_key_name_length: c_int,
        compact: fdb_bool_t,
        version: i64,
    ) -> *mut FDBFuture;

    /// A future of the granules' key ranges within a range.
    pub fn fdb_transaction_get_blob_granule_ranges(
        tr: *mut FDBTransaction,
        begin_key_name: *const u8,
        begin_key_name_length: c_int,
        end_key_name: *const u8,
        end_key_name_length: c_int,
        range_limit: c_int,
    ) -> *mut FDBFuture;

    /// Reads a range from granules through the caller's file loader.
    pub fn fdb_transaction_read_blob_granules(
        tr: *mut FDBTransaction,
        begin_key_name: *const u8,
        begin_key_name_length: c_int,
        end_key_name: *const u8,
        end_key_name_length: c_int,
        begin_version: i64,
        read_version: i64,
        granule_context: FDBReadBlobGranuleContext,
    ) -> *mut FDBResult;

    /// A future of summaries of the granules in a range.
    pub fn fdb_transaction_summarize_blob_granules(
        tr: *mut FDBTransaction,
        begin_key_name: *const u8,
        begin_key_name_length: c_int,
        end_key_name: *const u8,
        end_key_name_length: c_int,
        summary_version: i64,
        range_limit: c_int,
    ) -> *mut FDBFuture;

    /// A future of the files that make up a range's granules.
    pub fn fdb_transaction_read_blob_granules_description(
        tr: *mut FDBTransaction,
        begin_key_name: *const u8,
        begin_key_name_length: c_int,
        end_key_name: *const u8,
        end_key_name_length: c_int,
        begin_version: i64,
        read_version: i64,
        read_version_out: *mut i64,
    ) -> *mut FDBFuture;
}
