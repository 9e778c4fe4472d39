//! The life of the network, which a process has but one of: each call too early, in time, and too late.

#![expect(unsafe_code, reason = "the functions under test are those of a C library")]

use std::ffi::{CString, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use fdb_embedded as _;
use foundationdb_sys as sys;
use foundationdb_sys::{FDBDatabase, FDBFuture, fdb_error_t};

static HOOKS: AtomicUsize = AtomicUsize::new(0);
static CALLBACKS: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn hook(_parameter: *mut c_void) {
    HOOKS.fetch_add(1, Ordering::SeqCst);
}

unsafe extern "C" fn callback(_future: *mut FDBFuture, _parameter: *mut c_void) {
    CALLBACKS.fetch_add(1, Ordering::SeqCst);
}

fn add_hook() -> fdb_error_t {
    // SAFETY: the function needs no parameter.
    unsafe { sys::fdb_add_network_thread_completion_hook(Some(hook), std::ptr::null_mut()) }
}

fn create(path: &str) -> Result<*mut FDBDatabase, fdb_error_t> {
    let path = CString::new(path).expect("a path without NUL");
    let mut database = std::ptr::null_mut();
    // SAFETY: a string and a place for the handle.
    match unsafe { sys::fdb_create_database(path.as_ptr(), &raw mut database) } {
        0 => Ok(database),
        error => Err(error),
    }
}

fn select(runtime: i32, header: i32) -> fdb_error_t {
    // SAFETY: numbers only.
    unsafe { sys::fdb_select_api_version_impl(runtime, header) }
}

/// Set in the process that a test starts to see how it ends.
const CHILD: &str = "FDB_EMBEDDED_CHILD";

/// Set there if FoundationDB's library cannot be loaded.
const WITHOUT_LIBRARY: &str = "FDB_EMBEDDED_WITHOUT_LIBRARY";

unsafe extern "C" {
    fn fdb_create_cluster(path: *const std::ffi::c_char) -> *mut FDBFuture;
}

#[test]
fn calling_a_removed_function_aborts_with_a_message() {
    if std::env::var_os(CHILD).is_some() {
        assert_eq!(select(630, 630), 0);
        // SAFETY: null is the default cluster file.
        unsafe { fdb_create_cluster(std::ptr::null()) };
        return;
    }
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "calling_a_removed_function_aborts_with_a_message"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stderr);
    assert!(said.contains("fdb_create_cluster is not part of API version 610 and later"), "{said}");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&child.status), Some(6), "{child:?}");
}

/// Waits for a future's outcome.
fn outcome(future: *mut FDBFuture) -> fdb_error_t {
    // SAFETY: the handle is live until here.
    unsafe {
        assert_eq!(sys::fdb_future_block_until_ready(future), 0);
        let error = sys::fdb_future_get_error(future);
        sys::fdb_future_destroy(future);
        error
    }
}

/// What calls on a new transaction of a database come to: two reads, commits with and without writes, a watch, a retry.
fn outcomes(database: *mut FDBDatabase) -> [fdb_error_t; 6] {
    let with_transaction = |call: fn(*mut sys::FDBTransaction) -> *mut FDBFuture| {
        let mut transaction = std::ptr::null_mut();
        // SAFETY: live handles, and a place for one.
        unsafe {
            assert_eq!(sys::fdb_database_create_transaction(database, &raw mut transaction), 0);
            let outcome = outcome(call(transaction));
            sys::fdb_transaction_destroy(transaction);
            outcome
        }
    };
    // SAFETY: a live handle, and slices of one byte.
    unsafe {
        [
            with_transaction(|tr| sys::fdb_transaction_get_read_version(tr)),
            with_transaction(|tr| sys::fdb_transaction_get(tr, b"k".as_ptr(), 1, 0)),
            with_transaction(|tr| sys::fdb_transaction_commit(tr)),
            with_transaction(|tr| {
                sys::fdb_transaction_set(tr, b"k".as_ptr(), 1, b"v".as_ptr(), 1);
                sys::fdb_transaction_commit(tr)
            }),
            with_transaction(|tr| sys::fdb_transaction_watch(tr, b"k".as_ptr(), 1)),
            with_transaction(|tr| {
                sys::fdb_transaction_on_error(tr, outcome(sys::fdb_transaction_get_read_version(tr)))
            }),
        ]
    }
}

#[test]
fn a_cluster_that_does_not_exist_opens_and_fails_when_it_is_used() {
    let scratch = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = scratch.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let missing = scratch.path().join("db").display().to_string();
    if std::env::var_os(CHILD).is_some() {
        // SAFETY: these calls take no pointers.
        unsafe {
            assert_eq!((select(730, 730), sys::fdb_setup_network()), (0, 0));
            std::thread::spawn(|| sys::fdb_run_network());
        }
        for (path, expected) in [
            (missing, 1515),
            (file("empty", ""), 2104),
            (file("wrong", "hello world"), 2104),
            (scratch.path().display().to_string(), 2104),
        ] {
            let database = create(&path).unwrap();
            assert_eq!(outcomes(database), [expected; 6], "{path}");
            // SAFETY: the handle is live until here.
            unsafe { sys::fdb_database_destroy(database) };
        }
        if std::env::var_os(WITHOUT_LIBRARY).is_some() {
            assert_eq!(create(&file("right", "a:a@127.0.0.1:1\n")), Err(2204));
        }
        return;
    }
    let child = |library: &str, without: Option<&str>| {
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", "a_cluster_that_does_not_exist_opens_and_fails_when_it_is_used"])
            .env(CHILD, "1")
            .env("FDB_CLIENT_LIB", library)
            .envs(without.map(|value| (WITHOUT_LIBRARY, value)))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stderr).into_owned();
        assert!(child.status.success(), "{said}");
        said
    };
    let said = child("/no/such/libfdb_c.so", Some("1"));
    for part in
        ["/db: ", "wrong: ", "cannot load FoundationDB's client library /no/such/libfdb_c.so", "embedded:DIR"]
    {
        assert!(said.contains(part), "{part} is not in: {said}");
    }
    // FoundationDB's own library answers in the same way.
    if let Ok(library) = std::env::var("FDB_CLIENT_LIB") {
        child(&library, None);
    }
}

#[test]
fn network_is_set_up_run_and_stopped_once() {
    // SAFETY: these calls take no pointers.
    let (setup, run, stop) =
        unsafe { (|| sys::fdb_setup_network(), || sys::fdb_run_network(), || sys::fdb_stop_network()) };
    let scratch = tempfile::tempdir().unwrap();
    let path = format!("embedded:{}", scratch.path().display());

    assert_eq!(setup(), 2200);
    assert_eq!((select(740, 740), select(730, 720), select(519, 730)), (2203, 2202, 2203));
    assert_eq!((select(630, 720), select(730, 730)), (0, 2201));
    assert_eq!((run(), stop(), add_hook(), create(&path)), (2008, 2008, 2008, Err(2008)));
    assert_eq!((setup(), setup(), add_hook()), (0, 2009, 0));

    let database = create(&path).unwrap();
    let (mut transaction, key) = (std::ptr::null_mut(), b"watched");
    // SAFETY: live handles, a slice, and a place for a handle.
    unsafe {
        assert_eq!(sys::fdb_database_create_transaction(database, &raw mut transaction), 0);
        let watch = sys::fdb_transaction_watch(transaction, key.as_ptr(), 7);
        let commit = sys::fdb_transaction_commit(transaction);
        assert_eq!(sys::fdb_future_block_until_ready(commit), 0);
        assert_eq!(sys::fdb_future_set_callback(watch, Some(callback), std::ptr::null_mut()), 0);

        assert_eq!(stop(), 0, "legal before the loop has been entered");
        assert_eq!(run(), 0, "and then the loop returns at once");
        assert_eq!(HOOKS.load(Ordering::SeqCst), 1);
        assert_eq!((run(), setup(), stop()), (2025, 2009, 0));

        sys::fdb_future_destroy(commit);
        sys::fdb_future_destroy(watch);
        sys::fdb_transaction_destroy(transaction);
        sys::fdb_database_destroy(database);
    }
    assert_eq!(CALLBACKS.load(Ordering::SeqCst), 0, "after a stop nothing is called back");
}
