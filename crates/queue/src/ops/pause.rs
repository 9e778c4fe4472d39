//! Pausing a queue for all who take from it.

use foundationdb::Transaction;

use crate::error::QueueError;
use crate::keys::Space;
use crate::keys::pause::Pause;
use crate::watch::Watch;

/// Pauses, whether or not it is paused already.
pub(crate) fn pause(space: &Space, tr: &Transaction, pause: &Pause) {
    tr.set(&space.pause, &pause.encode());
}

/// Ends a pause, if there is one.
pub(crate) fn resume(space: &Space, tr: &Transaction) {
    tr.clear(&space.pause);
}

/// Looks without a conflict.
pub(crate) async fn paused(space: &Space, tr: &Transaction) -> Result<Option<Pause>, QueueError> {
    Ok(tr.get(&space.pause, true).await?.map(|value| Pause::decode(&value)))
}

/// Watches the record.
pub(crate) fn watch(space: &Space, tr: &Transaction) -> Watch {
    Watch::new(tr.watch(&space.pause))
}
