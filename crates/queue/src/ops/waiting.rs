//! What a ready item waits for. Reads that conflict with nothing.

use foundationdb::Transaction;
use mutant::bound;

use crate::keys::keyed::KeyedSpace;
use crate::keys::{Space, range};
use crate::model::error::QueueError;
use crate::model::id::ItemId;
use crate::model::id_layout::{key_element, split_id};
use crate::model::kind::Kind;
use crate::model::waiting::{AtLeast, Waiting, WaitsOn};
use crate::ops::keyed::place;
use crate::run::range_read::RangeRead;

/// How many rows are counted at most.
fn most_counted() -> usize {
    bound("waiting-counted", 10_000)
}
/// The bytes of values after which counting ends.
fn most_bytes() -> usize {
    bound("waiting-bytes-counted", 1_000_000)
}

/// What a ready item waits for; `None` if it is not ready.
pub(crate) async fn waiting(
    space: &Space,
    tr: &Transaction,
    id: &ItemId,
) -> Result<Option<Waiting>, QueueError> {
    let own = space.ready_key(id);
    if tr.get(&own, true).await?.is_none() {
        return Ok(None);
    }
    match (&space.keyed, split_id(id.as_bytes())) {
        (Some(keyed), Some((key, _))) => of_key(space, keyed, tr, own, &key).await.map(Some),
        _ => {
            let partition = if space.kind == Kind::Fifo { id.partition() } else { 0 };
            let (begin, _) = space.in_partition(partition).item_range();
            let items_before = count(tr, (begin, own)).await?;
            Ok(Some(Waiting { on: WaitsOn::Turn, items_before, keys_before: None }))
        }
    }
}

async fn of_key(
    space: &Space,
    keyed: &KeyedSpace,
    tr: &Transaction,
    own: Vec<u8>,
    key: &[u8],
) -> Result<Waiting, QueueError> {
    let (begin, _) = range(&[space.ready.as_slice(), &key_element(key)].concat());
    let items_before = count(tr, (begin, own)).await?;
    let (on, keys_before) = place::of(keyed, tr, key).await?;
    Ok(Waiting { on, items_before, keys_before })
}

/// Counts the rows of a range, up to a bound.
async fn count(tr: &Transaction, range: (Vec<u8>, Vec<u8>)) -> Result<AtLeast, QueueError> {
    let rows = RangeRead::of(range).limit(most_counted()).page_bytes(most_bytes()).exact().page(tr).await?;
    Ok(AtLeast { counted: rows.len(), is_all: !rows.has_more() })
}
