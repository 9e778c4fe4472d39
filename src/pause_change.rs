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

    /// Whether it leaves everything as it is: the queue is paused for the same reason, or not paused.
    fn is_repeated(&self, before: Option<&Pause>) -> bool {
        match self {
            Self::Pause(pause) => before.is_some_and(|it| !it.frozen && it.reason == pause.reason),
            Self::Resume { .. } => before.is_none(),
        }
    }

    /// Makes the change with its record, if [`Self::is_allowed`] and it changes something: who repeats a pause again and again does not fill the audit trail. Returns the pause that the queue
    /// had.
    pub(crate) async fn write(
        &self,
        tr: &Transaction,
        queue: &Queue,
        audit: &AuditStore,
        record: &Record,
    ) -> Result<Option<Pause>, QueueError> {
        let before = queue.paused(tr).await?;
        if self.is_allowed(before.as_ref()) && !self.is_repeated(before.as_ref()) {
            match self {
                Self::Pause(pause) => queue.pause(tr, pause),
                Self::Resume { .. } => queue.resume(tr),
            }
            audit.write(tr, record);
        }
        Ok(before)
    }
}

#[cfg(test)]
mod tests {
    use kvqueue_queue::{RetryPolicy, retry};

    use super::*;
    use crate::{
        audit::{Action, Filter, Who},
        testing::TestDatabase,
    };

    #[tokio::test]
    async fn a_pause_that_is_repeated_leaves_one_record_and_the_time_of_the_first() {
        let (db, queue, audit) =
            (TestDatabase::new().unwrap(), &Queue::new(b"", b"q").unwrap(), &AuditStore::new(b""));
        let pause =
            |at, reason: &str| PauseChange::Pause(Pause { at, reason: reason.to_owned(), frozen: false });
        let resume = || PauseChange::Resume { also_frozen: false };
        let changes =
            [resume(), pause(1, "a"), pause(2, "a"), pause(3, "b"), pause(4, "b"), resume(), resume()];
        let (mut sinces, policy) = (Vec::new(), RetryPolicy::default());
        for change in &changes {
            let record = &Record::new(Action::QueuePause, Who::Operator);
            let written = retry::run(&db, &policy, |tr| async move {
                let before = change.write(&tr, queue, audit, record).await;
                (tr, before)
            });
            sinces.push(written.await.unwrap().value.map(|before| before.at));
        }
        assert_eq!(sinces, [None, None, Some(1), Some(1), Some(3), Some(3), None]);
        let tr = db.create_trx().unwrap();
        assert_eq!(audit.page(&tr, None, &Filter::default(), 10).await.unwrap().records.len(), 3);
    }
}
