//! Producers that push one transaction after the other: to fill a queue, for a time, or until told to stop.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use foundationdb::{Database, RetryableTransaction};
use kvqueue_queue::{NewItem, Producer, PushOptions, Queue};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{
    ground::session,
    tally::{Tally, payload},
};

/// Sessions that fill a queue.
const FILLERS: usize = 4;

/// Items of a transaction that fills.
const FILL: u64 = 500;

/// Bytes of the payloads of such a transaction.
const FILL_BYTES: u64 = 500_000;

/// What is pushed, and where to.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) db: Arc<Database>,
    pub(super) queue: Queue,
    pub(super) tally: Arc<Tally>,
    /// The length of the payloads.
    pub(super) payload: usize,
}

/// What pushers came to.
#[derive(Debug, Default)]
pub(super) struct Pushes {
    /// Items whose push was acknowledged.
    pub(super) items: u64,
    /// How long each call took, in nanoseconds.
    pub(super) nanos: Vec<u64>,
    /// From the first call to the last answer.
    pub(super) time: Duration,
}

/// Pushes this number of items as fast as possible.
pub(super) async fn fill(target: &Target, items: u64) -> anyhow::Result<()> {
    let batch = FILL.min(FILL_BYTES / target.payload as u64).max(1);
    let first = target.tally.number(items).context("there are more items than can be counted")?;
    let mut fillers = JoinSet::new();
    let mut batches = (0..items.div_ceil(batch)).map(|n| (first + n * batch, batch.min(items - n * batch)));
    let share = usize::try_from(items.div_ceil(batch)).unwrap_or(usize::MAX).div_ceil(FILLERS);
    for _ in 0..FILLERS {
        let (target, own): (_, Vec<_>) = (target.clone(), batches.by_ref().take(share).collect());
        fillers.spawn(async move {
            let mut session = session(&target.queue);
            for (first, n) in own {
                let payloads: Vec<_> =
                    (first..first + n).map(|number| payload(number, target.payload)).collect();
                session.push(&target.db, &payloads).await?;
                target.tally.pushed(first, n);
            }
            session.close(&target.db).await?;
            anyhow::Ok(())
        });
    }
    all(&mut fillers).await.context("cannot fill the queue")?;
    Ok(())
}

/// Clients, each with a session of its own, that push `batch` items a transaction until `stop`; they finish what they have begun.
pub(super) async fn produce(
    target: &Target,
    clients: usize,
    batch: u32,
    stop: CancellationToken,
) -> anyhow::Result<Pushes> {
    let push = || push(target.clone(), u64::from(batch), stop.clone());
    together((0..clients).map(|_| push())).await
}

/// Clients that push like the Erlang program: in plain transactions, all at the same time.
pub(super) async fn produce_like_baseline(
    target: &Target,
    clients: usize,
    batch: u32,
    stop: CancellationToken,
) -> anyhow::Result<Pushes> {
    let push = || push_plain(target.clone(), u64::from(batch), stop.clone());
    together((0..clients).map(|_| push())).await
}

/// Clients that push one item after the other, all through one producer.
pub(super) async fn produce_shared(
    target: &Target,
    clients: usize,
    stop: CancellationToken,
) -> anyhow::Result<Pushes> {
    let (producer, driver) = Producer::new(session(&target.queue), target.db.clone());
    let driver = tokio::spawn(driver.run());
    let push = || push_shared(target.clone(), producer.clone(), stop.clone());
    let pushes = together((0..clients).map(|_| push())).await;
    drop(producer);
    driver.await?.context("cannot end the producer's session")?;
    pushes
}

async fn together(
    clients: impl Iterator<Item = impl Future<Output = anyhow::Result<Pushes>> + Send + 'static>,
) -> anyhow::Result<Pushes> {
    let mut tasks = JoinSet::new();
    let begun = Instant::now();
    clients.for_each(|client| drop(tasks.spawn(client)));
    let mut pushes = Pushes::default();
    for own in all(&mut tasks).await.context("a push failed")? {
        pushes.items += own.items;
        pushes.nanos.extend(own.nanos);
    }
    pushes.time = begun.elapsed();
    Ok(pushes)
}

async fn push(target: Target, batch: u64, stop: CancellationToken) -> anyhow::Result<Pushes> {
    let mut session = session(&target.queue);
    let mut pushes = Pushes::default();
    while !stop.is_cancelled() {
        let Some(first) = target.tally.number(batch) else { break };
        let payloads: Vec<_> = (first..first + batch).map(|number| payload(number, target.payload)).collect();
        let called = Instant::now();
        session.push(&target.db, &payloads).await?;
        pushes.answered(called, batch);
        target.tally.pushed(first, batch);
    }
    // The session's token goes with the queue; clients that clear theirs one by one would be measured as well.
    Ok(pushes)
}

async fn push_plain(target: Target, batch: u64, stop: CancellationToken) -> anyhow::Result<Pushes> {
    let mut pushes = Pushes::default();
    while !stop.is_cancelled() {
        let Some(first) = target.tally.number(batch) else { break };
        let items: Vec<_> =
            (first..first + batch).map(|number| NewItem::new(payload(number, target.payload))).collect();
        let called = Instant::now();
        let push = |tr: RetryableTransaction, _maybe_committed| {
            let (queue, items) = (target.queue.clone(), items.clone());
            async move { Ok(queue.pusher(&tr).push_items(&items, &PushOptions::default()).await.map(drop)?) }
        };
        target.db.run(push).await?;
        pushes.answered(called, batch);
        target.tally.pushed(first, batch);
    }
    Ok(pushes)
}

async fn push_shared(target: Target, producer: Producer, stop: CancellationToken) -> anyhow::Result<Pushes> {
    let mut pushes = Pushes::default();
    while !stop.is_cancelled() {
        let Some(number) = target.tally.number(1) else { break };
        let item = NewItem::new(payload(number, target.payload));
        let called = Instant::now();
        producer.push(item).await?;
        pushes.answered(called, 1);
        target.tally.pushed(number, 1);
    }
    Ok(pushes)
}

impl Pushes {
    fn answered(&mut self, called: Instant, items: u64) {
        self.nanos.push(u64::try_from(called.elapsed().as_nanos()).unwrap_or(u64::MAX));
        self.items += items;
    }
}

/// What all tasks return, or the first error, by which the others are stopped.
pub(super) async fn all<T: 'static>(tasks: &mut JoinSet<anyhow::Result<T>>) -> anyhow::Result<Vec<T>> {
    let mut results = Vec::with_capacity(tasks.len());
    while let Some(ended) = tasks.join_next().await {
        results.push(ended??);
    }
    Ok(results)
}
