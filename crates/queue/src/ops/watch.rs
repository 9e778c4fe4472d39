//! Watching for pushes, and for items put aside.

use foundationdb::Transaction;

use crate::keys::{Counter, Space};
use crate::run::watch::Watch;

/// Watches `npush`, which every push changes and no pop does; in a keyed queue `nactive`, which changes when a key becomes active.
pub(crate) fn watch(space: &Space, tr: &Transaction) -> Watch {
    let key = space.keyed.as_ref().map_or(space.counter(Counter::Push), |keyed| &keyed.nactive);
    Watch::new(tr.watch(key))
}

/// Watches `nlater`, which every item put aside changes, and no sweep does.
pub(crate) fn watch_later(space: &Space, tr: &Transaction) -> Watch {
    Watch::new(tr.watch(space.counter(Counter::Later)))
}
