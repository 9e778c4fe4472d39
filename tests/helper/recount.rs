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

pub(crate) fn miscount() {
    let (database, prefix) = database();
    let store = Store::open(&database).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let add = |tr: &Transaction, key: Vec<u8>, number: i64| {
        let key = [prefix.as_bytes(), &key].concat();
        tr.atomic_op(&key, &number.to_le_bytes(), MutationType::Add);
    };
    let bytes = |text: &'static str| Bytes::from(text.as_bytes());
    runtime.block_on(async {
        let tr = store.db.create_trx().unwrap();
        add(&tr, pack(&(bytes("q"), bytes("npush"))), 2);
        add(&tr, pack(&(bytes("q"), bytes("ndead"))), -1);
        add(&tr, pack(&("emails", bytes("npush"))), 1);
        tr.commit().await.unwrap();
    });
}
