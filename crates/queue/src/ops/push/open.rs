//! Whether a pusher may push: its queue is not frozen, and no other pusher has pushed to it in the transaction.

use std::collections::BTreeSet;

use foundationdb::Transaction;
use futures::future::{try_join, try_join_all, try_join4};

use super::Entry;
use super::Pusher;
use super::deal;
use crate::keys::Space;
use crate::model::error::QueueError;
use crate::model::id_layout::key_element;
use crate::model::kind::Kind;
use crate::ops::kinds;
use crate::ops::push::first::check_first;
use crate::run::pause::check_unfrozen;

/// The checks that a pusher has made; each is made once in a transaction.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Checked {
    /// The queue is not frozen.
    pub(super) unfrozen: bool,
    /// No other pusher has added items in the transaction.
    items: bool,
    /// No other pusher has used an idempotency key in the transaction.
    operations: bool,
}

impl Checked {
    /// Of a pusher that is the only one.
    pub(super) const ALONE: Checked = Checked { unfrozen: false, items: true, operations: true };
}

impl Pusher<'_> {
    /// Checks what has not been checked yet, before anything is written.
    ///
    /// In a keyed queue pushers of different keys do not replace each other's items, so it is checked for each key.
    pub(super) async fn open(
        &mut self,
        with_operation: bool,
        entries: &[Entry<'_>],
    ) -> Result<(), QueueError> {
        let (space, tr, checked) = (&*self.space, self.tr, self.checked);
        // Pushes to a recipe's queue read which numbers there are, those of the transaction itself included.
        let items = !checked.items && space.kind == Kind::Fifo;
        let operations = !checked.operations && with_operation;
        let keys = self.unchecked_keys(entries);
        let others = async {
            if !checked.items {
                kinds::check_stamped(space, tr).await?;
            }
            let ready = check_first(space, tr, &space.ready, items);
            let aside = check_first(space, tr, &space.bodies, items);
            let operations = check_first(space, tr, &space.oplog, operations);
            try_join4(ready, aside, operations, check_keys(space, tr, &keys)).await.map(drop)
        };
        let checks = async {
            match (checked.unfrozen, items || operations || !keys.is_empty()) {
                (true, false) => Ok(()),
                (false, false) => check_queue(space, tr).await,
                (true, true) => others.await,
                (false, true) => try_join(check_queue(space, tr), others).await.map(drop),
            }
        };
        match self.deal {
            Some(_) => checks.await?,
            None => {
                let (deal, ()) = try_join(deal::read(space, tr, self.turn), checks).await?;
                if items {
                    deal::check_alone(space, tr, deal).await?;
                }
                self.deal = Some(deal);
            }
        }
        self.checked = Checked {
            unfrozen: true,
            items: checked.items || items,
            operations: checked.operations || operations,
        };
        self.checked_keys.extend(keys);
        Ok(())
    }

    /// The keys of items, each as an element, that the pusher has not pushed to.
    fn unchecked_keys(&self, entries: &[Entry<'_>]) -> BTreeSet<Vec<u8>> {
        if self.checked.items || self.space.kind != Kind::Keyed {
            return BTreeSet::new();
        }
        let keys = entries.iter().map(|entry| key_element(entry.key()));
        keys.filter(|key| !self.checked_keys.contains(key)).collect()
    }
}

/// Makes sure that the queue is not frozen, and that its items are of its kind.
async fn check_queue(space: &Space, tr: &Transaction) -> Result<(), QueueError> {
    try_join(check_unfrozen(space, tr), kinds::check_rest(space, tr)).await.map(drop)
}

/// Makes sure that no other pusher has pushed to these keys in the transaction.
async fn check_keys(space: &Space, tr: &Transaction, keys: &BTreeSet<Vec<u8>>) -> Result<(), QueueError> {
    let checks = keys.iter().map(async |key| {
        let within = |records: &[u8]| [records, key].concat();
        let (ready, aside) = (within(&space.ready), within(&space.bodies));
        try_join(check_first(space, tr, &ready, true), check_first(space, tr, &aside, true)).await
    });
    try_join_all(checks).await.map(drop)
}
