//! Stores how long a queue's ended items are kept, and by which attributes they are indexed, as the configuration says, for the sweepers and for programs that do not have the
//! configuration.

use std::time::Duration;

use foundationdb::Transaction;
use kvqueue_queue::{HistoryIndex, Queue, QueueError, retry};
use tokio::{sync::watch, time::sleep};

use super::POLICY;
use crate::{
    base::{causes::with_causes, clock},
    config::{KeptHistory, duration},
    consumer::runtime::NamedQueue,
};

/// How long to wait after a failure.
const PAUSE: Duration = Duration::from_secs(10);

/// How long to wait until the setting is looked at again: it is deleted with its queue.
const AGAIN: Duration = Duration::from_mins(5);

/// Follows the configuration, until the sweeper of the queue is dropped.
pub(super) async fn keep(queue: &NamedQueue, mut wanted: watch::Receiver<Option<KeptHistory>>) {
    let mut only_if_missing = false;
    loop {
        let to = wanted.borrow_and_update().clone();
        let done = match &to {
            Some(to) => store(queue, to, only_if_missing).await,
            None => true,
        };
        // Daemons that are configured differently do not overwrite each other's setting again and again.
        only_if_missing |= done;
        tokio::select! {
            changed = wanted.changed() => match changed {
                Ok(()) => only_if_missing = false,
                Err(_) => return,
            },
            () = sleep(if done { AGAIN } else { PAUSE }), if to.is_some() => {}
        }
    }
}

/// Returns whether it is done.
async fn store(queue: &NamedQueue, kept: &KeptHistory, only_if_missing: bool) -> bool {
    let NamedQueue { db, name, .. } = queue;
    let stored = retry::run(db, &POLICY, |tr| async move {
        let changed = set(&queue.queue, &tr, kept, only_if_missing).await;
        (tr, changed)
    });
    match stored.await {
        Ok(done) if done.value => {
            tracing::info!(
                event = "history_set",
                queue = %name,
                history = duration::format(kept.time),
                index = kept.index.names().collect::<Vec<_>>().join(", "),
                "how long ended items are kept, and by which attributes they are indexed, is set as configured"
            );
            true
        }
        Ok(_) => true,
        Err(error) => {
            tracing::warn!(
                event = "history_not_set",
                queue = %name,
                error = with_causes(&error),
                "cannot store how long ended items are kept, and by which attributes they are indexed; retrying later"
            );
            false
        }
    }
}

/// Writes what is kept, or only those parts of it that the queue has no setting for: a queue loses them when it is deleted, and the index when an older
/// version clears ended items. Returns whether that is a change.
async fn set(
    queue: &Queue,
    tr: &Transaction,
    kept: &KeptHistory,
    only_if_missing: bool,
) -> Result<bool, QueueError> {
    let has_time = only_if_missing && queue.history_kept(tr).await?.is_some();
    let is_time_new = !has_time && queue.keep_history(tr, kept.time).await?;
    let has_index = only_if_missing && queue.history_index(tr).await? != HistoryIndex::default();
    let is_index_new = !has_index && queue.index_history(tr, &kept.index, clock::now()).await?;
    Ok(is_time_new || is_index_new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestDatabase;

    #[tokio::test]
    async fn missing_settings_are_stored_and_others_are_left_alone() {
        let db = TestDatabase::new().unwrap();
        let queue = Queue::new(b"", b"q").unwrap();
        let tr = db.create_trx().unwrap();
        let kept = |hours, names: &[&str]| KeptHistory {
            time: Duration::from_hours(hours),
            index: HistoryIndex::new(names.iter().copied()).unwrap(),
        };
        let stored = async || {
            let index = queue.history_index(&tr).await.unwrap();
            (queue.history_kept(&tr).await.unwrap(), index.names().map(str::to_owned).collect::<Vec<_>>())
        };
        let (ours, theirs) = (kept(24, &["a"]), kept(48, &["b"]));
        assert!(set(&queue, &tr, &ours, true).await.unwrap());
        assert!(!set(&queue, &tr, &ours, false).await.unwrap());
        // Another daemon is configured differently.
        assert!(!set(&queue, &tr, &theirs, true).await.unwrap());
        assert!(set(&queue, &tr, &theirs, false).await.unwrap());
        assert!(!set(&queue, &tr, &ours, true).await.unwrap());
        assert_eq!(stored().await, (Some(theirs.time), vec!["b".to_owned()]));
        // An older version removes the index.
        queue.index_history(&tr, &HistoryIndex::default(), clock::now()).await.unwrap();
        assert!(set(&queue, &tr, &ours, true).await.unwrap());
        assert_eq!(stored().await, (Some(theirs.time), vec!["a".to_owned()]));
        queue.delete(&tr);
        assert!(set(&queue, &tr, &ours, true).await.unwrap());
        assert_eq!(stored().await, (Some(ours.time), vec!["a".to_owned()]));
    }
}
