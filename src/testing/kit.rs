//! A handler in a test: calls it as the daemon does, with a transaction for exactly-once delivery.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use foundationdb::{FdbError, Transaction};
use kvqueue_queue::Item;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use super::{Sample, TestDatabase};
use crate::{
    consumer::dispatch::{MAX_RUNS, not_committed},
    daemon::handler_pool,
    handlers::{AnyHandler, BatchHandler, Context, Handler, Outcome, StopRequest, call},
};

/// Where handlers of tests run, as the daemon's do: not on the test's own runtime, which may have
/// one thread only.
static POOL: LazyLock<Runtime> =
    LazyLock::new(|| handler_pool().expect("a machine that runs tests has room for some threads"));

/// A handler, and how it is called.
///
/// Its calls can be awaited on any runtime.
#[derive(Clone, Debug)]
#[must_use = "a kit does nothing until it is given items"]
pub struct Kit {
    handling: AnyHandler,
    queue: Arc<str>,
    timeout: Option<Duration>,
    cancelled: CancellationToken,
    stop: StopRequest,
    database: Option<TestDatabase>,
    conflicts: u32,
}

impl Kit {
    /// Of a handler of single items. To look into the handler after a call, give an `Arc` of it.
    pub fn new(handler: impl Handler) -> Self {
        Self::of(AnyHandler::Each(Arc::new(handler)))
    }

    /// Of a handler of all items of one fetch.
    pub fn batch(handler: impl BatchHandler) -> Self {
        Self::of(AnyHandler::Batch(Arc::new(handler)))
    }

    fn of(handling: AnyHandler) -> Self {
        Self {
            handling,
            queue: "test".into(),
            timeout: None,
            cancelled: CancellationToken::new(),
            stop: StopRequest::default(),
            database: None,
            conflicts: 0,
        }
    }

    /// The queue's name; `test` without.
    pub fn queue(mut self, name: &str) -> Self {
        self.queue = name.into();
        self
    }

    /// How long a call may take (`handler-timeout`); without, as long as it likes.
    pub fn handler_timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }

    /// Gives the handler transactions on this database. They are committed as the daemon does it:
    /// if the outcome of an item is `Done`. A call whose transaction does not commit for a temporary
    /// reason is made again.
    pub fn exactly_once(mut self, database: &TestDatabase) -> Self {
        self.database = Some(database.clone());
        self
    }

    /// Lets this number of transactions of each exactly-once call end with a conflict, so that it
    /// is made as often again.
    pub fn conflicts(mut self, conflicts: u32) -> Self {
        self.conflicts = conflicts;
        self
    }

    /// The token above those of the calls: cancelling it is what the daemon does when the shutdown
    /// timeout is over. An item that is not done then is released.
    pub fn cancelled(&self) -> CancellationToken {
        self.cancelled.clone()
    }

    /// Cancels calls that have not ended after this time.
    pub fn cancel_after(self, time: Duration) -> Self {
        let token = self.cancelled();
        POOL.spawn(async move {
            tokio::time::sleep(time).await;
            token.cancel();
        });
        self
    }

    /// The handler's reason to stop the daemon, if it gave one.
    pub fn stop_requested(&self) -> Option<&str> {
        self.stop.reason()
    }

    /// Has one item handled.
    pub async fn handle(&self, item: impl Into<Sample>) -> Outcome {
        let outcome = self.run(vec![item.into().build()]).await.pop();
        outcome.expect("a call gives one outcome per item")
    }

    /// Has items handled: by a batch handler in one call, by a handler of single items one after
    /// the other.
    pub async fn handle_all<S: Into<Sample>>(&self, items: impl IntoIterator<Item = S>) -> Vec<Outcome> {
        let items =
            (0..=u16::MAX).zip(items).map(|(index, item)| item.into().build_at(index)).collect::<Vec<_>>();
        match self.handling {
            AnyHandler::Batch(_) => self.run(items).await,
            AnyHandler::Each(_) => {
                let mut outcomes = Vec::with_capacity(items.len());
                for item in items {
                    outcomes.extend(self.run(vec![item]).await);
                }
                outcomes
            }
        }
    }

    /// One call, and what becomes of each of its items.
    async fn run(&self, items: Vec<Item>) -> Vec<Outcome> {
        let (kit, items): (_, Arc<[Item]>) = (self.clone(), items.into());
        let running = POOL.spawn(async move {
            match kit.database.clone() {
                None => kit.call(&items, None).await,
                Some(database) => until_committed(&kit, &database, &items).await,
            }
        });
        running.await.expect("the handler's panics are contained")
    }

    /// Calls the handler once.
    async fn call(&self, items: &Arc<[Item]>, transaction: Option<Arc<Transaction>>) -> Vec<Outcome> {
        let context = Context {
            queue: self.queue.clone(),
            consumer: 1,
            deadline: None,
            cancelled: self.cancelled.child_token(),
            transaction,
            stop: self.stop.clone(),
            limit: None,
            runtime: None,
            progress: None,
        };
        let ended = call(&self.handling, items.clone(), context, self.timeout).await;
        ended.outcomes(items.len(), &Outcome::Release)
    }
}

/// FoundationDB's `not_committed`.
const CONFLICT: i32 = 1020;

/// With exactly-once delivery: calls the handler until the transaction of a call commits, or no
/// item is done.
async fn until_committed(kit: &Kit, database: &TestDatabase, items: &Arc<[Item]>) -> Vec<Outcome> {
    let failed = |error: FdbError| vec![Outcome::retry(error); items.len()];
    let mut tr = match database.create_trx() {
        Ok(tr) => tr,
        Err(error) => return failed(error),
    };
    let mut refused = None;
    for run in 0..MAX_RUNS {
        let shared = Arc::new(tr);
        let outcomes = kit.call(items, Some(shared.clone())).await;
        if !outcomes.contains(&Outcome::Done) {
            return outcomes;
        }
        let Some(own) = Arc::into_inner(shared) else {
            return vec![Outcome::retry("its transaction is still in use"); items.len()];
        };
        let (next, cause) = match commit(own, run < kit.conflicts).await {
            Ok(None) => return outcomes,
            Ok(Some(again)) => again,
            Err(error) => return failed(error),
        };
        (tr, refused) = (next, Some(cause));
    }
    vec![not_committed(refused); items.len()]
}

/// Commits, or returns a transaction to try again with, and why.
async fn commit(tr: Transaction, conflict: bool) -> Result<Option<(Transaction, FdbError)>, FdbError> {
    if conflict {
        let cause = FdbError::from_code(CONFLICT);
        return tr.on_error(cause).await.map(|again| Some((again, cause)));
    }
    match tr.commit().await {
        Ok(_) => Ok(None),
        Err(error) => {
            let cause = *error;
            error.on_error().await.map(|again| Some((again, cause)))
        }
    }
}
