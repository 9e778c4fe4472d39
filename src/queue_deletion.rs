//! Deleting a whole queue, by the command line and HTTP.

use std::{cell::Cell, num::NonZeroUsize};

use foundationdb::Transaction;
use kvqueue_queue::{Counts, Queue, QueueError};

use crate::audit::{AuditStore, Record};

/// How many schedules are listed at a time.
const PAGE: NonZeroUsize = NonZeroUsize::new(1_000).expect("it is not 0");

/// What a deleted queue had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deleted {
    pub(crate) counts: Counts,
    pub(crate) schedules: usize,
}

/// The deletion of a queue in a transaction that may run more than once.
///
/// If the outcome of a commit is unknown, the transaction runs again. It then finds nothing, if that commit has
/// succeeded, so the counts of the earlier attempt are the answer.
pub(crate) struct QueueDeletion<'a> {
    queue: &'a Queue,
    audit: &'a AuditStore,
    record: &'a Record,
    earlier: Cell<Option<Deleted>>,
}

impl<'a> QueueDeletion<'a> {
    pub(crate) fn new(queue: &'a Queue, audit: &'a AuditStore, record: &'a Record) -> Self {
        Self { queue, audit, record, earlier: Cell::new(None) }
    }

    /// Deletes the queue, and records this in the audit trail. Returns what the queue had.
    pub(crate) async fn write(&self, tr: &Transaction) -> Result<Deleted, QueueError> {
        // Before they are cleared.
        let schedules = self.schedules(tr).await?;
        let counts = self.queue.delete_counted(tr).await?;
        self.audit.write(tr, self.record);
        let deleted = Deleted { counts, schedules };
        let deleted = self.earlier.get().filter(|_| is_nothing(&deleted)).unwrap_or(deleted);
        self.earlier.set(Some(deleted));
        Ok(deleted)
    }

    async fn schedules(&self, tr: &Transaction) -> Result<usize, QueueError> {
        let (mut count, mut last) = (0, None::<String>);
        loop {
            let page = self.queue.schedules_after(tr, last.as_deref(), PAGE).await?;
            count += page.len();
            match page.into_iter().next_back() {
                Some(view) => last = Some(view.name),
                None => return Ok(count),
            }
        }
    }
}

/// Whether these are the counts of a queue that is not there.
fn is_nothing(Deleted { counts, schedules }: &Deleted) -> bool {
    let pushed = counts.pushed.filter(|pushed| *pushed > 0);
    *schedules == 0 && Counts { pushed, ..*counts } == Counts::default()
}

#[cfg(test)]
mod tests {
    use kvqueue_queue::{
        NewItem, RetryPolicy, Session,
        schedule::{Calendar, Schedule},
    };

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
        let hourly = Calendar::cron("@hourly", "UTC").unwrap();
        let tr = db.create_trx().unwrap();
        for name in ["a", "b", "c"] {
            let schedule = Schedule::new(name, hourly.clone(), NewItem::new("x"));
            queue.put_schedule(&tr, &schedule, 0).await.unwrap();
        }
        tr.commit().await.unwrap();
        let (audit, record) = (AuditStore::new(b""), Record::new(Action::QueueDelete, Who::Operator));
        let deletion = QueueDeletion::new(&queue, &audit, &record);
        for _ in 0..3 {
            let tr = db.create_trx().unwrap();
            let Deleted { counts, schedules } = deletion.write(&tr).await.unwrap();
            assert_eq!((counts.ready, schedules), (2, 3));
            tr.commit().await.unwrap();
        }
    }

    #[test]
    fn a_queue_without_items_and_pushes_and_schedules_is_nothing() {
        let is_nothing = |counts, schedules| is_nothing(&Deleted { counts, schedules });
        assert!(is_nothing(Counts::default(), 0));
        assert!(!is_nothing(Counts::default(), 1));
        assert!(is_nothing(Counts { pushed: Some(0), ..Counts::default() }, 0));
        assert!(!is_nothing(Counts { pushed: Some(1), ..Counts::default() }, 0));
        assert!(!is_nothing(Counts { dead: 1, pushed: Some(0), ..Counts::default() }, 0));
    }
}
