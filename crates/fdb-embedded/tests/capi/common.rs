//! Handles that free themselves, and a database to try them on.

use std::ffi::{CString, c_int};

use fdb_embedded::testing::network;
use foundationdb_sys as sys;
use foundationdb_sys::{FDBDatabase, FDBFuture, FDBTransaction, fdb_error_t};

/// Names the cluster file of a real cluster to run on.
const CLUSTER_VARIABLE: &str = "KVQUEUE_TEST_CLUSTER_FILE";

/// A length as C has it.
pub(crate) fn len(bytes: &[u8]) -> c_int {
    c_int::try_from(bytes.len()).unwrap()
}

/// Opens a database by its path.
pub(crate) fn open(path: &str) -> Result<Database, fdb_error_t> {
    network();
    let path = CString::new(path).unwrap();
    let mut handle = std::ptr::null_mut();
    // SAFETY: a string and a place for the handle.
    match unsafe { sys::fdb_create_database(path.as_ptr(), &raw mut handle) } {
        0 => Ok(Database { handle, _directory: None }),
        error => Err(error),
    }
}

/// A database of its own; on a real cluster, the cluster.
pub(crate) fn database() -> Database {
    if let Ok(cluster) = std::env::var(CLUSTER_VARIABLE) {
        return open(&cluster).unwrap();
    }
    let directory = tempfile::tempdir().unwrap();
    let database = open(&format!("embedded:{}", directory.path().display())).unwrap();
    Database { handle: database.into_raw(), _directory: Some(directory) }
}

/// Do the tests run on a cluster?
pub(crate) fn on_cluster() -> bool {
    std::env::var_os(CLUSTER_VARIABLE).is_some()
}

/// A database handle.
pub(crate) struct Database {
    pub(crate) handle: *mut FDBDatabase,
    _directory: Option<tempfile::TempDir>,
}

impl Database {
    fn into_raw(self) -> *mut FDBDatabase {
        let handle = self.handle;
        std::mem::forget(self);
        handle
    }

    pub(crate) fn transaction(&self) -> Transaction {
        let mut handle = std::ptr::null_mut();
        // SAFETY: a live handle and a place for another.
        assert_eq!(unsafe { sys::fdb_database_create_transaction(self.handle, &raw mut handle) }, 0);
        Transaction(handle)
    }

    /// A read that has ended, of a transaction of its own: the end of the transaction would end it.
    pub(crate) fn read(&self, key: &[u8]) -> Future {
        let transaction = self.transaction();
        let read = transaction.get(key);
        read.wait();
        read
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // SAFETY: the handle is live until here.
        unsafe { sys::fdb_database_destroy(self.handle) }
    }
}

/// A transaction handle.
pub(crate) struct Transaction(pub(crate) *mut FDBTransaction);

impl Transaction {
    pub(crate) fn set(&self, key: &[u8], value: &[u8]) {
        // SAFETY: a live handle, and slices.
        unsafe { sys::fdb_transaction_set(self.0, key.as_ptr(), len(key), value.as_ptr(), len(value)) }
    }

    pub(crate) fn get(&self, key: &[u8]) -> Future {
        // SAFETY: a live handle, and a slice.
        Future(unsafe { sys::fdb_transaction_get(self.0, key.as_ptr(), len(key), 0) })
    }

    pub(crate) fn watch(&self, key: &[u8]) -> Future {
        // SAFETY: a live handle, and a slice.
        Future(unsafe { sys::fdb_transaction_watch(self.0, key.as_ptr(), len(key)) })
    }

    pub(crate) fn commit(&self) -> Future {
        // SAFETY: a live handle.
        Future(unsafe { sys::fdb_transaction_commit(self.0) })
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        // SAFETY: the handle is live until here.
        unsafe { sys::fdb_transaction_destroy(self.0) }
    }
}

/// A future handle.
pub(crate) struct Future(pub(crate) *mut FDBFuture);

impl Future {
    /// Waits for the outcome: 0, or the error.
    pub(crate) fn wait(&self) -> fdb_error_t {
        // SAFETY: a live handle.
        unsafe {
            assert_eq!(sys::fdb_future_block_until_ready(self.0), 0);
            sys::fdb_future_get_error(self.0)
        }
    }

    pub(crate) fn error(&self) -> fdb_error_t {
        // SAFETY: a live handle.
        unsafe { sys::fdb_future_get_error(self.0) }
    }

    pub(crate) fn is_ready(&self) -> bool {
        // SAFETY: a live handle.
        unsafe { sys::fdb_future_is_ready(self.0) != 0 }
    }

    pub(crate) fn cancel(&self) {
        // SAFETY: a live handle.
        unsafe { sys::fdb_future_cancel(self.0) }
    }

    pub(crate) fn release(&self) {
        // SAFETY: a live handle.
        unsafe { sys::fdb_future_release_memory(self.0) }
    }

    /// The value, copied, or the error.
    pub(crate) fn value(&self) -> Result<Option<Vec<u8>>, fdb_error_t> {
        let (mut present, mut pointer, mut length) = (0, std::ptr::null(), 0);
        // SAFETY: a live handle and places for what it holds.
        let error =
            unsafe { sys::fdb_future_get_value(self.0, &raw mut present, &raw mut pointer, &raw mut length) };
        if error != 0 {
            return Err(error);
        }
        // SAFETY: the future holds that many bytes there.
        Ok((present != 0).then(|| unsafe { copy(pointer, length) }))
    }

    pub(crate) fn int64(&self) -> Result<i64, fdb_error_t> {
        let mut value = 0;
        // SAFETY: a live handle and a place for what it holds.
        match unsafe { sys::fdb_future_get_int64(self.0, &raw mut value) } {
            0 => Ok(value),
            error => Err(error),
        }
    }

    pub(crate) fn bool(&self) -> Result<bool, fdb_error_t> {
        let mut value = 0;
        // SAFETY: a live handle and a place for what it holds.
        match unsafe { sys::fdb_future_get_bool(self.0, &raw mut value) } {
            0 => Ok(value != 0),
            error => Err(error),
        }
    }

    pub(crate) fn range_count(&self) -> Result<c_int, fdb_error_t> {
        let (mut ranges, mut count) = (std::ptr::null(), -1);
        // SAFETY: a live handle and places for what it holds.
        match unsafe { sys::fdb_future_get_keyrange_array(self.0, &raw mut ranges, &raw mut count) } {
            0 => Ok(count),
            error => Err(error),
        }
    }
}

impl Drop for Future {
    fn drop(&mut self) {
        // SAFETY: the handle is live until here.
        unsafe { sys::fdb_future_destroy(self.0) }
    }
}

/// Copies bytes that C points at.
///
/// # Safety
/// There must be that many.
pub(crate) unsafe fn copy(pointer: *const u8, length: c_int) -> Vec<u8> {
    let length = usize::try_from(length).unwrap();
    // SAFETY: the caller's promise.
    if length == 0 { Vec::new() } else { unsafe { std::slice::from_raw_parts(pointer, length) }.to_vec() }
}
