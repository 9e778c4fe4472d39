//! Bodies of transactions as one type, so that what runs them is compiled once, not for each body.

use std::cell::Cell;

use foundationdb::Transaction;
use futures::future::LocalBoxFuture;
use kvqueue_queue::QueueError;

/// One run of a body: its transaction again, and whether it may be committed.
pub(crate) type Attempt<'a> = LocalBoxFuture<'a, (Transaction, Result<(), QueueError>)>;

/// A body for [`retry::run`](kvqueue_queue::retry::run) that leaves its result in `value`. The attempt that commits is the last one.
pub(crate) fn boxed<'a, T: 'a, R>(
    mut body: impl FnMut(Transaction) -> R,
    value: &'a Cell<Option<T>>,
) -> impl FnMut(Transaction) -> Attempt<'a>
where
    R: Future<Output = (Transaction, Result<T, QueueError>)> + 'a,
{
    move |tr| {
        let attempt = body(tr);
        Box::pin(async move {
            let (tr, result) = attempt.await;
            (tr, result.map(|it| value.set(Some(it))))
        })
    }
}
