//! One producer for many tasks: what they push at the same time goes into the queue in common transactions.
//!
//! A commit costs about the same whether it has one item or a hundred, a flush of a disk or a round through a cluster. A [`Session`] does one thing
//! at a time, so tasks that push one item each would need a session, and a commit, each. A [`Producer`] is asked by all of
//! them: while one transaction is under way the next pushes gather. Nobody waits for others to come.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use foundationdb::Database;
use futures::channel::{mpsc, oneshot};
use futures::{FutureExt, StreamExt};
use mutant::{bound, mutant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::client::session::Session;
use crate::model::batch::BatchLimits;
use crate::model::error::PushError;
use crate::model::kind::Kind;
use crate::model::new_item::{NewItem, PushOptions};
use crate::model::pushed::PushedItem;
use crate::model::retry_error::RetryError;

/// The most items that a producer holds whose push has not ended: enough for the transaction under way and the next ones.
fn max_waiting() -> usize {
    bound("waiting-pushes", 4_000)
}
/// The most bytes of these items, as [`NewItem::weight`] counts.
fn max_waiting_bytes() -> usize {
    bound("waiting-push-bytes", 16 << 20)
}

/// A push through a [`Producer`] failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ProduceError {
    /// The item, or the transaction that it was in, was refused.
    #[error(transparent)]
    Push(Arc<PushError>),
    /// The producer's [`Driver`] has ended, or was dropped. The item may be in the queue if it was dropped just now.
    #[error("producer's driver is not there any more; keep it running for as long as items are pushed")]
    Ended,
}

impl ProduceError {
    /// Whether the item may be in the queue all the same.
    pub fn is_maybe_committed(&self) -> bool {
        match self {
            Self::Push(error) => error.is_maybe_committed(),
            Self::Ended => true,
        }
    }
}

/// Pushes items for many tasks at once; a clone is the same producer.
///
/// ```no_run
/// # use std::sync::Arc;
/// # use kvqueue_queue::{NewItem, Producer, Queue, Session};
/// # async fn example(db: Arc<foundationdb::Database>, queue: Queue) -> Result<(), Box<dyn std::error::Error>> {
/// let (producer, driver) = Producer::new(Session::new(queue), db);
/// let driver = tokio::spawn(driver.run());
/// // In any number of tasks:
/// let pushed = producer.push(NewItem::new("order 17")).await?;
/// // In the end:
/// drop(producer);
/// driver.await??;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Producer {
    requests: mpsc::UnboundedSender<Request>,
    room: Arc<Room>,
    kind: Kind,
    options: PushOptions,
}

/// Does what a [`Producer`] is asked for, as long as it is polled: spawn [`Driver::run`].
pub struct Driver {
    session: Session,
    db: Arc<Database>,
    options: PushOptions,
    requests: mpsc::UnboundedReceiver<Request>,
    /// The push that did not fit into the last transaction.
    held: Option<Request>,
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("session", &self.session).finish_non_exhaustive()
    }
}

/// An item, and who waits for what comes of it.
#[derive(Debug)]
struct Request {
    item: NewItem,
    answer: oneshot::Sender<Result<PushedItem, ProduceError>>,
    /// Given back before the request is answered, or when it is dropped.
    place: ReservedRoom,
}

/// The limits of a producer's waiting pushes: [`max_waiting`] items and [`max_waiting_bytes`]. Further pushes wait, and enter in
/// the order in which they came.
#[derive(Debug)]
struct Room {
    bytes: Arc<Semaphore>,
    items: Arc<Semaphore>,
}

impl Room {
    fn new(items: usize, bytes: usize) -> Room {
        let [items, bytes] = [items, bytes]
            .map(|limit| if mutant("producer-unbounded") { Semaphore::MAX_PERMITS } else { limit })
            .map(|limit| Arc::new(Semaphore::new(limit)));
        Room { bytes, items }
    }

    /// Waits until there is room for an item of this weight. One alone always has room.
    async fn enter(&self, bytes: usize) -> ReservedRoom {
        let bytes = u32::try_from(bytes.min(max_waiting_bytes())).unwrap_or(u32::MAX);
        // Nobody closes the semaphores. An item that waits for the second one has its bytes: both keep the order.
        let bytes = Arc::clone(&self.bytes).acquire_many_owned(bytes).await.ok();
        let item = Arc::clone(&self.items).acquire_owned().await.ok();
        ReservedRoom { _item: item, _bytes: bytes }
    }

    /// How many items are in it.
    fn held(&self) -> usize {
        max_waiting().saturating_sub(self.items.available_permits())
    }
}

/// The place of one item in a producer's room.
#[derive(Debug)]
struct ReservedRoom {
    _item: Option<OwnedSemaphorePermit>,
    _bytes: Option<OwnedSemaphorePermit>,
}

impl Request {
    fn give(self, outcome: Result<PushedItem, ProduceError>) {
        // A caller that has its answer finds the room that its item took free again.
        drop(self.place);
        // The caller may have stopped waiting.
        let _ = self.answer.send(outcome);
    }
}

impl Producer {
    /// A producer that pushes with `session`, to its queue and by its policy.
    pub fn new(session: Session, db: Arc<Database>) -> (Producer, Driver) {
        Producer::with_max_payload(session, db, PushOptions::default().max_payload)
    }

    /// The same, for payloads of up to this many bytes.
    pub fn with_max_payload(session: Session, db: Arc<Database>, max_payload: usize) -> (Producer, Driver) {
        let options = PushOptions { max_payload, ..PushOptions::default() };
        let (sender, requests) = mpsc::unbounded();
        let kind = session.queue().kind();
        let producer = Producer {
            requests: sender,
            room: Arc::new(Room::new(max_waiting(), max_waiting_bytes())),
            kind,
            options: options.clone(),
        };
        (producer, Driver { session, db, options, requests, held: None })
    }

    /// How many items it holds whose push has not ended.
    pub fn held(&self) -> usize {
        self.room.held()
    }

    /// Adds an item, exactly once; it is stored when this returns. Items of one task that awaits each push keep their order.
    ///
    /// A producer holds up to 4,000 items and 16 MiB; while it has no room for the item, the push waits. A push whose future is dropped may or may
    /// not have happened.
    ///
    /// # Errors
    /// The errors of [`Session::push_items`]. An error of the database, or the end of the policy, is the error of all items of the transaction; one that is an
    /// item's own hurts no other.
    pub async fn push(&self, item: NewItem) -> Result<PushedItem, ProduceError> {
        let refused = |error| ProduceError::Push(Arc::new(error));
        self.options
            .check()
            .and_then(|()| item.check_new(self.kind, self.options.max_payload))
            .map_err(refused)?;
        let (answer, outcome) = oneshot::channel();
        let place = self.room.enter(item.weight()).await;
        self.requests.unbounded_send(Request { item, answer, place }).map_err(|_| ProduceError::Ended)?;
        outcome.await.unwrap_or(Err(ProduceError::Ended))
    }
}

impl Driver {
    /// Pushes until the last [`Producer`] is gone, and ends the session.
    pub async fn run(mut self) -> Result<(), RetryError> {
        while let Some(group) = self.next_group().await {
            self.push(group).await;
        }
        // A session that only pushes has nothing to return.
        self.session.close(&self.db).await.map(drop)
    }

    /// Waits for a request, and takes those with it that are there already, as many as fit into a transaction.
    async fn next_group(&mut self) -> Option<Vec<Request>> {
        let first = match self.held.take() {
            Some(request) => request,
            None => self.requests.next().await?,
        };
        // Tasks that were answered together come together.
        let mut yielded = false;
        poll_fn(|context| {
            if std::mem::replace(&mut yielded, true) {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
        let limits = BatchLimits::default();
        let mut bytes = first.item.weight();
        let mut group = vec![first];
        while group.len() < limits.max_items
            && let Some(Some(next)) = self.requests.next().now_or_never()
        {
            bytes += next.item.weight();
            if bytes > limits.max_bytes {
                self.held = Some(next);
                break;
            }
            group.push(next);
        }
        // A push whose caller no longer waits has not begun.
        group.retain(|request| !request.answer.is_canceled());
        Some(group)
    }

    async fn push(&mut self, group: Vec<Request>) {
        let items: Vec<NewItem> = group.iter().map(|request| request.item.clone()).collect();
        match self.session.push_items(&self.db, &items, &self.options).await {
            Ok(pushed) => {
                for (request, outcome) in group.into_iter().zip(pushed.each()) {
                    request.give(Ok(outcome));
                }
            }
            // One by one only that item is refused.
            Err(error) if group.len() > 1 && is_about_an_item(&error) => {
                for request in group {
                    Box::pin(self.push(vec![request])).await;
                }
            }
            Err(error) => {
                let error = Arc::new(error);
                for request in group {
                    request.give(Err(ProduceError::Push(Arc::clone(&error))));
                }
            }
        }
    }
}

/// Does it come of what is stored of an item, and nothing was written? Then others may still be pushed.
fn is_about_an_item(error: &PushError) -> bool {
    match error {
        error if error.frozen().is_some() => false,
        PushError::Retry(error) => error.error.database().is_none() && !error.is_maybe_committed(),
        PushError::Queue(error) => error.database().is_none(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pushes_enter_a_full_room_in_the_order_in_which_they_came() {
        let room = Room::new(1, max_waiting_bytes());
        let enter = || Box::pin(room.enter(1));
        let first = enter().now_or_never().expect("it is empty");
        let (mut second, mut third, mut fourth) = (enter(), enter(), enter());
        for waiting in [&mut second, &mut third, &mut fourth] {
            assert!(waiting.as_mut().now_or_never().is_none());
        }
        drop(first);
        let place = second.as_mut().now_or_never().expect("it is its turn");
        assert!(third.as_mut().now_or_never().is_none());
        // It comes last, and stays last although others have gone meanwhile.
        let mut last = enter();
        assert!(last.as_mut().now_or_never().is_none());
        drop(place);
        let place = third.as_mut().now_or_never().expect("it is its turn");
        drop(place);
        assert!(last.as_mut().now_or_never().is_none(), "another one came before it");
        assert!(fourth.as_mut().now_or_never().is_some());
    }

    #[test]
    fn the_heaviest_item_has_room_alone() {
        let room = Room::new(2, max_waiting_bytes());
        let place = room.enter(usize::MAX).now_or_never().expect("it is empty");
        assert!(room.enter(1).now_or_never().is_none());
        drop(place);
        assert!(room.enter(1).now_or_never().is_some());
    }
}
