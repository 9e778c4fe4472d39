//! The length, from the counters alone.

use foundationdb::Transaction;
use futures::future::try_join;

use crate::error::QueueError;
use crate::keys::{Space, counters};

/// `npush` less `npop`, both read at once.
pub(crate) async fn len(space: &Space, tr: &Transaction) -> Result<i64, QueueError> {
    let (npush, npop) = try_join(tr.get(&space.npush, false), tr.get(&space.npop, false)).await?;
    Ok(counters::difference(counters::decode(npush.as_deref()), counters::decode(npop.as_deref())))
}
