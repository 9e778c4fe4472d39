//! Waiting without asking.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use foundationdb::{Database, FdbError, Transaction};
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::model::codes::NOT_COMMITTED;
use mutant::mutant;

/// Resolves when what it watches has changed: something became ready (`npush`) or was put aside for later (`nlater`), or
/// the queue was deleted; or when the queue was paused or goes on. The watch of a fetch that found as many items running as the queue's limit allows resolves when
/// one of them ends, or the limit changes.
///
/// It works only if the transaction that made it committed; otherwise it resolves to that failure. Waking up
/// is a hint: look at the queue again. An error means the same, since the watch is gone. Dropping it frees
/// its place among the database's watches (10,000 unless an option says otherwise).
///
/// If the database refuses the watch, for example because there are too many (1032), the watch of a session's take or of a sweep resolves to the
/// error only after a pause of about half a second: a loop that takes or sweeps again at once does not spin. Watches that
/// [`Queue::watch`](crate::Queue::watch), [`Queue::consume_k`](crate::Queue::consume_k) and [`Queue::watch_pause`](crate::Queue::watch_pause)
/// return resolve to it at once. The caller owns their transaction, and has to pause itself.
pub struct Watch(BoxFuture<'static, Result<(), FdbError>>);

impl Watch {
    /// Owns a watch future of the database's.
    pub(crate) fn new(future: impl Future<Output = Result<(), FdbError>> + Send + 'static) -> Watch {
        Watch(future.boxed())
    }

    /// The same watch, which pauses before it resolves to an error.
    pub(crate) fn paced(self, db: &Database) -> Watch {
        let Ok(pacer) = db.create_trx() else { return self };
        Watch::new(async move {
            let fired = self.await;
            if fired.is_err() && !mutant("watch-unpaced") {
                pause(pacer).await;
            }
            fired
        })
    }
}

/// How many times the database's back-off, which begins with up to 10 ms and doubles each time.
const PAUSES: usize = 7;

async fn pause(mut pacer: Transaction) {
    for _ in 0..PAUSES {
        // A conflict is an error that every transaction is retried after.
        match pacer.on_error(FdbError::from_code(NOT_COMMITTED)).await {
            Ok(next) => pacer = next,
            Err(_) => return,
        }
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
