//! Stores how long a queue's ended items are kept, and by which attributes they are indexed, as the configuration says, for the sweepers and for programs that do not have the
//! configuration.

use std::time::Duration;

use kvqueue_queue::{HistoryIndex, retry};
use tokio::{sync::watch, time::sleep};

use super::POLICY;
use crate::{
    causes::with_causes,
    config::duration,
    consumer::{clock, runtime::NamedQueue},
};

/// How long to wait after a failure.
const PAUSE: Duration = Duration::from_secs(10);

/// How long to wait until the setting is looked at again: it is deleted with its queue.
const AGAIN: Duration = Duration::from_mins(5);

/// What is kept of the ended items of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeptHistory {
    /// How long.
    pub(crate) time: Duration,
    pub(crate) index: HistoryIndex,
}

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
        let changed = async {
            let queue = &queue.queue;
            let has_time = only_if_missing && queue.history_kept(&tr).await?.is_some();
            let is_time_new = !has_time && queue.keep_history(&tr, kept.time).await?;
            let has_index = only_if_missing && queue.history_index(&tr).await? != HistoryIndex::default();
            let is_index_new = !has_index && queue.index_history(&tr, &kept.index, clock::now()).await?;
            Ok(is_time_new || is_index_new)
        };
        let changed = changed.await;
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
