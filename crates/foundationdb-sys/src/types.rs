//! Handles and the structures that the API hands out, with the C header's layout.
//!
//! The header packs most of them to 4 bytes, so pointer fields may be unaligned: copy a field out, never
//! borrow it.

use std::ffi::{c_int, c_uchar, c_void};

/// An error code; 0 means success.
pub type fdb_error_t = c_int;
/// A truth value; 0 means false.
pub type fdb_bool_t = c_int;

/// Declares a type that exists only behind pointers, with the header's name for it.
macro_rules! opaque {
    ($(#[$doc:meta] $tag:ident as $name:ident;)+) => {$(
        #[$doc]
        #[repr(C)]
        #[derive(Debug)]
        pub struct $tag {
            _opaque: [u8; 0],
        }
        #[$doc]
        pub type $name = $tag;
    )+};
}

opaque! {
    /// A result that arrives later.
    FDB_future as FDBFuture;
    /// A result that is already there.
    FDB_result as FDBResult;
    /// A cluster handle; nothing in this API version makes one.
    FDB_cluster as FDBCluster;
    /// A database handle.
    FDB_database as FDBDatabase;
    /// A tenant handle.
    FDB_tenant as FDBTenant;
    /// A transaction handle.
    FDB_transaction as FDBTransaction;
}

/// Called once when a future is ready, with the parameter it was registered with.
pub type FDBCallback = Option<unsafe extern "C" fn(future: *mut FDBFuture, callback_parameter: *mut c_void)>;

/// Called on the network thread when its loop has returned.
pub type FDBCompletionHook = Option<unsafe extern "C" fn(hook_parameter: *mut c_void)>;

/// A key, or any byte string.
#[repr(C, packed(4))]
#[derive(Debug, Copy, Clone)]
pub struct FDBKey {
    /// First byte; owned by the future the structure came from.
    pub key: *const u8,
    /// Length in bytes.
    pub key_length: c_int,
}

/// One row of a range read.
#[repr(C, packed(4))]
#[derive(Debug, Copy, Clone)]
pub struct FDBKeyValue {
    /// First byte of the key.
    pub key: *const u8,
    /// Length of the key in bytes.
    pub key_length: c_int,
    /// First byte of the value.
    pub value: *const u8,
    /// Length of the value in bytes.
    pub value_length: c_int,
}

/// A half-open range of keys.
#[repr(C, packed(4))]
#[derive(Debug, Copy, Clone)]
pub struct FDBKeyRange {
    /// First byte of the first key in the range.
    pub begin_key: *const u8,
    /// Length of the begin key in bytes.
    pub begin_key_length: c_int,
    /// First byte of the first key behind the range.
    pub end_key: *const u8,
    /// Length of the end key in bytes.
    pub end_key_length: c_int,
}

/// A key selector as mapped rows carry it.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct FDBKeySelector {
    /// The key that the selector starts from.
    pub key: FDBKey,
    /// Whether the key itself counts.
    pub orEqual: fdb_bool_t,
    /// How many keys to move on.
    pub offset: c_int,
}

/// The range read that belongs to a mapped row, and its rows.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct FDBGetRangeReqAndResult {
    /// Where the range begins.
    pub begin: FDBKeySelector,
    /// Where it ends.
    pub end: FDBKeySelector,
    /// Its rows.
    pub data: *mut FDBKeyValue,
    /// How many rows `data` holds.
    pub m_size: c_int,
    /// How many rows `data` has room for.
    pub m_capacity: c_int,
}

/// One row of a mapped range read.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct FDBMappedKeyValue {
    /// The row's key.
    pub key: FDBKey,
    /// The row's value; a byte string like a key.
    pub value: FDBKey,
    /// The range that the mapper derived from the row.
    pub getRange: FDBGetRangeReqAndResult,
    /// The client's own; not for reading.
    pub buffer: [c_uchar; 32],
}

/// The layouts that every caller of the C library was compiled against; 64-bit pointers.
#[cfg(target_pointer_width = "64")]
const _: () = {
    use std::mem::{align_of, offset_of, size_of};

    assert!(size_of::<FDBKey>() == 12 && align_of::<FDBKey>() == 4);
    assert!(offset_of!(FDBKey, key_length) == 8);

    assert!(size_of::<FDBKeyValue>() == 24 && align_of::<FDBKeyValue>() == 4);
    assert!(offset_of!(FDBKeyValue, key_length) == 8);
    assert!(offset_of!(FDBKeyValue, value) == 12);
    assert!(offset_of!(FDBKeyValue, value_length) == 20);

    assert!(size_of::<FDBKeyRange>() == 24 && align_of::<FDBKeyRange>() == 4);
    assert!(offset_of!(FDBKeyRange, end_key) == 12);

    assert!(size_of::<FDBKeySelector>() == 20 && align_of::<FDBKeySelector>() == 4);
    assert!(offset_of!(FDBKeySelector, orEqual) == 12);
    assert!(offset_of!(FDBKeySelector, offset) == 16);

    assert!(size_of::<FDBGetRangeReqAndResult>() == 56 && align_of::<FDBGetRangeReqAndResult>() == 8);
    assert!(offset_of!(FDBGetRangeReqAndResult, end) == 20);
    assert!(offset_of!(FDBGetRangeReqAndResult, data) == 40);
    assert!(offset_of!(FDBGetRangeReqAndResult, m_size) == 48);
    assert!(offset_of!(FDBGetRangeReqAndResult, m_capacity) == 52);

    assert!(size_of::<FDBMappedKeyValue>() == 112 && align_of::<FDBMappedKeyValue>() == 8);
    assert!(offset_of!(FDBMappedKeyValue, value) == 12);
    assert!(offset_of!(FDBMappedKeyValue, getRange) == 24);
    assert!(offset_of!(FDBMappedKeyValue, buffer) == 80);
};
