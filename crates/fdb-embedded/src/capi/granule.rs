//! Blob granules: files with the history of a database, which an embedded database does not have.
//!
//! Queries answer as on a cluster without granules: there are no ranges, no version is readable,
//! nothing is flushed. Calls that would write or read granules fail.

use std::ffi::c_int;
use std::sync::{Arc, OnceLock};

use foundationdb_sys::{
    FDBBGEncryptionCtx, FDBBGFileDescription, FDBBGTenantPrefix, FDBDatabase, FDBFuture, FDBGranuleSummary,
    FDBReadBlobGranuleContext, FDBResult, FDBTenant, FDBTransaction, fdb_bool_t, fdb_error_t,
};

use super::forwarded::forwarded;
use super::future::{CFuture, MISMATCH, give};
use super::missing::found;
use super::shared_object::{LoadError, SharedObject};
use super::tenant::CTenant;
use super::transaction::CTransaction;
use super::unknown_tenant::not_found;
use super::{bytes, result};
use crate::client::Database;
use crate::error::Code;
use crate::future::{Future, Output};

/// "No version" up to which a range can be read from granules.
const INVALID_VERSION: i64 = -1;

/// A future of the error for unsupported operations.
fn unsupported() -> *mut FDBFuture {
    give(Future::ready(Err(Code::UNSUPPORTED_OPERATION)))
}

/// A future of `answer`, if the range is valid.
fn about_range(begin: &[u8], end: &[u8], answer: Output) -> *mut FDBFuture {
    let answer: Result<Output, Code> = if begin > end { Err(Code::INVERTED_RANGE) } else { Ok(answer) };
    give(Future::ready(answer))
}

forwarded! {
    table RealDatabaseGranules; handle FDBDatabase; object Arc<Database>;

    /// A key future: deletes granules older than a version.
    [since 710] fn fdb_database_purge_blob_granules(
        _own, _begin: *const u8, _begin_length: c_int, _end: *const u8, _end_length: c_int, _version: i64, _force: fdb_bool_t,
    ) -> *mut FDBFuture {
        unsupported()
    }

    /// A void future: ready when a purge has ended.
    [since 710] fn fdb_database_wait_purge_granules_complete(
        _own, _purge_key: *const u8, _purge_key_length: c_int,
    ) -> *mut FDBFuture {
        unsupported()
    }

    /// A bool future: starts to keep granules of a range.
    [since 720] fn fdb_database_blobbify_range(
        _own, _begin: *const u8, _begin_length: c_int, _end: *const u8, _end_length: c_int,
    ) -> *mut FDBFuture {
        unsupported()
    }

    /// Like `fdb_database_blobbify_range`, and waits until they can be read.
    [since 730] fn fdb_database_blobbify_range_blocking(
        _own, _begin: *const u8, _begin_length: c_int, _end: *const u8, _end_length: c_int,
    ) -> *mut FDBFuture {
        unsupported()
    }

    /// A bool future: stops keeping granules of a range.
    [since 720] fn fdb_database_unblobbify_range(
        _own, begin: *const u8, begin_length: c_int, end: *const u8, end_length: c_int,
    ) -> *mut FDBFuture
    where begin = bytes(begin, begin_length), end = bytes(end, end_length)
    {
        about_range(begin, end, Output::Bool(true))
    }

    /// A key range array future: the ranges with granules.
    [since 720] fn fdb_database_list_blobbified_ranges(
        _own, begin: *const u8, begin_length: c_int, end: *const u8, end_length: c_int, _limit: c_int,
    ) -> *mut FDBFuture
    where begin = bytes(begin, begin_length), end = bytes(end, end_length)
    {
        about_range(begin, end, Output::KeyRanges(Vec::new()))
    }

    /// An int64 future: the version up to which a range can be read from granules.
    [since 720] fn fdb_database_verify_blob_range(
        _own, begin: *const u8, begin_length: c_int, end: *const u8, end_length: c_int, _version: i64,
    ) -> *mut FDBFuture
    where begin = bytes(begin, begin_length), end = bytes(end, end_length)
    {
        about_range(begin, end, Output::Int64(INVALID_VERSION))
    }

    /// A bool future: flushes the granules of a range.
    [since 730] fn fdb_database_flush_blob_range(
        _own, begin: *const u8, begin_length: c_int, end: *const u8, end_length: c_int, _compact: fdb_bool_t, _version: i64,
    ) -> *mut FDBFuture
    where begin = bytes(begin, begin_length), end = bytes(end, end_length)
    {
        about_range(begin, end, Output::Bool(false))
    }
}

forwarded! {
    table RealTenantGranules; handle FDBTenant; object CTenant;

    /// As for a database, within the tenant.
    [since 720] fn fdb_tenant_purge_blob_granules(
        _own, _begin: *const u8, _begin_length: c_int, _end: *const u8, _end_length: c_int, _version: i64, _force: fdb_bool_t,
    ) -> *mut FDBFuture {
        not_found()
    }

    /// As for a database, within the tenant.
    [since 720] fn fdb_tenant_wait_purge_granules_complete(
        _own, _purge_key: *const u8, _purge_key_length: c_int,
    ) -> *mut FDBFuture {
        not_found()
    }

    /// As for a database, within the tenant.
    [since 720] fn fdb_tenant_blobbify_range(
        _own, _begin: *const u8, _begin_length: c_int, _end: *const u8, _end_length: c_int,
    ) -> *mut FDBFuture {
        not_found()
    }

    /// As for a database, within the tenant.
    [since 730] fn fdb_tenant_blobbify_range_blocking(
        _own, _begin: *const u8, _begin_length: c_int, _end: *const u8, _end_length: c_int,
    ) -> *mut FDBFuture {
        not_found()
    }

    /// As for a database, within the tenant.
    [since 720] fn fdb_tenant_unblobbify_range(
        _own, _begin: *const u8, _begin_length: c_int, _end: *const u8, _end_length: c_int,
    ) -> *mut FDBFuture {
        not_found()
    }

    /// As for a database, within the tenant.
    [since 720] fn fdb_tenant_list_blobbified_ranges(
        _own, _begin: *const u8, _begin_length: c_int, _end: *const u8, _end_length: c_int, _limit: c_int,
    ) -> *mut FDBFuture {
        not_found()
    }

    /// As for a database, within the tenant.
    [since 720] fn fdb_tenant_verify_blob_range(
        _own, _begin: *const u8, _begin_length: c_int, _end: *const u8, _end_length: c_int, _version: i64,
    ) -> *mut FDBFuture {
        not_found()
    }

    /// As for a database, within the tenant.
    [since 730] fn fdb_tenant_flush_blob_range(
        _own, _begin: *const u8, _begin_length: c_int, _end: *const u8, _end_length: c_int, _compact: fdb_bool_t, _version: i64,
    ) -> *mut FDBFuture {
        not_found()
    }
}

forwarded! {
    table RealTransactionGranules; handle FDBTransaction; object CTransaction;

    /// A key range array future: the granules within a range.
    [since 710] fn fdb_transaction_get_blob_granule_ranges(
        _own, begin: *const u8, begin_length: c_int, end: *const u8, end_length: c_int, _limit: c_int,
    ) -> *mut FDBFuture
    where begin = bytes(begin, begin_length), end = bytes(end, end_length)
    {
        about_range(begin, end, Output::KeyRanges(Vec::new()))
    }

    /// A granule summary array future.
    [since 720] fn fdb_transaction_summarize_blob_granules(
        _own, _begin: *const u8, _begin_length: c_int, _end: *const u8, _end_length: c_int, _version: i64, _limit: c_int,
    ) -> *mut FDBFuture {
        give(Future::ready(Err(Code::BLOB_GRANULE_TOO_OLD)))
    }

    /// Reads a range from granules.
    [since 710] fn fdb_transaction_read_blob_granules(
        _own, _begin: *const u8, _begin_length: c_int, _end: *const u8, _end_length: c_int, _begin_version: i64, _read_version: i64, _context: FDBReadBlobGranuleContext,
    ) -> *mut FDBResult {
        result::give(Code::UNSUPPORTED_OPERATION)
    }

    /// A future of the files of a range's granules.
    [since 730] fn fdb_transaction_read_blob_granules_description(
        _own, _begin: *const u8, _begin_length: c_int, _end: *const u8, _end_length: c_int, _begin_version: i64, _read_version: i64, _read_version_out: *mut i64,
    ) -> *mut FDBFuture {
        unsupported()
    }

    /// The first half of `fdb_transaction_read_blob_granules`, for FoundationDB's internal use.
    [since 720] fn fdb_transaction_read_blob_granules_start(
        _own, _begin: *const u8, _begin_length: c_int, _end: *const u8, _end_length: c_int, _begin_version: i64, _read_version: i64, _read_version_out: *mut i64,
    ) -> *mut FDBFuture {
        unsupported()
    }

    /// The second half of `fdb_transaction_read_blob_granules`, for FoundationDB's internal use.
    [since 720] fn fdb_transaction_read_blob_granules_finish(
        _own, _start: *mut FDBFuture, _begin: *const u8, _begin_length: c_int, _end: *const u8, _end_length: c_int, _begin_version: i64, _read_version: i64,
        _context: *mut FDBReadBlobGranuleContext,
    ) -> *mut FDBResult {
        result::give(Code::UNSUPPORTED_OPERATION)
    }
}

forwarded! {
    table RealGranuleFutures; handle FDBFuture; object CFuture;

    /// An array of granule summaries. No future of an embedded database has one.
    [since 720] fn fdb_future_get_granule_summary_array(
        own, _out_summaries: *mut *const FDBGranuleSummary, _out_count: *mut c_int,
    ) -> fdb_error_t {
        own.read(|_, _| Err(MISMATCH))
    }

    /// The files of granules. No future of an embedded database has them.
    [since 730] fn fdb_future_readbg_get_descriptions(
        own, _out: *mut *mut FDBBGFileDescription, _out_count: *mut c_int,
    ) -> fdb_error_t {
        own.read(|_, _| Err(MISMATCH))
    }
}

/// A parser of granule files in the real library: contents, their length, tenant prefix, encryption.
type ParseFile = unsafe extern "C" fn(
    *const u8,
    c_int,
    *const FDBBGTenantPrefix,
    *const FDBBGEncryptionCtx,
) -> *mut FDBResult;

/// The real library's parsers of granule files.
pub(super) struct RealParsers {
    snapshot: ParseFile,
    delta: ParseFile,
}

static PARSERS: OnceLock<RealParsers> = OnceLock::new();

impl RealParsers {
    /// Looks the functions up in the real library.
    pub(super) fn load(library: &SharedObject) -> Result<RealParsers, LoadError> {
        // SAFETY: the types are those of the C header, which the real library implements.
        unsafe {
            Ok(RealParsers {
                snapshot: found!(
                    library,
                    fdb_readbg_parse_snapshot_file,
                    [730],
                    (*const u8, c_int, *const FDBBGTenantPrefix, *const FDBBGEncryptionCtx) -> *mut FDBResult
                ),
                delta: found!(
                    library,
                    fdb_readbg_parse_delta_file,
                    [730],
                    (*const u8, c_int, *const FDBBGTenantPrefix, *const FDBBGEncryptionCtx) -> *mut FDBResult
                ),
            })
        }
    }

    /// Keeps them for the calls, after the real library has started.
    pub(super) fn keep(self) {
        let _ = PARSERS.set(self);
    }
}

/// Parses a granule's snapshot file. Requires that the real library is loaded.
///
/// # Safety
/// The pointers must be what the C API's documentation says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_readbg_parse_snapshot_file(
    file: *const u8,
    file_length: c_int,
    tenant_prefix: *const FDBBGTenantPrefix,
    encryption: *const FDBBGEncryptionCtx,
) -> *mut FDBResult {
    match PARSERS.get() {
        // SAFETY: the caller's arguments, passed on.
        Some(parsers) => unsafe { (parsers.snapshot)(file, file_length, tenant_prefix, encryption) },
        None => result::give(Code::UNSUPPORTED_OPERATION),
    }
}

/// Parses a granule's delta file. Requires that the real library is loaded.
///
/// # Safety
/// The pointers must be what the C API's documentation says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_readbg_parse_delta_file(
    file: *const u8,
    file_length: c_int,
    tenant_prefix: *const FDBBGTenantPrefix,
    encryption: *const FDBBGEncryptionCtx,
) -> *mut FDBResult {
    match PARSERS.get() {
        // SAFETY: the caller's arguments, passed on.
        Some(parsers) => unsafe { (parsers.delta)(file, file_length, tenant_prefix, encryption) },
        None => result::give(Code::UNSUPPORTED_OPERATION),
    }
}
