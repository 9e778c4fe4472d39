//! Pausing a queue for all who take from it.

use foundationdb::Transaction;

use crate::keys::Space;
use crate::model::error::QueueError;
use crate::model::pause::Pause;
use crate::run::watch::Watch;
use mutant::mutant;

/// Pauses, whether or not it is paused already.
pub(crate) fn pause(space: &Space, tr: &Transaction, pause: &Pause) {
    tr.set(&space.pause, &pause.encode());
}

/// Ends a pause, if there is one.
pub(crate) fn resume(space: &Space, tr: &Transaction) {
    tr.clear(&space.pause);
}

/// Reads the pause, with a read conflict: the transaction fails at commit if the pause changes
/// before that.
pub(crate) async fn paused(space: &Space, tr: &Transaction) -> Result<Option<Pause>, QueueError> {
    Ok(tr.get(&space.pause, false).await?.map(|value| Pause::decode(&value)))
}

/// For how many versions (10^6 a second) a session relies on what it has read: that its queue is not frozen.
///
/// So a push of a busy session does not read the record. [`migration::fence`](crate::client::migration::fence) waits for as long after the
/// freeze, and makes pushes that are under way fail.
pub(crate) const FREEZE_KNOWN: u64 = 100_000;

/// Makes sure that the queue is not frozen, and that the transaction fails at commit if the queue is frozen before that.
pub(crate) async fn check_unfrozen(space: &Space, tr: &Transaction) -> Result<(), QueueError> {
    check_unfrozen_at(tr, &space.pause, &space.name).await
}

/// The same of the queue of this name, whose pause has this key.
pub(crate) async fn check_unfrozen_at(tr: &Transaction, key: &[u8], name: &[u8]) -> Result<(), QueueError> {
    match tr.get(key, false).await?.map(|value| Pause::decode(&value)) {
        Some(pause) if pause.frozen && !mutant("frozen-queue-accepts") => {
            Err(QueueError::Frozen { queue: name.escape_ascii().to_string(), pause })
        }
        _ => Ok(()),
    }
}

/// Watches the record.
pub(crate) fn watch(space: &Space, tr: &Transaction) -> Watch {
    Watch::new(tr.watch(&space.pause))
}
