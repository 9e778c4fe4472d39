//! A program whose header is older than 610: clusters, and databases that come as futures.

#![expect(unsafe_code, reason = "the functions under test are those of a C library")]

use std::ffi::{CString, c_char, c_int};

use fdb_embedded as _;
use foundationdb_sys as sys;
use foundationdb_sys::{FDBCluster, FDBDatabase, FDBFuture, fdb_error_t};

unsafe extern "C" {
    fn fdb_create_cluster(path: *const c_char) -> *mut FDBFuture;
    fn fdb_future_get_cluster(future: *mut FDBFuture, out: *mut *mut FDBCluster) -> fdb_error_t;
    fn fdb_cluster_set_option(
        cluster: *mut FDBCluster,
        option: c_int,
        value: *const u8,
        length: c_int,
    ) -> fdb_error_t;
    fn fdb_cluster_create_database(
        cluster: *mut FDBCluster,
        name: *const u8,
        length: c_int,
    ) -> *mut FDBFuture;
    fn fdb_cluster_destroy(cluster: *mut FDBCluster);
    fn fdb_future_get_database(future: *mut FDBFuture, out: *mut *mut FDBDatabase) -> fdb_error_t;
    fn fdb_future_get_version(future: *mut FDBFuture, out: *mut i64) -> fdb_error_t;
}

#[test]
fn old_api_opens_a_database_through_a_cluster_handle() {
    let scratch = tempfile::tempdir().unwrap();
    let path = CString::new(format!("embedded:{}", scratch.path().display())).unwrap();
    // SAFETY: calls in the order that the old API asks for, with live handles, strings and places for results.
    unsafe {
        assert_eq!(sys::fdb_select_api_version_impl(520, 520), 0);
        assert_eq!(sys::fdb_setup_network(), 0);
        let future = fdb_create_cluster(path.as_ptr());
        let mut cluster = std::ptr::null_mut();
        assert_eq!(fdb_future_get_cluster(future, &raw mut cluster), 0);
        sys::fdb_future_destroy(future);
        assert_eq!(fdb_cluster_set_option(cluster, 0, std::ptr::null(), 0), 0);

        let wrong = fdb_cluster_create_database(cluster, b"other".as_ptr(), 5);
        assert_eq!(sys::fdb_future_get_error(wrong), 2013);
        sys::fdb_future_destroy(wrong);

        let future = fdb_cluster_create_database(cluster, b"DB".as_ptr(), 2);
        fdb_cluster_destroy(cluster);
        let (mut one, mut another) = (std::ptr::null_mut(), std::ptr::null_mut());
        assert_eq!(fdb_future_get_database(future, &raw mut one), 0);
        assert_eq!(fdb_future_get_database(future, &raw mut another), 0);
        sys::fdb_future_destroy(future);
        sys::fdb_database_destroy(another);

        let mut transaction = std::ptr::null_mut();
        assert_eq!(sys::fdb_database_create_transaction(one, &raw mut transaction), 0);
        let read_version = sys::fdb_transaction_get_read_version(transaction);
        let mut version = 0;
        assert_eq!(sys::fdb_future_block_until_ready(read_version), 0);
        assert_eq!(fdb_future_get_version(read_version, &raw mut version), 0);
        assert!(version > 0);
        sys::fdb_future_destroy(read_version);
        sys::fdb_transaction_destroy(transaction);
        sys::fdb_database_destroy(one);
    }
}
