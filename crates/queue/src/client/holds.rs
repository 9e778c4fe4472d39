//! Keys of a keyed queue that are held: listing them, and letting them go on.

use std::num::NonZeroUsize;

use foundationdb::Transaction;

use crate::client::queue::Queue;
use crate::keys::keyed::KeyedSpace;
use crate::model::holds::HeldKey;
use crate::model::limits::LimitError;
use crate::ops::keyed::holds;

impl Queue {
    /// Keys that are held ([`Limits::ordered`](crate::Limits::ordered), [`Limits::blocks_on_dead`](crate::Limits::blocks_on_dead)), in
    /// the order of their bytes: those behind `after`, or the first. Reads up to `k` holds. A key may have several, so there may be fewer keys; there is at
    /// least one, if there is one behind `after`. A snapshot read: it conflicts with nothing.
    ///
    /// # Errors
    /// [`LimitError::NoKeys`], if the queue is not keyed.
    pub async fn held_keys(
        &self,
        tr: &Transaction,
        after: Option<&[u8]>,
        k: NonZeroUsize,
    ) -> Result<Vec<HeldKey>, LimitError> {
        Ok(holds::list(self.keyed()?, tr, after, k).await?)
    }

    /// Lets a held key go on: its next ready item is served. A dead letter that it waited for stays a dead letter; a scheduled item
    /// runs at its time, perhaps after items that were pushed later. Takes effect with the commit of `tr`. Returns whether the key was held.
    ///
    /// # Errors
    /// [`LimitError::NoKeys`], if the queue is not keyed; [`LimitError::Queue`], if it is frozen.
    pub async fn unblock(&self, tr: &Transaction, key: &[u8]) -> Result<bool, LimitError> {
        let keyed = self.keyed()?;
        self.check_unfrozen(tr).await?;
        Ok(holds::end_all(keyed, tr, key).await?)
    }

    /// How many dead letters hold their keys, until an operator acts. Almost always this is the number of blocked keys: a key has several such
    /// dead letters only if several of its items ran when it became ordered. A snapshot read of one key.
    ///
    /// # Errors
    /// [`LimitError::NoKeys`], if the queue is not keyed.
    pub async fn blocked_keys(&self, tr: &Transaction) -> Result<u64, LimitError> {
        Ok(holds::blocked(self.keyed()?, tr).await?)
    }

    fn keyed(&self) -> Result<&KeyedSpace, LimitError> {
        self.space().keyed.as_deref().ok_or_else(|| LimitError::NoKeys { kind: self.kind() })
    }
}
