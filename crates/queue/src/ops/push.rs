//! Adding items at the end.

use std::sync::Arc;

use foundationdb::Transaction;
use foundationdb::options::MutationType;

use crate::error::PushError;
use crate::keys::{Space, counters, items};
use crate::{MAX_PUSHES, MAX_VALUE};

/// Pushes to one queue in one transaction, and numbers the pushes.
#[derive(Debug)]
pub struct Pusher<'t> {
    space: Arc<Space>,
    tr: &'t Transaction,
    pushed: usize,
}

impl<'t> Pusher<'t> {
    pub(crate) fn new(space: Arc<Space>, tr: &'t Transaction) -> Pusher<'t> {
        Pusher { space, tr, pushed: 0 }
    }

    /// Adds an item with this payload behind all others when the transaction commits.
    ///
    /// Writes without reading, so pushes conflict with nothing. Until the commit the item has no stamp: reading the
    /// queue's items in the same transaction fails with 1036.
    ///
    /// # Errors
    /// [`PushError::ValueTooLarge`] and [`PushError::TooManyItems`]; the transaction is as it was before.
    pub fn push(&mut self, payload: &[u8]) -> Result<(), PushError> {
        check_payload(payload)?;
        let user = u16::try_from(self.pushed).map_err(|_| PushError::TooManyItems { limit: MAX_PUSHES })?;
        put(&self.space, self.tr, user, payload);
        count(&self.space, self.tr, 1);
        self.pushed += 1;
        Ok(())
    }

    /// How many items this pusher added.
    pub fn pushed(&self) -> usize {
        self.pushed
    }
}

/// Whether a payload can be stored.
pub(crate) fn check_payload(payload: &[u8]) -> Result<(), PushError> {
    match payload.len() {
        len if len > MAX_VALUE => Err(PushError::ValueTooLarge { len, limit: MAX_VALUE }),
        _ => Ok(()),
    }
}

/// Writes one item, without counting it.
pub(crate) fn put(space: &Space, tr: &Transaction, user: u16, payload: &[u8]) {
    tr.atomic_op(&items::pending(&space.ready, user), payload, MutationType::SetVersionstampedKey);
}

/// Counts `n` items as pushed, which wakes whoever watches.
pub(crate) fn count(space: &Space, tr: &Transaction, n: usize) {
    tr.atomic_op(&space.npush, &counters::increment(n), MutationType::Add);
}
