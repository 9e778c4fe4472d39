//! Waiting without asking.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use foundationdb::FdbError;
use futures::FutureExt;
use futures::future::BoxFuture;

/// Resolves when what it watches has changed: something became ready (`npush`) or was put aside for later (`nlater`), or
/// the queue was deleted; or when the queue was paused or goes on.
///
/// It works only if the transaction that made it committed; otherwise it resolves to that failure. Waking up
/// is a hint: look at the queue again. An error means the same, since the watch is gone. Dropping it frees
/// its place among the database's watches (10,000 unless an option says otherwise).
pub struct Watch(BoxFuture<'static, Result<(), FdbError>>);

impl Watch {
    /// Owns a watch future of the database's.
    pub(crate) fn new(future: impl Future<Output = Result<(), FdbError>> + Send + 'static) -> Watch {
        Watch(future.boxed())
    }
}

impl Future for Watch {
    type Output = Result<(), FdbError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll_unpin(cx)
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}
