//! Waiting for the end of an item, by watches. It costs nothing for the program that ends it.

use foundationdb::Transaction;

use crate::client::queue::Queue;
use crate::model::error::QueueError;
use crate::model::id::ItemId;
use crate::ops::wait;
use crate::ops::wait::{ItemPlace, ItemWatch};

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
