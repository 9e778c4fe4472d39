//! Programs for the tests of `tests/it/recount.rs`.

use kvqueue::{
    database::Store,
    foundationdb::{
        Transaction,
        options::MutationType,
        tuple::{Bytes, pack},
    },
};

use crate::support::database;

/// Another program damages the index of a keyed queue: it clears the places of keys, and counts an item as running.
pub(crate) fn lose_places() {
    let bytes = |text: &'static str| Bytes::from(text.as_bytes());
    changing(|tr, prefix| {
        let active = [prefix, &pack(&(bytes("q"), bytes("active")))].concat();
        tr.clear_range(&active, &[active.as_slice(), &[0xff]].concat());
        let running = [prefix, &pack(&(bytes("q"), bytes("running"), bytes("a")))].concat();
        tr.atomic_op(&running, &1_i64.to_le_bytes(), MutationType::Add);
    });
}

pub(crate) fn miscount() {
    let bytes = |text: &'static str| Bytes::from(text.as_bytes());
    changing(|tr, prefix| {
        let add = |key: Vec<u8>, number: i64| {
            let key = [prefix, &key].concat();
            tr.atomic_op(&key, &number.to_le_bytes(), MutationType::Add);
        };
        add(pack(&(bytes("q"), bytes("npush"))), 2);
        add(pack(&(bytes("q"), bytes("ndead"))), -1);
        add(pack(&("emails", bytes("npush"))), 1);
    });
}

/// Commits a change of the database.
fn changing(change: impl FnOnce(&Transaction, &[u8])) {
    let (database, prefix) = database();
    let store = Store::open(&database).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let tr = store.db.create_trx().unwrap();
        change(&tr, prefix.as_bytes());
        tr.commit().await.unwrap();
    });
}
