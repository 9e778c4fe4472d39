//! Ending a session.

use foundationdb::{Database, Transaction};

use super::Session;
use super::request::Handed;
use crate::error::QueueError;
use crate::item::Item;
use crate::ops::token;
use crate::retry::{Retry, RetryError};

impl Session {
    /// Ends the session and clears its token slot. A session that is only dropped leaves the slot to
    /// [`sweep_tokens`](crate::sweep_tokens).
    ///
    /// What a take on a lease may have got whose outcome stayed unknown is given back, and a request to be served is taken back.
    ///
    /// Returns the items that a take had removed which then failed or was dropped, and that no later take returned. They
    /// have left the queue; there are none where every take was seen through. If closing fails they are lost.
    pub async fn close(mut self, db: &Database) -> Result<Vec<Item>, RetryError> {
        if self.attempt == 0 {
            return Ok(Vec::new());
        }
        let (mut retry, mut tr) = Retry::begin(db, &self.policy)?;
        loop {
            let prepared = self.prepare_close(&tr).await;
            tr = match prepared {
                Err(error) => retry.after_body(tr, error).await?,
                Ok(handed) => match tr.commit().await {
                    Ok(committed) if handed == Handed::Part => retry.go_on(committed)?,
                    Ok(_committed) => return Ok(self.recovered.into()),
                    Err(error) => retry.after_commit(error).await?,
                },
            };
        }
    }

    /// Clearing may be repeated: what the slot said before is resolved by the first attempt that read it.
    async fn prepare_close(&mut self, tr: &Transaction) -> Result<Handed, QueueError> {
        self.resolve(tr).await?;
        let handed = self.hand_back(tr).await?;
        token::clear(self.queue.space(), tr, self.id)?;
        Ok(handed)
    }
}
