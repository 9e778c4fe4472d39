//! What a path or a connection string opens; both engines in one process.

use std::ffi::CString;

use foundationdb_sys as sys;

use crate::common::{database, on_cluster, open};

#[test]
fn a_cluster_file_may_name_a_directory() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("fdb.cluster");
    std::fs::write(&file, "# the database of this test\nembedded:data\n").unwrap();
    let by_file = open(file.to_str().unwrap()).unwrap();
    let write = by_file.transaction();
    write.set(b"capi/file", b"v");
    assert_eq!(write.commit().wait(), 0);
    let by_path = open(&format!("embedded:{}", scratch.path().join("data").display())).unwrap();
    let read = by_path.transaction().get(b"capi/file");
    assert_eq!((read.wait(), read.value()), (0, Ok(Some(b"v".to_vec()))));
}

#[test]
fn a_connection_string_may_name_a_directory() {
    drop(database());
    let scratch = tempfile::tempdir().unwrap();
    let string = CString::new(format!("embedded:{}", scratch.path().display())).unwrap();
    let mut handle = std::ptr::null_mut();
    // SAFETY: a string, and a place for the handle.
    let error = unsafe { sys::fdb_create_database_from_connection_string(string.as_ptr(), &raw mut handle) };
    assert_eq!(error, 0);
    // SAFETY: the handle is live until here.
    unsafe { sys::fdb_database_destroy(handle) };
}

#[test]
fn both_engines_work_at_once() {
    if !on_cluster() {
        println!("skipped: no cluster");
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let embedded = open(&format!("embedded:{}", scratch.path().display())).unwrap();
    let cluster = database();
    for (database, value) in [(&embedded, b"embedded"), (&cluster, b"cluster.")] {
        let write = database.transaction();
        write.set(b"capi/engine", value);
        assert_eq!(write.commit().wait(), 0);
    }
    for (database, value) in [(&embedded, b"embedded"), (&cluster, b"cluster.")] {
        let read = database.read(b"capi/engine");
        assert_eq!((read.wait(), read.value()), (0, Ok(Some(value.to_vec()))));
    }
}
