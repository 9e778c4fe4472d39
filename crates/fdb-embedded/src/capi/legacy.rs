//! Functions that were removed from the API, for programs with older headers.
//!
//! As in FoundationDB, calling such a function ends the process with a message if the program's
//! header does not have it. A cluster handle only holds the path of the cluster file, for both
//! engines.

use std::ffi::{CStr, CString, c_char, c_int};

use foundationdb_sys::{FDBCluster, FDBDatabase, FDBFuture, fdb_error_t};

use super::future::{CFuture, MISMATCH, fdb_future_get_int64, give};
use super::{bytes, chosen, handle, open};
use crate::error::Code;
use crate::future::{Future, Output};

/// The object of a cluster handle.
struct CCluster {
    path: Option<CString>,
}

/// Ends the process unless the program's header is older than `version`.
fn only_before(version: c_int, function: &str) {
    if chosen::header_version().is_none_or(|header| header >= version) {
        crate::reports::report(&format!("{function} is not part of API version {version} and later"));
        std::process::abort();
    }
}

/// The path of the cluster file in a future made here.
///
/// # Safety
/// As for every function of the C API.
unsafe fn cluster_file(future: *mut FDBFuture) -> Result<Option<CString>, fdb_error_t> {
    // SAFETY: the caller's promise.
    let own = unsafe { handle::borrow::<CFuture, _>(future) }.ok_or(MISMATCH.raw())?;
    let mut path = None;
    let read = own.read(|output, _| match output {
        Output::ClusterFile(found) => {
            path.clone_from(found);
            Ok(())
        }
        _ => Err(MISMATCH),
    });
    if read == 0 { Ok(path) } else { Err(read) }
}

/// A cluster future.
///
/// # Safety
/// `path` must be null or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_create_cluster(path: *const c_char) -> *mut FDBFuture {
    only_before(610, "fdb_create_cluster");
    // SAFETY: the caller's promise.
    let path = (!path.is_null()).then(|| unsafe { CStr::from_ptr(path) }.to_owned());
    give(Future::ready(Ok(Output::ClusterFile(path))))
}

/// The cluster of a cluster future. The caller has to destroy it.
///
/// # Safety
/// As for every function of the C API.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_future_get_cluster(
    future: *mut FDBFuture,
    out: *mut *mut FDBCluster,
) -> fdb_error_t {
    only_before(610, "fdb_future_get_cluster");
    // SAFETY: the caller's promise.
    match unsafe { cluster_file(future) } {
        Ok(path) => {
            // SAFETY: the caller's promise.
            unsafe { out.write(handle::give(CCluster { path })) };
            0
        }
        Err(error) => error,
    }
}

/// Sets an option of a cluster. There are no such options.
#[unsafe(no_mangle)]
pub extern "C" fn fdb_cluster_set_option(
    _cluster: *mut FDBCluster,
    _option: c_int,
    _value: *const u8,
    _value_length: c_int,
) -> fdb_error_t {
    only_before(610, "fdb_cluster_set_option");
    0
}

/// Frees a cluster.
///
/// # Safety
/// The handle must be live and is not to be used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_cluster_destroy(cluster: *mut FDBCluster) {
    only_before(610, "fdb_cluster_destroy");
    // SAFETY: the caller's promise.
    drop(unsafe { handle::take::<CCluster, _>(cluster) });
}

/// A database future. The name must be "DB".
///
/// # Safety
/// As for every function of the C API.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_cluster_create_database(
    cluster: *mut FDBCluster,
    name: *const u8,
    name_length: c_int,
) -> *mut FDBFuture {
    only_before(610, "fdb_cluster_create_database");
    // SAFETY: the caller's promise.
    let (cluster, name) = unsafe { (handle::borrow::<CCluster, _>(cluster), bytes(name, name_length)) };
    give(Future::ready(match cluster {
        Some(cluster) if name == b"DB" => Ok(Output::ClusterFile(cluster.path.clone())),
        Some(_) => Err(Code::INVALID_DATABASE_NAME),
        None => Err(MISMATCH),
    }))
}

/// Opens the database of a database future. The caller has to destroy it.
///
/// # Safety
/// As for every function of the C API.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_future_get_database(
    future: *mut FDBFuture,
    out: *mut *mut FDBDatabase,
) -> fdb_error_t {
    only_before(610, "fdb_future_get_database");
    // SAFETY: the caller's promise.
    match unsafe { cluster_file(future) } {
        // SAFETY: a string, and the caller's promise.
        Ok(path) => unsafe {
            let opened = open::by_path(path.as_deref().map_or(std::ptr::null(), CStr::as_ptr));
            open::hand_out(opened, out)
        },
        Err(error) => error,
    }
}

/// An int64 result, under its older name.
///
/// # Safety
/// As for every function of the C API.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_future_get_version(future: *mut FDBFuture, out: *mut i64) -> fdb_error_t {
    only_before(620, "fdb_future_get_version");
    // SAFETY: the caller's promise.
    unsafe { fdb_future_get_int64(future, out) }
}

/// Not part of any API version that can be selected.
#[unsafe(no_mangle)]
pub extern "C" fn fdb_future_is_error() {
    only_before(23, "fdb_future_is_error");
}

/// Not part of any API version that can be selected.
#[unsafe(no_mangle)]
pub extern "C" fn fdb_transaction_get_range_selector() {
    only_before(14, "fdb_transaction_get_range_selector");
}
