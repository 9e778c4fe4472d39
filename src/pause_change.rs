//! Pausing and resuming a queue for all daemons: the change in the database, and its record in the audit trail.

use foundationdb::Transaction;
use kvqueue_queue::{Pause, Queue, QueueError};

use crate::audit::{AuditStore, Record};

/// A change of a queue's pause.
pub(crate) enum PauseChange {
    /// Pauses the queue. It replaces an existing pause.
    Pause(Pause),
    /// Ends the pause.
    Resume {
        /// Whether the freeze of a migration ends, too.
        also_frozen: bool,
    },
}

impl PauseChange {
    /// The record with the details of this change.
    pub(crate) fn audited(&self, record: Record) -> Record {
        match self {
            Self::Pause(Pause { reason, .. }) if reason.is_empty() => record,
            Self::Pause(Pause { reason, .. }) => record.with("reason", reason.as_str()),
            Self::Resume { also_frozen } => record.with("frozen", *also_frozen),
        }
    }

    /// Whether the change is allowed for a queue with this pause. Only `also_frozen` may end a
    /// migration's freeze.
    pub(crate) fn is_allowed(&self, before: Option<&Pause>) -> bool {
        matches!(self, Self::Resume { also_frozen: true }) || !before.is_some_and(|pause| pause.frozen)
    }

    /// Makes the change with its record, if [`Self::is_allowed`]. Returns the pause that the queue
    /// had.
    pub(crate) async fn write(
        &self,
        tr: &Transaction,
        queue: &Queue,
        audit: &AuditStore,
        record: &Record,
    ) -> Result<Option<Pause>, QueueError> {
        let before = queue.paused(tr).await?;
        if self.is_allowed(before.as_ref()) {
            match self {
                Self::Pause(pause) => queue.pause(tr, pause),
                Self::Resume { .. } => queue.resume(tr),
            }
            audit.write(tr, record);
        }
        Ok(before)
    }
}
