//! Requests that ask the database, bounded in number and time.

use std::time::Duration;

use foundationdb::Transaction;
use kvqueue_queue::{Queue, QueueError, Recording, RetryError, RetryPolicy, retry};
use tokio::{sync::SemaphorePermit, task::spawn_blocking, time::timeout};

use super::{api_request::ApiRequest, app_state::AppState, error::ApiError, frozen};
use crate::{config::QueueConfig, database::Refused, item_history};

/// How long one operation may take, retries and all.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// The client library ends what takes too long; this is for when it does not answer at all.
const LAST_MOMENT: Duration = Duration::from_secs(1);

/// FoundationDB's `transaction_timed_out`.
const TIMED_OUT: i32 = 1031;

/// When operations are given up.
pub(super) const POLICY: RetryPolicy = RetryPolicy { max_attempts: None, timeout: Some(PATIENCE) };

impl AppState {
    /// A database permit, if there is one left.
    pub(super) fn permit(&self) -> Result<SemaphorePermit<'_>, ApiError> {
        self.permits.try_acquire().map_err(|_| ApiError::Busy("too many requests are at the database"))
    }

    /// Runs a transaction that may commit twice with the same result: a read, or plain writes.
    pub(super) async fn transact<T, R>(&self, body: impl FnMut(Transaction) -> R) -> Result<T, ApiError>
    where
        R: Future<Output = (Transaction, Result<T, QueueError>)>,
    {
        let _permit = self.permit()?;
        self.run(body).await
    }

    /// As [`Self::transact`], without a database permit. The caller has another bound.
    pub(super) async fn run<T, R>(&self, body: impl FnMut(Transaction) -> R) -> Result<T, ApiError>
    where
        R: Future<Output = (Transaction, Result<T, QueueError>)>,
    {
        let done = timeout(PATIENCE + LAST_MOMENT, retry::run(&self.daemon.db, &POLICY, body)).await;
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
        Ok(queue.with_recorder(&match settings {
            Some(_) => self.daemon.status.recorder(name),
            None => item_history::recorder(Recording::AsStored),
        }))
    }
}

impl ApiRequest {
    /// The queue that the path names.
    pub(super) fn queue(&self) -> Result<Queue, ApiError> {
        self.app.queue(&self.value("queue"))
    }
}

/// The database gives no answer.
pub(super) fn silent() -> ApiError {
    ApiError::Unavailable(format!("the database has not answered within {} s", PATIENCE.as_secs()))
}

impl From<RetryError> for ApiError {
    fn from(error: RetryError) -> Self {
        Self::of(&error)
    }
}

impl ApiError {
    /// An operation was given up.
    pub(super) fn of(error: &RetryError) -> Self {
        let maybe = if error.is_maybe_committed() { "; it may be done all the same" } else { "" };
        match &error.error {
            QueueError::Database(cause) if cause.code() == TIMED_OUT => match silent() {
                Self::Unavailable(text) => Self::Unavailable(text + maybe),
                other => other,
            },
            QueueError::Database(_) if error.is_out_of_space() => Self::NoSpace,
            QueueError::Database(cause) => Self::Unavailable(format!("the database refused: {cause}{maybe}")),
            QueueError::Frozen { pause, .. } if maybe.is_empty() => frozen::failure(pause),
            QueueError::Frozen { .. } => {
                Self::Unavailable(format!("the queue was frozen during the change{maybe}"))
            }
            refused @ QueueError::TooManyBatches { .. } => Self::Conflict {
                code: "batch",
                message: refused.to_string(),
                fix: "let one item wait for it, and push the others",
            },
            problem => Self::Unreadable(problem.to_string()),
        }
    }
}
