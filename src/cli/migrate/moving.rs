//! One queue on its way: what all phases have, and the step that each transaction at the target is.

use foundationdb::Transaction;
use kvqueue_queue::{
    Queue,
    migration::{self, Page, Record, RunId},
};

use super::{ends::Ends, error::MigrateError, report::Report};

/// A queue that is being moved.
pub(super) struct Moving<'m> {
    pub(super) ends: &'m Ends,
    pub(super) queue: Queue,
    pub(super) run: RunId,
    /// A version of the source's at which the queue was frozen there.
    pub(super) frozen_by: u64,
    pub(super) report: &'m Report,
}

/// The state of the target that a step found.
enum Step {
    Done,
    /// Somebody else moved the record on.
    Overtaken,
    /// Somebody else counts there.
    Used,
}

impl Moving<'_> {
    /// The queue's name, for people.
    pub(super) fn name(&self) -> String {
        printable(self.queue.name())
    }

    /// A page of the source's rows.
    pub(super) async fn source_page(&self, behind: &[u8]) -> Result<Page, MigrateError> {
        self.ends.from.transact(async |tr| migration::page(&self.queue, tr, behind).await).await
    }

    /// A page of the target's rows.
    pub(super) async fn target_page(&self, behind: &[u8]) -> Result<Page, MigrateError> {
        self.ends.to.transact(async |tr| migration::page(&self.queue, tr, behind).await).await
    }

    /// Moves the record at the target on from `before` to `after`, and writes something with it.
    ///
    /// The record is read in it: one migration works on a queue at a time, and an attempt of unknown outcome is found out. The counters are
    /// read too: they are set at the end, so an earlier push or fetch there is noticed.
    pub(super) async fn step(
        &self,
        before: &Record,
        after: &Record,
        write: impl Fn(&Transaction),
    ) -> Result<(), MigrateError> {
        self.any_step(before, after, true, write).await
    }

    /// The same where it does no harm that others use the queue there: no row is written.
    pub(super) async fn step_among_others(
        &self,
        before: &Record,
        after: &Record,
        write: impl Fn(&Transaction),
    ) -> Result<(), MigrateError> {
        self.any_step(before, after, false, write).await
    }

    async fn any_step(
        &self,
        before: &Record,
        after: &Record,
        is_alone: bool,
        write: impl Fn(&Transaction),
    ) -> Result<(), MigrateError> {
        let step = self.ends.to.transact(async |tr| {
            let now = migration::record(&self.queue, tr).await?;
            if now.as_ref() != Some(before) {
                let is_done = now.as_ref() == Some(after);
                return Ok(if is_done { Step::Done } else { Step::Overtaken });
            }
            if is_alone && migration::counters(&self.queue, tr, false).await? != [0; 6] {
                return Ok(Step::Used);
            }
            write(tr);
            migration::put_record(&self.queue, tr, after);
            Ok(Step::Done)
        });
        match step.await? {
            Step::Done => Ok(()),
            Step::Overtaken => Err(MigrateError::Busy { queue: self.name() }),
            Step::Used => Err(MigrateError::TargetUsed { queue: self.name() }),
        }
    }
}

/// A queue's name between quotes.
pub(super) fn printable(name: &[u8]) -> String {
    match std::str::from_utf8(name) {
        Ok(text) => format!("{text:?}"),
        Err(_) => format!("\"{}\"", name.escape_ascii()),
    }
}
