//! Waiting for the end of an item, by watches. It costs nothing for the program that ends it.

use foundationdb::Transaction;

use crate::error::QueueError;
use crate::id::ItemId;
use crate::keys::leases::LeaseId;
use crate::ops::wait;
use crate::queue::Queue;
use crate::watch::Watch;

/// What became of an item that is waited for.
#[derive(Debug)]
pub enum ItemWatch {
    /// It has not ended.
    Open {
        /// Resolves when the item may have moved or ended, or its lease has changed. As of all watches, waking up is a hint.
        watch: Watch,
        /// Where it is now, for the next look.
        place: ItemPlace,
    },
    /// It is a dead letter.
    Dead,
    /// The queue has no item of this id. If it had one before, the item has ended, or was moved to another queue.
    Gone,
}

/// Where an item was when it was looked for: the next look begins there, so that it need not search all leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ItemPlace(pub(crate) Option<(LeaseId, usize)>);

impl ItemPlace {
    /// The lease that it is on, if it is running.
    pub fn lease(&self) -> Option<LeaseId> {
        self.0.map(|(lease, _)| lease)
    }
}

impl Queue {
    /// Looks for an item, and watches the place where it is: its row, or the header of its lease, which changes with each extension, too. The
    /// watch works if `tr` commits, which it can do without having written anything. `place`: where an earlier look has found the item.
    ///
    /// An item that is not running is found by a few reads, and so is a running one that is still on the lease of the earlier look.
    /// Otherwise all leases are read. Use a transaction that writes nothing, since a watch makes it conflict with changes of the key. The watch is one
    /// of the database's watches (10,000 for each client unless an option says otherwise), and the caller bounds how many there are.
    ///
    /// # Errors
    /// [`QueueError::TooMuchRunning`], if the leases have more than 100 MB.
    pub async fn watch_item(
        &self,
        tr: &Transaction,
        id: &ItemId,
        place: Option<ItemPlace>,
    ) -> Result<ItemWatch, QueueError> {
        wait::watch(self.space(), tr, id, place).await
    }
}
