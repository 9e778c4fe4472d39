//! What a transaction promises, through the unmodified `foundationdb` crate.

mod common;

use common::scratch;
use foundationdb::options::{MutationType, StreamingMode, TransactionOption};
use foundationdb::{Database, FdbError, KeySelector, RangeOption, Transaction};

async fn put(db: &Database, rows: &[(&[u8], &[u8])]) {
    let tr = db.create_trx().unwrap();
    for (key, value) in rows {
        tr.set(key, value);
    }
    tr.commit().await.unwrap();
}

async fn value(db: &Database, key: &[u8]) -> Option<Vec<u8>> {
    let tr = db.create_trx().unwrap();
    tr.get(key, false).await.unwrap().map(|value| value.to_vec())
}

async fn keys(tr: &Transaction, range: RangeOption<'_>) -> Result<Vec<Vec<u8>>, FdbError> {
    let rows = tr.get_range(&range, 1, false).await?;
    Ok(rows.iter().map(|row| row.key().to_vec()).collect())
}

#[tokio::test]
async fn a_commit_is_seen_by_later_transactions_and_after_reopening() {
    let scratch = scratch();
    put(&scratch.db, &[(b"a", b"1"), (b"empty", b"")]).await;
    assert_eq!(value(&scratch.db, b"a").await.as_deref(), Some(&b"1"[..]));
    let common::Scratch { db, url, _dir } = scratch;
    drop(db);
    let db = Database::from_path(&url).unwrap();
    assert_eq!(value(&db, b"a").await.as_deref(), Some(&b"1"[..]));
    assert_eq!(value(&db, b"empty").await.as_deref(), Some(&b""[..]));
    assert_eq!(value(&db, b"b").await, None);
}
