//! The length.

use foundationdb::Transaction;
use futures::future::try_join;

use crate::keys::{Counter, Space, counters};
use crate::model::error::QueueError;
use crate::model::kind::Kind;
use crate::ops::find::count_keys;

/// How many items are ready.
///
/// In a FIFO queue, `npush` less `npop`, both read at once. Foreign programs bump no counter of a recipe's queue, so there keys are
/// counted; of more than 50 MB their number is estimated.
pub(crate) async fn len(space: &Space, tr: &Transaction) -> Result<i64, QueueError> {
    match space.kind {
        Kind::Fifo | Kind::Keyed => between(space, tr, Counter::Push, Counter::Pop, false).await,
        Kind::Recipe(_) | Kind::Priority(..) => Ok(count_keys(tr, space.item_range()).await?.cast_signed()),
    }
}

/// One counter less another.
pub(crate) async fn between(
    space: &Space,
    tr: &Transaction,
    came: Counter,
    went: Counter,
    snapshot: bool,
) -> Result<i64, QueueError> {
    let (came, went) =
        try_join(tr.get(space.counter(came), snapshot), tr.get(space.counter(went), snapshot)).await?;
    Ok(counters::difference(counters::decode(came.as_deref()), counters::decode(went.as_deref())))
}
