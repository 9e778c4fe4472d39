//! How the consumers of a queue in this process get items: one fetcher asks the database for all of
//! them. While one fetch is under way requests gather, and the next fetch is for all of them. So
//! fetches of one process never conflict with each other, and consumers share transactions: the
//! fetch, and later the acknowledgement.
//!
//! `actors::fetcher` carries out what [`state`] decides.
//!
//! What a fetch has got takes four forms on its way to the handler:
//!
//! 1. `Chosen`, in the layer: what a transaction has found, and is to do with it.
//! 2. `Plan`: what the transaction has written. It becomes the result only once the transaction has committed.
//! 3. [`Fetched`]: the result. The fetcher shares it out: one lease becomes the batches of each consumer.
//! 4. [`Claimed`](super::claimed::Claimed): a batch, until a dispatcher begins with it. A consumer keeps its batches in a [`NotBegun`].
//!
//! Workers over HTTP get the leases of a `Fetched` as they are. For the state machine a fetch is an [`Event`], without the items.

pub(crate) mod state;
mod transaction;
mod version_clock;
mod wait_log;

use std::{num::NonZeroUsize, sync::Arc};

use kvqueue_queue::Fetched;
use tokio::sync::oneshot;

use self::state::{Event, NoItems};
pub(crate) use self::{transaction::Fetching, version_clock::VersionClock, wait_log::WaitLog};
use super::claimed::NotBegun;
use crate::{config::Delivery, consumer::status::ConsumerStatus};

/// The most items that several consumers get together; one alone may ask for more. It bounds what
/// one transaction holds up, and what is lost with one lease.
const MOST_TOGETHER: usize = 2_000;

/// How many items one fetch may get for several requests.
pub(crate) fn most_together(delivery: Delivery) -> usize {
    match delivery {
        // The transactions of several handlers would conflict on the lease that they share.
        Delivery::ExactlyOnce => 1,
        Delivery::AtLeastOnce | Delivery::AtMostOnce => MOST_TOGETHER,
    }
}

impl Event {
    /// How a fetch ended that returns something for each asker in [`State::fetching`](state::State::fetching) that it has served.
    pub(crate) fn of<T>(fetched: &Fetched<Vec<T>>) -> Self {
        let watched = fetched.watch.is_some();
        match fetched.got.len() {
            0 if fetched.is_full => Self::Full { watched },
            0 => Self::Empty { watched },
            served => Self::Fetched { served, conflicts: fetched.attempts.conflicts > 0 },
        }
    }
}

/// How many items a consumer asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FetchRequest {
    /// How many items a batch has at most.
    pub(crate) k: NonZeroUsize,
    /// How many batches the consumer has room for.
    pub(crate) batches: NonZeroUsize,
}

impl FetchRequest {
    /// A single item: to try whether a handler works again.
    pub(crate) const TRIAL: Self = Self { k: NonZeroUsize::MIN, batches: NonZeroUsize::MIN };

    /// No more batches than are fetched together, but one at least.
    pub(crate) fn new(k: NonZeroUsize, batches: usize) -> Self {
        let batches = NonZeroUsize::new(batches.min(MOST_TOGETHER / k)).unwrap_or(NonZeroUsize::MIN);
        Self { k, batches }
    }

    /// How many items it asks for.
    pub(crate) fn items(&self) -> NonZeroUsize {
        self.k.saturating_mul(self.batches)
    }

    /// The K of each batch.
    fn batch_sizes(&self) -> impl Iterator<Item = usize> + use<> {
        std::iter::repeat_n(self.k.get(), self.batches.get())
    }
}

/// A request, as a consumer sends it.
pub(crate) struct Ask {
    /// Which consumer asks, among all that the process ever had.
    pub(crate) member: u64,
    pub(crate) request: FetchRequest,
    /// The consumer has items to handle meanwhile: it does not wait if there are none.
    pub(crate) prefetch: bool,
    /// The status of the consumer: the fetcher notes there why the consumer waits.
    pub(crate) status: Arc<ConsumerStatus>,
    /// Gets items, in batches of up to K, or why there are none.
    pub(crate) reply: oneshot::Sender<Result<NotBegun, NoItems>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefetch_of_a_large_batch_size_is_bounded() {
        let k = |k| NonZeroUsize::new(k).unwrap();
        assert_eq!(FetchRequest::new(k(900), 3).items().get(), 1_800);
        assert_eq!(FetchRequest::new(k(10_000), 3).items().get(), 10_000);
    }
}
