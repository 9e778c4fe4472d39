//! The structures of the blob granule calls, with the C header's layout (packed to 4 bytes).

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::types::{FDBKey, FDBKeyRange, fdb_bool_t};

/// The kind of a mutation in a delta file.
pub type FDBBGMutationType = c_uint;
/// The mutation writes a value.
pub const FDBBGMutationType_FDB_BG_MUTATION_TYPE_SET_VALUE: FDBBGMutationType = 0;
/// The mutation clears a range.
pub const FDBBGMutationType_FDB_BG_MUTATION_TYPE_CLEAR_RANGE: FDBBGMutationType = 1;

/// Versions and sizes of one granule.
#[repr(C, packed(4))]
#[derive(Debug, Copy, Clone)]
pub struct FDBGranuleSummary {
    /// The granule's keys.
    pub key_range: FDBKeyRange,
    /// Version of the snapshot file.
    pub snapshot_version: i64,
    /// Size of the snapshot file in bytes.
    pub snapshot_size: i64,
    /// Version that the delta files reach.
    pub delta_version: i64,
    /// Size of the delta files in bytes.
    pub delta_size: i64,
}

/// The caller's file loader for `fdb_transaction_read_blob_granules`.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct FDBReadBlobGranuleContext {
    /// Passed to each function below.
    pub userContext: *mut c_void,
    /// Starts to load a part of a file; returns the load's id.
    pub start_load_f: Option<
        unsafe extern "C" fn(
            filename: *const c_char,
            filename_length: c_int,
            offset: i64,
            length: i64,
            full_file_length: i64,
            context: *mut c_void,
        ) -> i64,
    >,
    /// Returns the bytes of a load.
    pub get_load_f: Option<unsafe extern "C" fn(load_id: i64, context: *mut c_void) -> *mut u8>,
    /// Frees the bytes of a load.
    pub free_load_f: Option<unsafe extern "C" fn(load_id: i64, context: *mut c_void)>,
    /// Non-zero: ask the workers, load nothing.
    pub debugNoMaterialize: fdb_bool_t,
    /// How many granules to load at once.
    pub granuleParallelism: c_int,
}

/// The tenant prefix of a granule's keys, if it has one.
#[repr(C, packed(4))]
#[derive(Debug, Copy, Clone)]
pub struct FDBBGTenantPrefix {
    /// Whether `prefix` means anything.
    pub present: fdb_bool_t,
    /// The prefix.
    pub prefix: FDBKey,
}

/// One encryption key of a granule file.
#[repr(C, packed(4))]
#[derive(Debug, Copy, Clone)]
pub struct FDBBGEncryptionKey {
    /// Encryption domain.
    pub domain_id: i64,
    /// Id of the base key.
    pub base_key_id: u64,
    /// Check value of the base key.
    pub base_kcv: u32,
    /// Salt.
    pub random_salt: u64,
    /// The base key's bytes.
    pub base_key: FDBKey,
}

/// How a granule file is encrypted, if it is.
#[repr(C, packed(4))]
#[derive(Debug, Copy, Clone)]
pub struct FDBBGEncryptionCtx {
    /// Whether the rest means anything.
    pub present: fdb_bool_t,
    /// Key of the text.
    pub textKey: FDBBGEncryptionKey,
    /// Check value of the text key.
    pub textKCV: u32,
    /// Key of the header.
    pub headerKey: FDBBGEncryptionKey,
    /// Check value of the header key.
    pub headerKCV: u32,
    /// Initialisation vector.
    pub iv: FDBKey,
}

/// A part of a granule file.
#[repr(C, packed(4))]
#[derive(Debug, Copy, Clone)]
pub struct FDBBGFilePointer {
    /// First byte of the file's name.
    pub filename_ptr: *const u8,
    /// Length of the name in bytes.
    pub filename_length: c_int,
    /// Where the part begins, in bytes.
    pub file_offset: i64,
    /// Its length in bytes.
    pub file_length: i64,
    /// The whole file's length in bytes.
    pub full_file_length: i64,
    /// The file's version.
    pub file_version: i64,
    /// How the file is encrypted.
    pub encryption_ctx: FDBBGEncryptionCtx,
}

/// One mutation of a delta file.
#[repr(C, packed(4))]
#[derive(Debug, Copy, Clone)]
pub struct FDBBGMutation {
    /// An [`FDBBGMutationType`] in one byte.
    pub type_: u8,
    /// The version the mutation committed at.
    pub version: i64,
    /// First byte of the key, or of the range's begin.
    pub param1_ptr: *const u8,
    /// Its length in bytes.
    pub param1_length: c_int,
    /// First byte of the value, or of the range's end.
    pub param2_ptr: *const u8,
    /// Its length in bytes.
    pub param2_length: c_int,
}

/// The files and mutations that make up one granule.
#[repr(C, packed(4))]
#[derive(Debug, Copy, Clone)]
pub struct FDBBGFileDescription {
    /// The granule's keys.
    pub key_range: FDBKeyRange,
    /// Whether there is a snapshot file.
    pub snapshot_present: fdb_bool_t,
    /// The snapshot file.
    pub snapshot_file_pointer: FDBBGFilePointer,
    /// How many delta files there are.
    pub delta_file_count: c_int,
    /// The delta files.
    pub delta_files: *mut FDBBGFilePointer,
    /// How many mutations are only in memory.
    pub memory_mutation_count: c_int,
    /// The mutations in memory.
    pub memory_mutations: *mut FDBBGMutation,
    /// The tenant prefix of the keys.
    pub tenant_prefix: FDBBGTenantPrefix,
}

/// Sizes as a C compiler lays the header's structures out; 64-bit pointers.
#[cfg(target_pointer_width = "64")]
const _: () = {
    use std::mem::{align_of, offset_of, size_of};

    assert!(size_of::<FDBGranuleSummary>() == 56 && align_of::<FDBGranuleSummary>() == 4);
    assert!(offset_of!(FDBGranuleSummary, snapshot_version) == 24);
    assert!(size_of::<FDBReadBlobGranuleContext>() == 40);
    assert!(size_of::<FDBBGTenantPrefix>() == 16);
    assert!(size_of::<FDBBGEncryptionKey>() == 40);
    assert!(size_of::<FDBBGEncryptionCtx>() == 104);
    assert!(size_of::<FDBBGFilePointer>() == 148);
    assert!(size_of::<FDBBGMutation>() == 36);
    assert!(offset_of!(FDBBGMutation, version) == 4);
    assert!(size_of::<FDBBGFileDescription>() == 216);
    assert!(offset_of!(FDBBGFileDescription, delta_files) == 180);
};
