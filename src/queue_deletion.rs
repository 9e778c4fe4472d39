//! Deleting a whole queue, by the command line and HTTP.

use std::cell::Cell;

use foundationdb::Transaction;
use kvqueue_queue::{Counts, Queue, QueueError};

use crate::audit::{AuditStore, Record};

/// The deletion of a queue in a transaction that may run more than once.
///
/// If the outcome of a commit is unknown, the transaction runs again. It then finds nothing, if that commit has
/// succeeded, so the counts of the earlier attempt are the answer.
pub(crate) struct QueueDeletion<'a> {
    queue: &'a Queue,
    audit: &'a AuditStore,
    record: &'a Record,
    earlier: Cell<Option<Counts>>,
}

impl<'a> QueueDeletion<'a> {
    pub(crate) fn new(queue: &'a Queue, audit: &'a AuditStore, record: &'a Record) -> Self {
        Self { queue, audit, record, earlier: Cell::new(None) }
    }

    /// Deletes the queue, and records this in the audit trail. Returns what the queue had.
    pub(crate) async fn write(&self, tr: &Transaction) -> Result<Counts, QueueError> {
        let counts = self.queue.delete_counted(tr).await?;
        self.audit.write(tr, self.record);
        let counts = self.earlier.get().filter(|_| is_nothing(&counts)).unwrap_or(counts);
        self.earlier.set(Some(counts));
        Ok(counts)
    }
}

/// Whether these are the counts of a queue that is not there.
fn is_nothing(counts: &Counts) -> bool {
    let pushed = counts.pushed.filter(|pushed| *pushed > 0);
    Counts { pushed, ..*counts } == Counts::default()
}

#[cfg(test)]
mod tests {
    use kvqueue_queue::{RetryPolicy, Session};

    use super::*;
    use crate::{
        audit::{Action, Who},
        testing::TestDatabase,
    };

    #[tokio::test]
    async fn a_deletion_that_runs_again_after_its_commit_has_the_counts_of_the_first_time() {
        let db = TestDatabase::new().unwrap();
        let queue = Queue::new(b"", b"q").unwrap();
        Session::new(queue.clone()).with_policy(RetryPolicy::default()).push(&db, &["a", "b"]).await.unwrap();
        let (audit, record) = (AuditStore::new(b""), Record::new(Action::QueueDelete, Who::Operator));
        let deletion = QueueDeletion::new(&queue, &audit, &record);
        for _ in 0..3 {
            let tr = db.create_trx().unwrap();
            assert_eq!(deletion.write(&tr).await.unwrap().ready, 2);
            tr.commit().await.unwrap();
        }
    }

    #[test]
    fn a_queue_without_items_and_pushes_is_nothing() {
        assert!(is_nothing(&Counts::default()));
        assert!(is_nothing(&Counts { pushed: Some(0), ..Counts::default() }));
        assert!(!is_nothing(&Counts { pushed: Some(1), ..Counts::default() }));
        assert!(!is_nothing(&Counts { dead: 1, pushed: Some(0), ..Counts::default() }));
    }
}
