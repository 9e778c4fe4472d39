//! How a queue is divided: reading and changing it.

use foundationdb::Transaction;

use crate::client::queue::Queue;
use crate::model::error::QueueError;
use crate::model::partitions::Partitions;
use crate::ops;

impl Queue {
    /// How the queue is divided; `None` for a queue that never was. One key, a snapshot read.
    ///
    /// # Errors
    /// [`QueueError::Unreadable`] if a later version of kvqueue has divided it in a way that this one does not know.
    pub async fn partitions(&self, tr: &Transaction) -> Result<Option<Partitions>, QueueError> {
        let record = ops::partitions::read(self.space(), tr).await?;
        Ok(record.map(|record| record.settings()))
    }

    /// Divides the queue, or changes how it is divided. Returns whether that is a change.
    ///
    /// Producers and consumers may go on meanwhile. Items stay where they are: those in partitions that pushes no longer use are fetched
    /// like all others. Programs that know nothing of partitions use partition 0 only. Earlier versions of kvqueue are such programs, and
    /// cannot read the ids of the other items.
    ///
    /// # Errors
    /// [`QueueError::NotDivisible`] if it is not a FIFO queue.
    pub async fn set_partitions(&self, tr: &Transaction, to: Partitions) -> Result<bool, QueueError> {
        ops::partitions::set(self.space(), tr, to).await
    }
}
