//! Giving keys that get ready items a place in the index.

use std::collections::BTreeSet;

use foundationdb::Transaction;
use futures::future::{try_join, try_join_all};
use mutant::mutant;

use super::{activate, count_active, rules, step, virtual_time};
use crate::keys::keyed::KeyedSpace;
use crate::model::error::QueueError;

/// Keys that have no place, and the positions that they are to get.
#[derive(Debug, Default)]
pub(crate) struct Unlisted(Vec<(u64, Vec<u8>)>);

/// Those of the keys that have no place. Conflicts with a transaction that gives them one, or takes it away.
///
/// A new key begins one item behind the key that was served last, so its first item waits for one item of each other active key at
/// most.
pub(crate) async fn unlisted(
    keyed: &KeyedSpace,
    tr: &Transaction,
    keys: BTreeSet<Vec<u8>>,
) -> Result<Unlisted, QueueError> {
    let is_new = async |key: Vec<u8>| {
        let listed = tr.get(&keyed.listed_key(&key), mutant("listed-without-conflict")).await?;
        Ok::<_, QueueError>(listed.is_none().then_some(key))
    };
    let new: Vec<_> = try_join_all(keys.into_iter().map(is_new)).await?.into_iter().flatten().collect();
    if new.is_empty() {
        return Ok(Unlisted::default());
    }
    let (book, now) = try_join(rules::book(keyed, tr), virtual_time(keyed, tr)).await?;
    let position = |key: &Vec<u8>| now.saturating_add(step(book.limits(key)));
    Ok(Unlisted(new.into_iter().map(|key| (position(&key), key)).collect()))
}

impl Unlisted {
    /// Makes the keys active.
    pub(crate) fn list(self, keyed: &KeyedSpace, tr: &Transaction) {
        for (position, key) in &self.0 {
            tr.set(&keyed.listed_key(key), &[]);
            activate(keyed, tr, *position, key);
        }
        count_active(keyed, tr, self.0.len());
    }
}
