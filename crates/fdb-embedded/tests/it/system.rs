//! System keys that clients read.

use std::time::SystemTime;

use crate::common::{code, commit, put, scratch};
use foundationdb::options::{StreamingMode, TransactionOption};
use foundationdb::tuple::{pack, unpack};
use foundationdb::{KeySelector, RangeOption, Transaction};
use futures::FutureExt;

const TIME_KEEPER: &[u8] = b"\xff\x02/timeKeeper/map/";

/// The rows of a range, keys without their first bytes.
async fn rows(tr: &Transaction, range: RangeOption<'_>, skip: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let range = RangeOption { mode: StreamingMode::WantAll, ..range };
    let found = tr.get_range(&range, 1, true).await.unwrap();
    found.iter().map(|row| (row.key()[skip..].to_vec(), row.value().to_vec())).collect()
}

#[tokio::test]
async fn the_time_keeper_turns_times_into_versions() {
    let scratch = scratch();
    let tr = scratch.db.create_trx().unwrap();
    let range = RangeOption::from((TIME_KEEPER, &b"\xff\x02/timeKeeper/map0"[..]));
    assert_eq!(code(tr.get_range(&range, 1, true).await), Err(2004));
    tr.set_option(TransactionOption::ReadSystemKeys).unwrap();
    let newest = rows(&tr, RangeOption { limit: Some(2), ..range.clone().rev() }, TIME_KEEPER.len()).await;
    let number = |packed: &[u8]| unpack::<i64>(packed).unwrap();
    let [(seconds, version), (earlier, version_then)] =
        [0, 1].map(|row| (number(&newest[row].0), number(&newest[row].1)));
    assert!(seconds > earlier && version > version_then);
    assert!(version <= tr.get_read_version().await.unwrap());
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let age = i64::try_from(now).unwrap() - seconds;
    assert!((-15..60).contains(&age), "the newest row is {age} s old");

    let at = [TIME_KEEPER, &pack(&seconds)].concat();
    assert_eq!(tr.get(&at, true).await.unwrap().as_deref(), Some(&pack(&version)[..]));
    let last = KeySelector::last_less_than([TIME_KEEPER, b"\xff"].concat());
    assert_eq!(&*tr.get_key(&last, true).await.unwrap(), at);
}

#[tokio::test]
async fn the_only_shard_begins_at_the_empty_key() {
    let scratch = scratch();
    let tr = scratch.db.create_trx().unwrap();
    tr.set_option(TransactionOption::ReadSystemKeys).unwrap();
    let prefix = b"\xff/keyServers/";
    let boundaries =
        rows(&tr, RangeOption::from((&prefix[..], &b"\xff/keyServers/\xff"[..])), prefix.len()).await;
    assert_eq!(boundaries.into_iter().map(|(key, _)| key).collect::<Vec<_>>(), [b""]);
}

#[tokio::test]
async fn the_coordinators_are_the_connection_string() {
    let scratch = scratch();
    let tr = scratch.db.create_trx().unwrap();
    assert_eq!(code(tr.get(b"\xff/coordinators", false).await), Err(2004));
    tr.set_option(TransactionOption::ReadSystemKeys).unwrap();
    let coordinators = tr.get(b"\xff/coordinators", false).await.unwrap().unwrap().to_vec();
    let connection = tr.get(b"\xff\xff/connection_string", false).await.unwrap().unwrap().to_vec();
    assert_eq!(coordinators, connection);
}

#[tokio::test]
async fn a_watch_on_an_unchanged_system_key_stays_pending() {
    let scratch = scratch();
    let tr = scratch.db.create_trx().unwrap();
    tr.set_option(TransactionOption::ReadSystemKeys).unwrap();
    let mut waiting = [tr.watch(b"\xff/coordinators"), tr.watch(b"\xff/keyServers/")].map(Box::pin);
    commit(tr).await.unwrap();
    // What comes later is over: so would these be.
    let tr = scratch.db.create_trx().unwrap();
    tr.get_read_version().await.unwrap();
    let fires = tr.watch(b"k");
    put(&scratch.db, &[(b"k", b"")]).await;
    commit(tr).await.unwrap();
    fires.await.unwrap();
    assert!(waiting.iter_mut().all(|watch| watch.now_or_never().is_none()));
}
