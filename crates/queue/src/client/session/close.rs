//! Ending a session.

use foundationdb::{Database, FdbError, Transaction, TransactionCommitted};

use super::Session;
use super::request::Handed;
use crate::model::error::QueueError;
use crate::model::item::Item;
use crate::model::retry_error::RetryError;
use crate::run::operation::{Operation, Step, complete};
use crate::run::token;

impl Session {
    /// Ends the session and clears its token slot. A session that is only dropped leaves the slot to
    /// [`sweep_tokens`](crate::sweep_tokens).
    ///
    /// If a fetch has an unknown outcome, its items are released. A request to be served is withdrawn.
    ///
    /// Returns the items that a take removed before it failed or was dropped, and that no later take returned. They
    /// have left the queue. If closing fails, they are lost.
    pub async fn close(mut self, db: &Database) -> Result<Vec<Item>, RetryError> {
        if self.attempt == 0 {
            return Ok(Vec::new());
        }
        let policy = self.policy;
        complete(db, &policy, &mut Closing { session: &mut self, handed: Handed::Part }).await?;
        Ok(self.recovered.into())
    }
}

/// The transactions that end a session.
struct Closing<'a> {
    session: &'a mut Session,
    /// How much the transaction under way releases.
    handed: Handed,
}

impl Operation for Closing<'_> {
    type Output = ();

    /// An attempt may be repeated: the first that reads the slot resolves the attempts of unknown outcome.
    async fn prepare(&mut self, tr: &Transaction) -> Result<Step<()>, QueueError> {
        self.session.resolve(tr).await?;
        self.handed = self.session.hand_back(tr).await?;
        token::clear(self.session.queue.space(), tr, self.session.id)?;
        Ok(Step::Commit)
    }

    fn committed(&mut self, _: &TransactionCommitted) -> Option<()> {
        (self.handed == Handed::All).then_some(())
    }

    fn failed(&mut self, _: FdbError) {}
}
