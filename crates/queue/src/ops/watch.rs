//! Watching for pushes, and for items put aside.

use foundationdb::Transaction;

use crate::keys::Space;
use crate::watch::Watch;

/// Watches `npush`, which every push changes and no pop does.
pub(crate) fn watch(space: &Space, tr: &Transaction) -> Watch {
    Watch::new(tr.watch(&space.npush))
}

/// Watches `nlater`, which every item put aside changes, and no sweep does.
pub(crate) fn watch_later(space: &Space, tr: &Transaction) -> Watch {
    Watch::new(tr.watch(&space.nlater))
}
