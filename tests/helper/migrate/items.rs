//! Items in every state, made by one program and processed by another.

use std::{
    collections::BTreeMap,
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use fdb_embedded::Network;
use foundationdb::{Database, options::TransactionOption};
use kvqueue_queue::{
    Approach, Counts, Failure, FetchOptions, Item, ItemOutcome, Lease, NewItem, PushEffect, PushOptions,
    Queue, RetryPolicy, Session, SweepRules, Sweeper, VersionHistory, from_millis, retry,
};
use tokio::runtime::{Builder, Runtime};

use crate::support::database;

/// The number of items in each state: a hundred thousand together.
const DEAD: u64 = 5_000;
const LEASED: u64 = 10_000;
const RETRIED: u64 = 2_000;
const LATER: u64 = 13_000;
const READY: u64 = 70_000;
const ALL: u64 = DEAD + LEASED + RETRIED + LATER + READY;
/// Items that were finished before.
const DONE: u64 = 500;

/// How many of the ready ones are out of the ordinary: in chunks, unique, with attributes.
const LONG: u64 = 20;
const UNIQUE: u64 = 1_000;
const ATTRIBUTED: u64 = 2_000;

const HOUR: u64 = 3_600_000;
/// An hour in versions.
const LEASE: u64 = 3_600_000_000;

/// The database of this program.
pub(crate) struct Here {
    pub(crate) db: Arc<Database>,
    pub(crate) runtime: Runtime,
    _network: Network,
}

impl Here {
    /// The one that this program was given.
    pub(crate) fn open() -> Self {
        let (url, _) = database();
        let network = Network::start().unwrap();
        let db = Arc::new(Database::from_path(&url).unwrap());
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        Self { db, runtime, _network: network }
    }
}

pub(crate) fn queue(name: &str) -> Queue {
    Queue::new(b"", name.as_bytes()).unwrap()
}

pub(crate) fn session(queue: &Queue) -> Session {
    Session::new(queue.clone())
}

/// Takes up to `k` items on a lease of an hour.
pub(crate) async fn lease(db: &Database, session: &mut Session, k: usize) -> Lease {
    let k = NonZeroUsize::new(k).unwrap();
    let mut approach = Approach::Front;
    let mut take = FetchOptions::new(k, Duration::from_micros(LEASE), &mut approach);
    session.fetch(db, &mut take).await.unwrap().got.unwrap()
}

fn payload(number: u64) -> Vec<u8> {
    let mut payload = number.to_string().into_bytes();
    if (ALL - LONG..ALL).contains(&number) {
        payload.resize(150_000, b'.');
    }
    payload
}

fn item(number: u64) -> NewItem {
    let mut item = NewItem::new(payload(number));
    if (ALL - READY..ALL - READY + UNIQUE).contains(&number) {
        item.unique = Some(format!("unique {number}").into_bytes());
    }
    if (ALL - READY + UNIQUE..ALL - READY + UNIQUE + ATTRIBUTED).contains(&number) {
        item = item.with_attribute("number", number.to_string());
    }
    item
}

async fn push(db: &Database, session: &mut Session, numbers: std::ops::Range<u64>, due: Option<u64>) {
    let numbers: Vec<_> = numbers.collect();
    for (at, page) in numbers.chunks(2_000).enumerate() {
        // Long ones do not fit into a transaction together.
        for part in page.chunk_by(|a, _| payload(*a).len() < 100_000) {
            let items: Vec<_> = part
                .iter()
                .map(|number| {
                    let mut item = item(*number);
                    item.due = due.map(from_millis);
                    item
                })
                .collect();
            let operation = (at == 0).then(|| operation(part[0]));
            let mut options = PushOptions::default();
            options.idempotency_key = operation;
            session.push_items(db, &items, &options).await.unwrap();
        }
    }
}

fn operation(first: u64) -> Vec<u8> {
    format!("operation {first}").into_bytes()
}

/// Leases this number of items, and acknowledges them or leaves them leased.
async fn settle(db: &Database, queue: &Queue, items: u64, settlement: Option<ItemOutcome>) {
    let mut session = session(queue);
    for _ in 0..items / 250 {
        let mut lease = lease(db, &mut session, 250).await;
        if let Some(settlement) = &settlement {
            let all: Vec<_> = lease.open().map(|index| (index, settlement.clone())).collect();
            lease.acknowledge(db, &RetryPolicy::default(), &all).await.unwrap();
        }
    }
}

async fn fill(db: &Database) {
    let queue = queue("q");
    let mut producer = session(&queue);
    let failure = || Failure::new(from_millis(1_000), 1, "it failed");
    let mut from = 0;
    let mut next = |count| {
        from += count;
        from - count..from
    };
    push(db, &mut producer, next(DEAD), None).await;
    settle(db, &queue, DEAD, Some(ItemOutcome::Dead(failure()))).await;
    push(db, &mut producer, next(RETRIED), None).await;
    let retry = ItemOutcome::Retry { due: Some(from_millis(2 * HOUR)), failure: failure() };
    settle(db, &queue, RETRIED, Some(retry)).await;
    producer.push(db, &vec![b"done"; DONE as usize]).await.unwrap();
    settle(db, &queue, DONE, Some(ItemOutcome::Done)).await;
    push(db, &mut producer, next(LEASED), None).await;
    settle(db, &queue, LEASED, None).await;
    push(db, &mut producer, next(LATER), Some(HOUR)).await;
    push(db, &mut producer, next(READY), None).await;
    assert_eq!(from, ALL);
}

async fn read<T>(
    db: &Database,
    body: impl AsyncFn(&foundationdb::Transaction) -> Result<T, kvqueue_queue::QueueError>,
) -> T {
    let body = &body;
    let policy = RetryPolicy::default();
    let done = retry::run(db, &policy, |tr| async move {
        let outcome = body(&tr).await;
        (tr, outcome)
    });
    done.await.unwrap().value
}

/// Sweeps at a time when everything is due, until nothing moves any more.
async fn sweep(db: &Database, queue: &Queue) {
    // Hours pass between two looks at this clock.
    let ticks = AtomicU64::new(0);
    let history =
        VersionHistory::new(move || Duration::from_hours(24 * ticks.fetch_add(1, Ordering::Relaxed)));
    let mut sweeper = Sweeper::new(queue.clone(), history);
    let rules = SweepRules::default().with_lease(Duration::ZERO);
    let moved = |counts: &Counts| counts.waiting == 0 && counts.running == 0;
    // What a lease returns waits for a pause after that.
    let mut now = 3 * HOUR;
    while !moved(&read(db, async |tr| queue.counts(tr).await).await) {
        now += HOUR;
        let swept = sweeper.sweep(db, &|| from_millis(now), &rules).await.unwrap();
        assert!(swept.trouble.is_none(), "{:?}", swept.trouble);
    }
}

/// Everything that is ready, in order.
async fn all(db: &Database, queue: &Queue) -> Vec<Item> {
    let mut items: Vec<Item> = Vec::new();
    loop {
        let after = items.last().map(|item| item.id.clone());
        let k = NonZeroUsize::new(2_000).unwrap();
        let page = read(db, async |tr| queue.peek_after(tr, after.as_ref(), k).await).await;
        if page.is_empty() {
            return items;
        }
        items.extend(page);
    }
}

/// Lets all leases run out: versions go on from where those of hours later would be.
async fn pass_time(db: &Database) {
    let tr = db.create_trx().unwrap();
    tr.set_option(TransactionOption::SpecialKeySpaceEnableWrites).unwrap();
    let version = tr.get_read_version().await.unwrap() + 2 * i64::try_from(LEASE).unwrap();
    tr.set(b"\xff\xff/management/min_required_commit_version", version.to_string().as_bytes());
    tr.commit().await.unwrap();
}

fn expected_attempt(number: u64) -> u32 {
    // Dead letters that are retried begin with the first attempt. What was in hand, or had failed, has spent an attempt.
    if (DEAD..DEAD + RETRIED + LEASED).contains(&number) { 2 } else { 1 }
}

/// Makes everything ready, and looks whether each item is there, once, as it was, and in its place.
async fn work_off(db: &Database) {
    let queue = queue("q");
    let found = read(db, async |tr| queue.counts(tr).await).await;
    let waiting = (LATER + RETRIED).cast_signed();
    let expected = Counts {
        ready: READY.cast_signed(),
        running: LEASED,
        waiting,
        dead: DEAD.cast_signed(),
        done: DONE,
        pushed: Some(ALL + DONE),
    };
    assert_eq!(found, expected);
    // What is known of pushes is known here too.
    let mut producer = session(&queue);
    let again = [item(ALL - READY)];
    let pushed = producer.push_items(db, &again, &PushOptions::default()).await.unwrap();
    assert!(pushed.each().all(|item| item.effect == PushEffect::Duplicate), "its unique key is there");
    let options = PushOptions::default().with_idempotency_key(operation(0));
    let first: Vec<_> = (0..2_000).map(item).collect();
    let pushed = producer.push_items(db, &first, &options).await.unwrap();
    assert_eq!((pushed.repeated, pushed.each().count()), (true, 2_000), "its operation was done");
    assert!(producer.push_items(db, &[NewItem::new("other")], &options).await.is_err(), "of these items");
    producer.push(db, &[b"new"]).await.unwrap();
    pass_time(db).await;
    queue.retry_all_dead(db, &RetryPolicy::default(), None).await.unwrap();
    sweep(db, &queue).await;
    let items = all(db, &queue).await;
    assert_eq!(
        items.last().map(|item| &item.payload[..]),
        Some(&b"new"[..]),
        "what is pushed here comes last"
    );
    assert!(items.is_sorted_by(|a, b| a.id < b.id));
    let mut times: BTreeMap<u64, usize> = BTreeMap::new();
    for item in &items[..items.len() - 1] {
        let text = std::str::from_utf8(&item.payload).unwrap();
        let number = text.trim_end_matches('.').parse().unwrap();
        *times.entry(number).or_default() += 1;
        assert_eq!(item.payload, payload(number));
        assert_eq!(item.attempt, expected_attempt(number), "item {number}");
        if item.attempt == 1 && number >= ALL - READY {
            let attribute = item.meta.as_ref().and_then(|meta| meta.attributes.get("number").cloned());
            assert_eq!(attribute, self::item(number).attributes.get("number").cloned());
        }
    }
    let doubled: Vec<_> = times.iter().filter(|(_, times)| **times > 1).take(10).collect();
    assert!(doubled.is_empty(), "came twice: {doubled:?}");
    let lost: Vec<_> = (0..ALL).filter(|number| !times.contains_key(number)).take(10).collect();
    assert!(lost.is_empty(), "lost: {lost:?}");
    assert_eq!(times.len() as u64, ALL);
}

/// Makes them, and prints how many are ready.
pub(crate) fn fills() {
    let here = Here::open();
    here.runtime.block_on(fill(&here.db));
    println!("{READY}");
}

pub(crate) fn works_off() {
    let here = Here::open();
    here.runtime.block_on(work_off(&here.db));
}
