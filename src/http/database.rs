//! Requests that ask the database, bounded in number and time.

use std::cell::Cell;

use foundationdb::Transaction;
use kvqueue_queue::{Queue, QueueError, Recorder, Recording, RetryError, RetryPolicy, retry};
use tokio::{task::spawn_blocking, time::timeout};

use super::{api_request::ApiRequest, app_state::AppState, error::ApiError, guard::Caller, room::Place};
use crate::{
    base::deadlines::{LAST_MOMENT, OPERATION},
    config::QueueConfig,
    database::{
        Refused,
        attempt::{Attempt, boxed},
        item_history,
    },
    operations::Refusal,
};

/// FoundationDB's `transaction_timed_out`.
const TIMED_OUT: i32 = 1031;

/// When operations are given up.
pub(super) const POLICY: RetryPolicy = RetryPolicy { max_attempts: None, timeout: Some(OPERATION) };

impl AppState {
    /// A database permit for a client, if there is one left.
    pub(super) fn permit(&self, client: &Caller) -> Result<Place, ApiError> {
        let mut permit = self.at_the_database.place(client);
        match permit.grow_to(1) {
            true => Ok(permit),
            false => Err(ApiError::Busy("too many requests are at the database")),
        }
    }

    /// Runs a transaction that may commit twice with the same result: a read, or plain writes. It takes no database permit: the caller has
    /// another bound.
    pub(super) async fn run<T, R>(&self, body: impl FnMut(Transaction) -> R) -> Result<T, ApiError>
    where
        R: Future<Output = (Transaction, Result<T, QueueError>)>,
    {
        let done = timeout(OPERATION + LAST_MOMENT, retry::run(&self.daemon.db, &POLICY, body)).await;
        Ok(done.map_err(|_| silent())??.value)
    }

    /// A database that accepts no more data may have too much to do, and space enough.
    pub(super) async fn explain(&self, failure: ApiError) -> ApiError {
        if !matches!(failure, ApiError::NoSpace) {
            return failure;
        }
        let config = self.config();
        match spawn_blocking(move || Refused::why(&config.database)).await {
            Ok(Refused::Busy(text)) => ApiError::Unavailable(text),
            Ok(Refused::Space(_)) | Err(_) => ApiError::NoSpace,
        }
    }

    /// A queue by its name, laid out as the configuration says; one that is not in it is a fifo.
    pub(super) fn queue(&self, name: &str) -> Result<Queue, ApiError> {
        let config = self.config();
        let settings = config.queues.get(name);
        let kind = settings.map(QueueConfig::layout).unwrap_or_default();
        let queue = Queue::of_kind(config.prefix.as_bytes(), name.as_bytes(), kind);
        let queue = queue.map_err(|error| ApiError::Bad(error.to_string()))?;
        Ok(queue.with_recorder(&self.recorder(name)))
    }

    /// What records the ends of items of this queue.
    pub(super) fn recorder(&self, queue: &str) -> Recorder {
        match self.config().queues.contains_key(queue) {
            true => self.daemon.status.recorder(queue),
            false => item_history::recorder(Recording::AsStored),
        }
    }
}

impl ApiRequest {
    /// A database permit, if there is one left for this client.
    pub(super) fn permit(&self) -> Result<Place, ApiError> {
        self.app.permit(&self.caller)
    }

    /// Takes a database permit, and keeps it until the request is answered, so that a change of several transactions is not refused in its middle.
    pub(super) fn hold_permit(&self) -> Result<(), ApiError> {
        let mut held = self.database_permit.borrow_mut();
        if held.is_none() {
            *held = Some(self.permit()?);
        }
        Ok(())
    }

    /// As [`AppState::run`], with a database permit.
    pub(super) async fn transact<T, R>(&self, body: impl FnMut(Transaction) -> R) -> Result<T, ApiError>
    where
        R: Future<Output = (Transaction, Result<T, QueueError>)>,
    {
        let value = Cell::new(None);
        self.transact_boxed(&mut boxed(body, &value)).await?;
        Ok(value.take().expect("an attempt has committed"))
    }

    /// What [`Self::transact`] does with any body, compiled once.
    async fn transact_boxed<'a>(
        &self,
        body: &mut dyn FnMut(Transaction) -> Attempt<'a>,
    ) -> Result<(), ApiError> {
        let _permit = self.permit()?;
        self.app.run(body).await
    }

    /// The queue that the path names.
    pub(super) fn queue(&self) -> Result<Queue, ApiError> {
        self.app.queue(self.value("queue"))
    }
}

/// The database gives no answer.
pub(super) fn silent() -> ApiError {
    ApiError::Unavailable(format!("the database has not answered within {} s", OPERATION.as_secs()))
}

impl From<RetryError> for ApiError {
    fn from(error: RetryError) -> Self {
        Self::of(&error)
    }
}

impl ApiError {
    /// An operation was given up.
    pub(super) fn of(error: &RetryError) -> Self {
        if let Some(refusal) = Refusal::of(error) {
            return Self::Operation(refusal);
        }
        let maybe = if error.is_maybe_committed() { "; it may be done all the same" } else { "" };
        match &error.error {
            QueueError::Database(cause) if cause.code() == TIMED_OUT => match silent() {
                Self::Unavailable(text) => Self::Unavailable(text + maybe),
                other => other,
            },
            QueueError::Database(_) if error.is_out_of_space() => Self::NoSpace,
            QueueError::Database(cause) => Self::Unavailable(format!("the database refused: {cause}{maybe}")),
            QueueError::Frozen { .. } => {
                Self::Unavailable(format!("the queue was frozen during the change{maybe}"))
            }
            problem => Self::Unreadable(problem.to_string()),
        }
    }
}
