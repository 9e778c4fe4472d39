//! Watching for pushes.

use foundationdb::Transaction;

use crate::keys::Space;
use crate::watch::Watch;

/// Watches `npush`, which every push changes and no pop does.
pub(crate) fn watch(space: &Space, tr: &Transaction) -> Watch {
    Watch::new(tr.watch(&space.npush))
}
