//! The crate's errors as errors of the `foundationdb` crate, so that `?` inside `Database::run` retries.

use std::error::Error;

use foundationdb::{FdbBindingError, FdbError};

use crate::model::error::{
    DeadLetterError, FetchError, LeaseError, MoveError, NameError, PushError, QueueError,
};
use crate::model::retry_error::RetryError;

/// The binding's loop retries only a database error that it finds itself, and it does not look into
/// other errors. So the database error is handed over bare. Any other error ends the loop, and the
/// caller finds it in [`FdbBindingError::CustomError`].
fn binding_error(database: Option<FdbError>, error: impl Error + Send + Sync + 'static) -> FdbBindingError {
    database.map_or_else(|| FdbBindingError::CustomError(Box::new(error)), FdbBindingError::from)
}

/// An operation inside the caller's transaction failed: the database's error decides about a retry.
impl From<QueueError> for FdbBindingError {
    fn from(error: QueueError) -> FdbBindingError {
        binding_error(error.database(), error)
    }
}

/// As for [`QueueError`]. A push that ran its own transactions has retried already; it is not retried
/// again.
impl From<PushError> for FdbBindingError {
    fn from(error: PushError) -> FdbBindingError {
        binding_error(error.database(), error)
    }
}

/// As for [`PushError`].
impl From<LeaseError> for FdbBindingError {
    fn from(error: LeaseError) -> FdbBindingError {
        let database = match &error {
            LeaseError::Queue(error) => error.database(),
            _ => None,
        };
        binding_error(database, error)
    }
}

/// As for [`QueueError`].
impl From<DeadLetterError> for FdbBindingError {
    fn from(error: DeadLetterError) -> FdbBindingError {
        let database = match &error {
            DeadLetterError::Queue(error) => error.database(),
            DeadLetterError::UniqueTaken { .. } => None,
        };
        binding_error(database, error)
    }
}

/// Errors of operations that run their own transactions, or none. They are never retried.
macro_rules! never_retried {
    ($($error:ty),*) => {$(
        /// Not retried: the operation ran its own transactions, or needs none.
        impl From<$error> for FdbBindingError {
            fn from(error: $error) -> FdbBindingError {
                binding_error(None, error)
            }
        }
    )*};
}

never_retried!(NameError, MoveError, RetryError, FetchError);

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::client::queue::Queue;
    use crate::model::codes::NOT_COMMITTED;
    use crate::model::retry_error::Attempts;
    use crate::testing::on_database;

    /// A conflict, which the binding's loop retries.
    fn conflict() -> QueueError {
        FdbError::from_code(NOT_COMMITTED).into()
    }

    fn gave_up() -> RetryError {
        RetryError { error: conflict(), attempts: Attempts::default() }
    }

    #[test]
    fn conflict_inside_our_errors_is_retried_by_the_binding() {
        let errors: [fn() -> FdbBindingError; 4] = [
            || conflict().into(),
            || PushError::from(conflict()).into(),
            || LeaseError::from(conflict()).into(),
            || DeadLetterError::from(conflict()).into(),
        ];
        on_database(async |db| {
            let queue = Queue::new(b"", b"q").unwrap();
            for error in errors {
                let (attempts, queue) = (&AtomicU32::new(0), &queue);
                let pushed = db.run(|tr, _maybe_committed| async move {
                    queue.pusher(&tr).push(b"one").await?;
                    match attempts.fetch_add(1, Ordering::Relaxed) {
                        0 => Err(error()),
                        _ => Ok(()),
                    }
                });
                pushed.await.unwrap();
                assert_eq!(attempts.load(Ordering::Relaxed), 2);
            }
            let tr = db.create_trx().unwrap();
            assert_eq!(queue.len(&tr).await.unwrap(), 4);
        });
    }

    #[test]
    fn other_errors_end_the_retry_loop_and_can_be_downcast() {
        on_database(async |db| {
            let (attempts, queue) = (&AtomicU32::new(0), &Queue::new(b"", b"q").unwrap());
            let refused = db.run(|tr, _maybe_committed| async move {
                attempts.fetch_add(1, Ordering::Relaxed);
                let (mut first, mut second) = (queue.pusher(&tr), queue.pusher(&tr));
                first.push(b"one").await?;
                Ok(second.push(b"two").await?)
            });
            let FdbBindingError::CustomError(error) = refused.await.unwrap_err() else {
                panic!("the error is not the database's")
            };
            let error = error.downcast_ref::<PushError>().expect("the error has kept its type");
            assert!(matches!(error, PushError::Queue(QueueError::SecondPusher { .. })), "{error}");
            assert_eq!(attempts.load(Ordering::Relaxed), 1);
        });
    }

    #[test]
    fn operations_that_have_retried_themselves_are_not_retried_again() {
        let errors: [FdbBindingError; 4] = [
            gave_up().into(),
            PushError::from(gave_up()).into(),
            LeaseError::from(gave_up()).into(),
            FetchError::from(gave_up()).into(),
        ];
        for error in errors {
            assert!(error.get_fdb_error().is_none(), "{error:?}");
        }
    }
}
