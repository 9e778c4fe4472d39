//! Looking at items without removing them.

use std::num::NonZeroUsize;

use foundationdb::Transaction;

use crate::error::QueueError;
use crate::item::Item;
use crate::keys::Space;
use crate::ops::scan::{Isolation, front};

/// All items.
pub(crate) async fn list(space: &Space, tr: &Transaction) -> Result<Vec<Item>, QueueError> {
    front(space, tr, None, Isolation::Serializable).await
}

/// The first `k` items, without a conflict with anyone who pops them.
pub(crate) async fn peek_k(
    space: &Space,
    tr: &Transaction,
    k: NonZeroUsize,
) -> Result<Vec<Item>, QueueError> {
    front(space, tr, Some(k), Isolation::Snapshot).await
}
