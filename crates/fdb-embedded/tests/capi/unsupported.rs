//! What an embedded database does not have: it answers as a cluster does that does not have it either.

use std::ffi::{CStr, c_void};
use std::time::{Duration, Instant};

use foundationdb_sys as sys;
use foundationdb_sys::FDBFuture;

use crate::common::{Future, Transaction, database, len, on_cluster};

const KEY: &[u8] = b"a";
const END: &[u8] = b"b";

#[test]
fn a_tenant_opens_and_is_not_found() {
    let database = database();
    let mut tenant = std::ptr::null_mut();
    // SAFETY: live handles, slices, and places for what is asked for.
    unsafe {
        let opened = sys::fdb_database_open_tenant(database.handle, KEY.as_ptr(), len(KEY), &raw mut tenant);
        assert_eq!(opened, 0);
        assert_eq!(Future(sys::fdb_tenant_get_id(tenant)).wait(), 2131);
        let mut handle = std::ptr::null_mut();
        assert_eq!(sys::fdb_tenant_create_transaction(tenant, &raw mut handle), 0);
        let transaction = Transaction(handle);
        assert_eq!(transaction.get(KEY).wait(), 2131);
        transaction.set(KEY, b"v");
        assert_eq!(transaction.commit().wait(), 2131);
        let mut handle = std::ptr::null_mut();
        assert_eq!(sys::fdb_tenant_create_transaction(tenant, &raw mut handle), 0);
        let versioned = Transaction(handle);
        assert_eq!(Future(sys::fdb_transaction_get_read_version(handle)).wait(), 0);
        assert_eq!(versioned.get(KEY).wait(), 2136);
        let blobbified =
            sys::fdb_tenant_blobbify_range(tenant, KEY.as_ptr(), len(KEY), END.as_ptr(), len(END));
        assert_eq!(Future(blobbified).wait(), 2131);
        sys::fdb_tenant_destroy(tenant);
    }
    assert_eq!(database.read(KEY).error(), 0, "outside of tenants all is well");
}

#[test]
fn blob_granule_calls_are_unsupported() {
    let database = database();
    let transaction = database.transaction();
    let (begin, end) = ((KEY.as_ptr(), len(KEY)), (END.as_ptr(), len(END)));
    // SAFETY: live handles and slices.
    unsafe {
        let listed =
            sys::fdb_database_list_blobbified_ranges(database.handle, begin.0, begin.1, end.0, end.1, 10);
        let listed = Future(listed);
        assert_eq!((listed.wait(), listed.range_count()), (0, Ok(0)));
        let verified =
            Future(sys::fdb_database_verify_blob_range(database.handle, begin.0, begin.1, end.0, end.1, -2));
        assert_eq!((verified.wait(), verified.int64()), (0, Ok(-1)));
        let flushed =
            sys::fdb_database_flush_blob_range(database.handle, begin.0, begin.1, end.0, end.1, 0, -2);
        let flushed = Future(flushed);
        assert_eq!((flushed.wait(), flushed.bool()), (0, Ok(false)));
        let summary = sys::fdb_transaction_summarize_blob_granules(
            transaction.0,
            begin.0,
            begin.1,
            end.0,
            end.1,
            -2,
            10,
        );
        assert_eq!(Future(summary).wait(), 1064);
        let result = sys::fdb_transaction_read_blob_granules(
            transaction.0,
            begin.0,
            begin.1,
            end.0,
            end.1,
            0,
            -2,
            no_loader(),
        );
        let (mut rows, mut count, mut more) = (std::ptr::null(), 0, 0);
        let read = sys::fdb_result_get_keyvalue_array(result, &raw mut rows, &raw mut count, &raw mut more);
        assert_eq!(read, 2108);
        sys::fdb_result_destroy(result);
        if !on_cluster() {
            let kept = sys::fdb_database_blobbify_range(database.handle, begin.0, begin.1, end.0, end.1);
            assert_eq!(Future(kept).wait(), 2108, "a cluster writes the range down and waits");
        }
    }
}

fn no_loader() -> sys::FDBReadBlobGranuleContext {
    sys::FDBReadBlobGranuleContext {
        userContext: std::ptr::null_mut(),
        start_load_f: None,
        get_load_f: None,
        free_load_f: None,
        debugNoMaterialize: 0,
        granuleParallelism: 1,
    }
}

#[test]
fn server_administration_calls_are_unsupported() {
    let database = database();
    let address = b"192.0.2.1:4500";
    let snapshot = |id: &[u8]| {
        // SAFETY: a live handle and slices.
        Future(unsafe {
            sys::fdb_database_create_snapshot(database.handle, id.as_ptr(), len(id), KEY.as_ptr(), len(KEY))
        })
        .wait()
    };
    assert_eq!(snapshot(b"short"), 2509);
    assert_eq!(snapshot(&[b'a'; 32]), 2505);
    // SAFETY: a live handle and a slice.
    let reboot = Future(unsafe {
        sys::fdb_database_reboot_worker(database.handle, address.as_ptr(), len(address), 0, 0)
    });
    assert_eq!(reboot.wait(), 2108, "no server can be restarted");
    // SAFETY: a live handle and a slice.
    let recovery = Future(unsafe {
        sys::fdb_database_force_recovery_with_data_loss(database.handle, KEY.as_ptr(), len(KEY))
    });
    assert_eq!(recovery.wait(), 0, "there is no other data centre, and nothing is done");
}

#[test]
fn database_reports_protocol_and_client_status() {
    let database = database();
    // SAFETY: a live handle.
    let protocol = Future(unsafe { sys::fdb_database_get_server_protocol(database.handle, 0) });
    assert_eq!(protocol.wait(), 0);
    let mut version = 0;
    // SAFETY: a live handle and a place for the number.
    assert_eq!(unsafe { sys::fdb_future_get_uint64(protocol.0, &raw mut version) }, 0);
    assert_eq!(version, 0x1FDB_00B0_7300_0000);
    // SAFETY: a live handle.
    let changed = Future(unsafe { sys::fdb_database_get_server_protocol(database.handle, version) });
    assert!(!changed.is_ready(), "it does not become another");
    // SAFETY: a live handle.
    let status = Future(unsafe { sys::fdb_database_get_client_status(database.handle) });
    assert_eq!(status.wait(), 0);
    // It is a key's future, and bindings read it as a value.
    let text = String::from_utf8(status.value().unwrap().unwrap()).unwrap();
    assert!(text.contains("Healthy"), "{text}");
}

const BUSY: Duration = Duration::from_millis(20);

unsafe extern "C" fn keep_busy(_future: *mut FDBFuture, _parameter: *mut c_void) {
    let until = Instant::now() + BUSY;
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}

#[test]
fn network_busyness_is_reported() {
    let database = database();
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let transaction = database.transaction();
        transaction.set(KEY, b"v");
        // Pending, so that its callback runs on the network thread.
        let commit = transaction.commit();
        let callback: sys::FDBCallback = Some(keep_busy);
        // SAFETY: a live handle; the callback needs no parameter.
        let set = unsafe { sys::fdb_future_set_callback(commit.0, callback, std::ptr::null_mut()) };
        assert_eq!(set, 0);
        assert_eq!(commit.wait(), 0);
        // Callbacks of other tests wait behind this one, and should not wait behind hundreds.
        std::thread::sleep(2 * BUSY);
        // SAFETY: a live handle.
        let busyness = unsafe { sys::fdb_database_get_main_thread_busyness(database.handle) };
        assert!((0.0..=1.0).contains(&busyness), "{busyness}");
        if busyness > 0.1 {
            break;
        }
        assert!(Instant::now() < until, "{busyness} after a minute of callbacks");
    }
}

#[test]
fn error_texts_are_foundationdbs() {
    let text = |code| {
        // SAFETY: any code may be asked about, and its text is a string that lives for ever.
        unsafe { CStr::from_ptr(sys::fdb_get_error(code)) }.to_str().unwrap()
    };
    assert_eq!(text(0), "Success");
    assert_eq!(text(1020), "Transaction not committed due to conflict with another transaction");
    assert_eq!(text(1031), "Operation aborted because the transaction timed out");
    assert_eq!(text(1511), "File not found");
    assert_eq!(text(2131), "Tenant does not exist");
    assert_eq!((text(9999), text(-7)), ("UNKNOWN_ERROR", "UNKNOWN_ERROR"));
}

#[test]
fn cost_and_throttling_of_a_transaction() {
    let database = database();
    let transaction = database.transaction();
    let cost = |transaction: &Transaction| {
        // SAFETY: a live handle.
        let cost = Future(unsafe { sys::fdb_transaction_get_total_cost(transaction.0) });
        assert_eq!(cost.wait(), 0);
        cost.int64().unwrap()
    };
    assert_eq!(cost(&transaction), 0);
    assert_eq!(transaction.get(b"capi/cost/absent").wait(), 0);
    transaction.set(b"capi/cost", b"v");
    assert_eq!(cost(&transaction), 4096);
    assert_eq!(transaction.commit().wait(), 0);
    assert_eq!(cost(&transaction), 4096 + 4 * 4096);
    // SAFETY: a live handle.
    let throttled = Future(unsafe { sys::fdb_transaction_get_tag_throttled_duration(transaction.0) });
    assert_eq!(throttled.wait(), 0);
    let mut seconds = -1.0;
    // SAFETY: a live handle and a place for the number.
    assert_eq!(unsafe { sys::fdb_future_get_double(throttled.0, &raw mut seconds) }, 0);
    assert_eq!(seconds, 0.0);
}
