//! Transactions: reads, writes, commit, retry.

use std::ffi::c_int;
use std::sync::Arc;

use foundationdb_sys::{
    FDBConflictRangeType, FDBFuture, FDBMutationType, FDBStreamingMode, FDBTransaction, FDBTransactionOption,
    fdb_bool_t, fdb_error_t,
};

use super::forwarded::forwarded;
use super::future::give;
use super::handle;
use super::unknown_tenant::{self, UnknownTenant};
use super::{bytes, option_value, slot, status, yielding};
use crate::client::{ConflictKind, RangeArguments, Selector, Transaction};
use crate::error::Code;
use crate::future::{Future, Output};

/// The object of a transaction's handle.
pub(super) struct CTransaction {
    transaction: Arc<Transaction>,
    /// For a transaction made in a tenant, which never exists.
    tenant: Option<UnknownTenant>,
}

impl CTransaction {
    pub(super) fn new(transaction: Arc<Transaction>) -> CTransaction {
        CTransaction { transaction, tenant: None }
    }

    /// A transaction that cannot access data.
    pub(super) fn in_tenant(transaction: Arc<Transaction>) -> CTransaction {
        CTransaction { tenant: Some(UnknownTenant::default()), ..CTransaction::new(transaction) }
    }

    /// Returns the future of a call that accesses data to the caller.
    fn read(&self, call: impl FnOnce(&Arc<Transaction>) -> Arc<Future>) -> *mut FDBFuture {
        if let Some(tenant) = &self.tenant {
            return give(Future::ready(Err(tenant.read_error())));
        }
        yielding::give(call(&self.transaction))
    }
}

impl std::ops::Deref for CTransaction {
    type Target = Arc<Transaction>;

    fn deref(&self) -> &Arc<Transaction> {
        &self.transaction
    }
}

/// Frees a transaction. Its pending futures fail.
///
/// # Safety
/// The handle must be live and is not to be used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_transaction_destroy(transaction: *mut FDBTransaction) {
    // SAFETY: the caller's promise.
    match unsafe { handle::take::<CTransaction, _>(transaction) } {
        Some(own) => own.close(),
        None => {
            let destroy = RealTransactions::get().fdb_transaction_destroy;
            // SAFETY: the handle is the real library's, and the caller's promise.
            unsafe { destroy(transaction) }
        }
    }
}

forwarded! {
    table RealTransactions; handle FDBTransaction; object CTransaction;
    also { fn fdb_transaction_destroy(); }

    /// Fails all pending futures and all later calls, until a reset.
    fn fdb_transaction_cancel(own) {
        own.cancel();
    }

    /// Resets the transaction.
    fn fdb_transaction_reset(own) {
        own.reset();
    }

    /// Sets an option.
    fn fdb_transaction_set_option(
        own, option: FDBTransactionOption, value: *const u8, value_length: c_int,
    ) -> fdb_error_t
    where value = option_value(value, value_length)
    {
        match c_int::try_from(option) {
            Ok(code) => status(value.and_then(|value| own.set_option(code, value))),
            Err(_) => Code::INVALID_OPTION.raw(),
        }
    }

    /// Sets the read version.
    fn fdb_transaction_set_read_version(own, version: i64) {
        own.set_read_version(version);
    }

    /// An int64 future: the read version.
    fn fdb_transaction_get_read_version(own) -> *mut FDBFuture {
        if let Some(tenant) = &own.tenant {
            tenant.note_read_version();
        }
        yielding::give(own.get_read_version())
    }

    /// A value future.
    fn fdb_transaction_get(
        own, key: *const u8, key_length: c_int, snapshot: fdb_bool_t,
    ) -> *mut FDBFuture
    where key = bytes(key, key_length)
    {
        own.read(|own| own.get(key, snapshot != 0))
    }

    /// A key future: the key that a selector selects.
    fn fdb_transaction_get_key(
        own, key: *const u8, key_length: c_int, or_equal: fdb_bool_t, offset: c_int, snapshot: fdb_bool_t,
    ) -> *mut FDBFuture
    where key = bytes(key, key_length)
    {
        let selector = Selector::new(key, or_equal != 0, offset);
        own.read(|own| own.get_key(&selector, snapshot != 0))
    }

    /// A string array future: the addresses of the servers that store a key.
    fn fdb_transaction_get_addresses_for_key(own, key: *const u8, key_length: c_int) -> *mut FDBFuture
    where key = bytes(key, key_length)
    {
        own.read(|own| own.get_addresses_for_key(key))
    }

    /// A rows future: the rows between two selectors.
    fn fdb_transaction_get_range(
        own,
        begin_key: *const u8, begin_length: c_int, begin_or_equal: fdb_bool_t, begin_offset: c_int,
        end_key: *const u8, end_length: c_int, end_or_equal: fdb_bool_t, end_offset: c_int,
        limit: c_int, target_bytes: c_int, mode: FDBStreamingMode, iteration: c_int,
        snapshot: fdb_bool_t, reverse: fdb_bool_t,
    ) -> *mut FDBFuture
    where begin_key = bytes(begin_key, begin_length), end_key = bytes(end_key, end_length)
    {
        own.read(|own| own.get_range(&RangeArguments {
            begin: Selector::new(begin_key, begin_or_equal != 0, begin_offset),
            end: Selector::new(end_key, end_or_equal != 0, end_offset),
            limit,
            target_bytes,
            mode,
            iteration,
            snapshot: snapshot != 0,
            reverse: reverse != 0,
        }))
    }

    /// A mapped rows future: the rows between two selectors, and the rows that a mapper selects for
    /// each.
    [since 710] fn fdb_transaction_get_mapped_range(
        own,
        begin_key: *const u8, begin_length: c_int, begin_or_equal: fdb_bool_t, begin_offset: c_int,
        end_key: *const u8, end_length: c_int, end_or_equal: fdb_bool_t, end_offset: c_int,
        mapper: *const u8, mapper_length: c_int,
        limit: c_int, target_bytes: c_int, mode: FDBStreamingMode, iteration: c_int,
        snapshot: fdb_bool_t, reverse: fdb_bool_t,
    ) -> *mut FDBFuture
    where
        begin_key = bytes(begin_key, begin_length), end_key = bytes(end_key, end_length), mapper = bytes(mapper, mapper_length)
    {
        let arguments = RangeArguments {
            begin: Selector::new(begin_key, begin_or_equal != 0, begin_offset),
            end: Selector::new(end_key, end_or_equal != 0, end_offset),
            limit,
            target_bytes,
            mode,
            iteration,
            snapshot: snapshot != 0,
            reverse: reverse != 0,
        };
        own.read(|own| own.get_mapped_range(&arguments, mapper))
    }

    /// Sets a key.
    fn fdb_transaction_set(
        own, key: *const u8, key_length: c_int, value: *const u8, value_length: c_int,
    )
    where key = bytes(key, key_length), value = bytes(value, value_length)
    {
        own.set(key, value);
    }

    /// Applies an atomic operation.
    fn fdb_transaction_atomic_op(
        own, key: *const u8, key_length: c_int, operand: *const u8, operand_length: c_int,
        operation: FDBMutationType,
    )
    where key = bytes(key, key_length), operand = bytes(operand, operand_length)
    {
        let code = c_int::try_from(operation).unwrap_or(-1);
        own.atomic_op(key, operand, code);
    }

    /// Clears a key.
    fn fdb_transaction_clear(own, key: *const u8, key_length: c_int)
    where key = bytes(key, key_length)
    {
        own.clear(key);
    }

    /// Clears a range.
    fn fdb_transaction_clear_range(
        own, begin: *const u8, begin_length: c_int, end: *const u8, end_length: c_int,
    )
    where begin = bytes(begin, begin_length), end = bytes(end, end_length)
    {
        own.clear_range(begin, end);
    }

    /// A void future: ready when the key changes.
    fn fdb_transaction_watch(own, key: *const u8, key_length: c_int) -> *mut FDBFuture
    where key = bytes(key, key_length)
    {
        own.read(|own| own.watch(key))
    }

    /// A void future: ready when the commit is durable, or has failed.
    fn fdb_transaction_commit(own) -> *mut FDBFuture {
        if own.tenant.is_some() && !own.is_read_only() {
            return unknown_tenant::not_found();
        }
        give(own.commit())
    }

    /// The version of the last commit; -1 if there is none.
    fn fdb_transaction_get_committed_version(own, out: *mut i64) -> fdb_error_t
    where out = slot(out)
    {
        out.write(own.committed_version());
        0
    }

    /// A double future: the seconds for which throttling by tag has delayed the transaction. Always
    /// 0 here.
    [since 730] fn fdb_transaction_get_tag_throttled_duration(_own) -> *mut FDBFuture {
        give(Future::ready(Ok(Output::Double(0.0))))
    }

    /// An int64 future: the cost of the transaction so far, in bytes of whole pages.
    [since 730] fn fdb_transaction_get_total_cost(own) -> *mut FDBFuture {
        give(own.get_total_cost())
    }

    /// An int64 future: the transaction's size so far.
    [since 620] fn fdb_transaction_get_approximate_size(own) -> *mut FDBFuture {
        give(own.get_approximate_size())
    }

    /// A key future: the versionstamp of the next commit.
    fn fdb_transaction_get_versionstamp(own) -> *mut FDBFuture {
        give(own.get_versionstamp())
    }

    /// A void future: ready when the transaction may be retried.
    fn fdb_transaction_on_error(own, error: fdb_error_t) -> *mut FDBFuture {
        give(own.on_error(Code::from_raw(error)))
    }

    /// Adds a conflict range: 0 for a read, 1 for a write.
    fn fdb_transaction_add_conflict_range(
        own, begin: *const u8, begin_length: c_int, end: *const u8, end_length: c_int,
        kind: FDBConflictRangeType,
    ) -> fdb_error_t
    where begin = bytes(begin, begin_length), end = bytes(end, end_length)
    {
        let kind = match kind {
            // An inverted range is reported first.
            _ if begin > end => return Code::INVERTED_RANGE.raw(),
            0 => ConflictKind::Read,
            1 => ConflictKind::Write,
            _ => return Code::CLIENT_INVALID_OPERATION.raw(),
        };
        status(own.add_conflict_range(begin, end, kind))
    }

    /// An int64 future: bytes in a range.
    [since 630] fn fdb_transaction_get_estimated_range_size_bytes(
        own, begin: *const u8, begin_length: c_int, end: *const u8, end_length: c_int,
    ) -> *mut FDBFuture
    where begin = bytes(begin, begin_length), end = bytes(end, end_length)
    {
        own.read(|own| own.get_estimated_range_size(begin, end))
    }

    /// A key array future: points that split a range into chunks.
    [since 700] fn fdb_transaction_get_range_split_points(
        own, begin: *const u8, begin_length: c_int, end: *const u8, end_length: c_int, chunk_size: i64,
    ) -> *mut FDBFuture
    where begin = bytes(begin, begin_length), end = bytes(end, end_length)
    {
        own.read(|own| own.get_range_split_points(begin, end, chunk_size))
    }
}
