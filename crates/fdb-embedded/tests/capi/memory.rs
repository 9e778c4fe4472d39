//! Who owns what a getter hands out, and for how long.

use crate::common::database;

#[test]
fn a_value_is_freed_by_the_last_release() {
    let database = database();
    let setup = database.transaction();
    setup.set(b"capi/memory", b"value");
    assert_eq!(setup.commit().wait(), 0);

    let read = database.read(b"capi/memory");
    assert_eq!(read.wait(), 0);
    assert_eq!(read.value(), Ok(Some(b"value".to_vec())));
    assert_eq!(read.value(), Ok(Some(b"value".to_vec())));
    read.release();
    assert_eq!(read.error(), 0, "one of two getters has been given back");
    read.release();
    assert_eq!((read.error(), read.value()), (1102, Err(1102)));
    assert!(read.is_ready());
    assert_eq!(read.wait(), 1102);
    read.release();
    assert_eq!(read.error(), 1102);
}

#[test]
fn a_release_without_a_getter_counts_against_the_next() {
    let database = database();
    let read = database.read(b"capi/absent");
    assert_eq!(read.wait(), 0);
    read.release();
    assert_eq!(read.error(), 0);
    assert_eq!(read.value(), Ok(None));
    read.release();
    assert_eq!(read.error(), 0, "the getter only made up for the first release");
}

#[test]
fn an_error_is_not_released() {
    let database = database();
    let read = database.read(b"\xff/not/allowed");
    assert_eq!(read.wait(), 2004);
    assert_eq!(read.value(), Err(2004));
    read.release();
    assert_eq!(read.error(), 2004);
}

#[test]
fn a_future_outlives_its_transaction_and_database() {
    let read = {
        let database = database();
        let transaction = database.transaction();
        transaction.set(b"capi/outlives", b"v");
        let read = transaction.get(b"capi/outlives");
        assert_eq!(read.wait(), 0);
        read
    };
    assert_eq!(read.value(), Ok(Some(b"v".to_vec())));
}
