//! Queues of every kind, and pushing to them.

use foundationdb::Transaction;
use kvqueue_queue::recipes::{PriorityQueue, RANDOM, RecipeQueue};
use kvqueue_queue::{End, Kind, Packing, Queue, QueueError};

use super::TestDb;

/// Every kind, with every way to store values and both ends.
pub(crate) const KINDS: [Kind; 7] = [
    Kind::Fifo,
    Kind::Recipe(Packing::Raw),
    Kind::Recipe(Packing::Tuple),
    Kind::Priority(End::Min, Packing::Raw),
    Kind::Priority(End::Max, Packing::Raw),
    Kind::Priority(End::Max, Packing::Tuple),
    Kind::Keyed,
];

/// A new random element: a UUID backwards, since it begins with the time.
pub(crate) fn random() -> [u8; RANDOM] {
    let mut random = [0; RANDOM];
    random[4..].copy_from_slice(&uuid::Uuid::now_v7().into_bytes());
    random.reverse();
    random
}

impl TestDb {
    /// The queue `name` of a kind in this test's part.
    pub(crate) fn queue_of(&self, name: impl AsRef<[u8]>, kind: Kind) -> Queue {
        Queue::of_kind(&self.prefix, name.as_ref(), kind).unwrap()
    }

    /// Adds one item to a queue of any kind, in a transaction.
    pub(crate) async fn push_in(
        &self,
        queue: &Queue,
        tr: &Transaction,
        priority: i64,
        payload: &str,
    ) -> Result<(), QueueError> {
        let name = str::from_utf8(queue.name()).unwrap();
        match queue.kind() {
            Kind::Fifo | Kind::Keyed => queue.pusher(tr).push(payload.as_bytes()).await.unwrap(),
            Kind::Recipe(packing) => {
                let recipe = RecipeQueue::new(&self.prefix, name, packing).unwrap();
                recipe.enqueue(tr, payload.as_bytes(), random()).await?;
            }
            Kind::Priority(_, packing) => {
                let recipe = PriorityQueue::new(&self.prefix, name, packing).unwrap();
                recipe.push(tr, priority, payload.as_bytes(), random()).await?;
            }
        }
        Ok(())
    }

    /// Adds one item to a queue of any kind.
    pub(crate) async fn push_by(&self, queue: &Queue, priority: i64, payload: &str) {
        match queue.kind() {
            Kind::Fifo | Kind::Keyed => self.push(queue, &[payload]).await,
            // Not twice, under unknown outcomes either: with the same random element there is one key only if the number is the
            // same, so tests with faults push before or after them.
            _ => self.run(async |tr| self.push_in(queue, tr, priority, payload).await).await,
        }
    }

    /// Adds items, so that they are taken in this order.
    pub(crate) async fn fill(&self, queue: &Queue, payloads: &[&str]) {
        for (place, payload) in (0..).zip(payloads) {
            let priority = if matches!(queue.kind(), Kind::Priority(End::Max, _)) { -place } else { place };
            self.push_by(queue, priority, payload).await;
        }
    }
}

/// What kinds of records of ours there are of a queue, besides token slots that nobody closed.
pub(crate) async fn kinds_of_records(t: &TestDb, queue: &Queue) -> std::collections::BTreeSet<String> {
    let (begin, end) = queue.range();
    let range = foundationdb::RangeOption::from((begin.clone(), end));
    t.run(async |tr| {
        let rows = tr.get_range(&range, 1, true).await?;
        let name = |key: &[u8]| {
            let rest = &key[begin.len()..];
            let len = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
            String::from_utf8_lossy(&rest[..len]).into_owned()
        };
        Ok(rows.iter().map(|row| name(row.key())).collect())
    })
    .await
}
