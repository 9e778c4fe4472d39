//! FoundationDB's recipes for queues: the operations that they name, as parts of a caller's transaction.
//!
//! Algorithms, keys and values are those of the recipes' programs, so those programs and these functions work on the same queue,
//! in one and the same moment. What kvqueue keeps next to the items is kept right as well: an item that has a side record loses it
//! when it is taken, and both counters count. To work a recipe's queue off with leases, retries and watches, give its
//! [`Queue`] to a [`Session`](crate::Session).
//!
//! Items that are pushed at the same time may get the same number; their order is then that of their random elements. The numbers
//! begin again where nothing is left, so an item that is given back may come behind one that was pushed after it.
//!
//! ```no_run
//! # async fn example(tr: &foundationdb::Transaction, random: [u8; 20]) -> Result<(), Box<dyn std::error::Error>> {
//! use kvqueue_queue::Packing;
//! use kvqueue_queue::recipes::RecipeQueue;
//!
//! // The queue of `Subspace(('Q',))` in Python. `Packing::Tuple` is what the Java program stores.
//! let queue = RecipeQueue::new(b"", "Q", Packing::Raw)?;
//! queue.enqueue(tr, b"a value", random).await?;
//! let first = queue.dequeue(tr).await?;
//! # Ok(())
//! # }
//! ```

use foundationdb::Transaction;

use crate::client::queue::Queue;
use crate::keys::recipes::pack_value;
use crate::model::error::{NameError, QueueError};
use crate::model::id::ItemId;
pub use crate::model::id_layout::RANDOM;
use crate::model::item::Item;
use crate::model::kind::{End, Kind, Packing};
use crate::model::sizes::MAX_VALUE;
use crate::ops::counting::{Becomes, Was, count};
use crate::ops::recipe::{Numbers, last_index};
use crate::ops::{list, place};

/// The queue recipe: `(index, random) = value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecipeQueue {
    queue: Queue,
}

impl RecipeQueue {
    /// The queue in the subspace of the text `name`, behind the raw bytes `prefix`.
    pub fn new(prefix: &[u8], name: &str, packing: Packing) -> Result<RecipeQueue, NameError> {
        Ok(RecipeQueue { queue: Queue::of_kind(prefix, name.as_bytes(), Kind::Recipe(packing))? })
    }

    /// The same queue with all that a queue of any kind can do.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Adds a value behind the last index. `random` makes its key unique: take new random bytes for each call.
    ///
    /// Reads at snapshot isolation, so it conflicts with nothing.
    pub async fn enqueue(
        &self,
        tr: &Transaction,
        value: &[u8],
        random: [u8; RANDOM],
    ) -> Result<ItemId, QueueError> {
        add(&self.queue, tr, value, 0, random).await
    }

    /// Removes and returns the first item. Conflicts with whatever changes which one that is.
    pub async fn dequeue(&self, tr: &Transaction) -> Result<Option<Item>, QueueError> {
        self.queue.pop(tr).await
    }

    /// The first item, left where it is. Conflicts as [`dequeue`](RecipeQueue::dequeue) does.
    pub async fn first_item(&self, tr: &Transaction) -> Result<Option<Item>, QueueError> {
        list::first(self.queue.space(), tr).await
    }

    /// The last item's index; 0 for an empty queue. A snapshot read.
    pub async fn last_index(&self, tr: &Transaction) -> Result<i64, QueueError> {
        last_index(self.queue.space(), tr).await
    }
}

/// The priority queue recipe: `(priority, count, random) = value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PriorityQueue {
    /// The same items, from either end.
    min: Queue,
    max: Queue,
}

impl PriorityQueue {
    /// The priority queue in the subspace of the text `name`, behind the raw bytes `prefix`.
    pub fn new(prefix: &[u8], name: &str, packing: Packing) -> Result<PriorityQueue, NameError> {
        let of = |end| Queue::of_kind(prefix, name.as_bytes(), Kind::Priority(end, packing));
        Ok(PriorityQueue { min: of(End::Min)?, max: of(End::Max)? })
    }

    /// The same queue, processed from this end, with all that a queue of any kind can do.
    pub fn queue(&self, end: End) -> &Queue {
        match end {
            End::Min => &self.min,
            End::Max => &self.max,
        }
    }

    /// Adds a value behind the last of its priority. `random` makes its key unique: take new random bytes for each call.
    ///
    /// Reads at snapshot isolation, so it conflicts with nothing.
    pub async fn push(
        &self,
        tr: &Transaction,
        priority: i64,
        value: &[u8],
        random: [u8; RANDOM],
    ) -> Result<ItemId, QueueError> {
        add(&self.min, tr, value, priority, random).await
    }

    /// Removes and returns the first item of the lowest priority. Conflicts with whatever changes which one that is.
    pub async fn pop_min(&self, tr: &Transaction) -> Result<Option<Item>, QueueError> {
        self.min.pop(tr).await
    }

    /// The first item of the lowest priority, left where it is. Conflicts as [`pop_min`](PriorityQueue::pop_min) does.
    pub async fn peek_min(&self, tr: &Transaction) -> Result<Option<Item>, QueueError> {
        list::first(self.min.space(), tr).await
    }

    /// Removes and returns the last item of the highest priority: as the recipe has it, the newest. Conflicts with whatever changes
    /// which one that is.
    pub async fn pop_max(&self, tr: &Transaction) -> Result<Option<Item>, QueueError> {
        self.max.pop(tr).await
    }

    /// The last item of the highest priority, left where it is. Conflicts as [`pop_max`](PriorityQueue::pop_max) does.
    pub async fn peek_max(&self, tr: &Transaction) -> Result<Option<Item>, QueueError> {
        list::first(self.max.space(), tr).await
    }
}

/// Adds an item, and wakes the programs that wait for one.
async fn add(
    queue: &Queue,
    tr: &Transaction,
    value: &[u8],
    priority: i64,
    random: [u8; RANDOM],
) -> Result<ItemId, QueueError> {
    let space = queue.space();
    let value = pack_value(space.kind.packing(), value);
    if value.len() > MAX_VALUE {
        return Err(QueueError::ValueTooLarge { len: value.len(), limit: MAX_VALUE });
    }
    let mut numbers = Numbers::default();
    numbers.read(space, tr, vec![priority]).await?;
    let id = numbers.next_id(space, priority, &random);
    place::ready(space, tr, &id, &value, &[]);
    count(space, tr, Was::New, Becomes::Ready, 1);
    Ok(id)
}
