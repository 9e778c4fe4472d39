//! Short ways to use a keyed queue.

use std::collections::BTreeMap;
use std::time::Duration;

use kvqueue_queue::{
    Approach, FetchOptions, ItemOutcome, Kind, Lease, LimitError, Limits, NewItem, Pattern, PushOptions,
    Queue, RetryPolicy, Session, Watch,
};

use super::{TestDb, fetch_options, k, payloads};

pub(crate) fn keyed(t: &TestDb) -> Queue {
    t.queue_of("q", Kind::Keyed)
}

/// Pushes items of one key with these payloads.
pub(crate) async fn push(
    t: &TestDb,
    q: &Queue,
    key: &str,
    payloads: impl IntoIterator<Item = impl AsRef<str>>,
) {
    let item = |payload: &str| NewItem::new(payload.to_owned()).with_key(key);
    let items: Vec<_> = payloads.into_iter().map(|payload| item(payload.as_ref())).collect();
    t.push_items(q, &items).await;
}

pub(crate) async fn limit(t: &TestDb, q: &Queue, pattern: &str, limits: Limits) {
    let pattern = if pattern.is_empty() { Pattern::QUEUE } else { Pattern::keys(pattern).unwrap() };
    t.run(async |tr| {
        q.set_rule(tr, &pattern, &limits).await.map_err(|error| match error {
            LimitError::Queue(error) => error,
            error => panic!("{error}"),
        })
    })
    .await;
}

/// How many scopes have running items, by their counters. The whole queue has several, which together may be 0.
pub(crate) async fn running_scopes(t: &TestDb, q: &Queue) -> usize {
    let mut scopes: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    for (row, count) in t.records(q, "running").await {
        let end = row.iter().skip(1).position(|byte| *byte == 0).map_or(row.len(), |at| at + 1);
        let counted = scopes.entry(row[..end].to_vec()).or_default();
        *counted = counted.wrapping_add(u64::from_le_bytes(count.try_into().unwrap()));
    }
    scopes.values().filter(|counted| **counted != 0).count()
}

pub(crate) fn running(n: u32) -> Limits {
    Limits::default().with_running(n)
}

pub(crate) async fn fetch(t: &TestDb, session: &mut Session, n: usize) -> Option<Lease> {
    let mut approach = Approach::Front;
    let mut options = FetchOptions::new(k(n), Duration::from_secs(30), &mut approach);
    session.fetch(&t.db, &mut options).await.unwrap().got
}

pub(crate) fn names(lease: Option<&Lease>) -> Vec<String> {
    lease.map(|lease| payloads(lease.items())).unwrap_or_default()
}

pub(crate) async fn push_one(t: &TestDb, q: &Queue, key: &str) {
    let item = NewItem::new(key.to_owned()).with_key(key);
    t.session(q).push_items(&t.db, &[item], &PushOptions::default()).await.unwrap();
}

pub(crate) async fn acknowledge(t: &TestDb, mut lease: Lease) {
    lease.acknowledge(&t.db, &RetryPolicy::default(), &[(0, ItemOutcome::Done)]).await.unwrap();
}

/// The watch of a fetch that has found nothing.
pub(crate) async fn idle(t: &TestDb, q: &Queue) -> Watch {
    let mut approach = Approach::Front;
    let mut options = fetch_options(9, 30_000_000, &mut approach, true);
    let fetched = t.session(q).fetch(&t.db, &mut options).await.unwrap();
    assert!(fetched.got.is_none());
    fetched.watch.unwrap()
}

pub(crate) async fn is_woken(watch: Watch) {
    let woken = tokio::time::timeout(Duration::from_secs(10), watch).await;
    woken.expect("an idle consumer is woken").unwrap();
}
