//! Clearing what is left of items that a foreign program took.
//!
//! A program written from the Erlang KvQueue, or from a recipe, clears an item's value and knows nothing of its side record, of the
//! rest of its payload and of its unique key. The last would block that key for ever.

use foundationdb::{KeySelector, Transaction};
use futures::future::try_join_all;
use mutant::bound;

use crate::keys::{Space, after, meta, range};
use crate::model::error::QueueError;
use crate::model::history::Ending;
use crate::model::id::ItemId;
use crate::ops::batches::ends::BatchEnds;
use crate::ops::scan::meta_row;
use crate::ops::{cost, parts, unique};
use crate::run::conflict;
use crate::run::range_read::RangeRead;

/// How many side records one transaction looks at.
fn page_rows() -> usize {
    bound("orphans-page", 200)
}
/// About how many bytes one transaction clears at most, as the database counts them.
fn page_bytes() -> usize {
    bound("orphans-page-bytes", 1 << 20)
}

/// Which side records to look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part<'a> {
    /// The first, in the order in which items are taken: there foreign programs leave most.
    Front,
    /// Those from a key on.
    From(&'a [u8]),
}

/// The result of a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OrphanPage {
    /// Orphans cleared.
    pub(crate) cleared: usize,
    /// A side record that belongs to a queue of another kind, and is left alone.
    pub(crate) alien: Option<ItemId>,
    /// Where the records go on; empty behind the last. `None` of [`Part::Front`], which is looked at alone.
    pub(crate) next: Option<Vec<u8>>,
}

/// Looks at some side records, and clears those without an item, with all that belongs to them.
pub(crate) async fn clear_orphans(
    space: &Space,
    tr: &Transaction,
    part: Part<'_>,
) -> Result<OrphanPage, QueueError> {
    let (first, end) = range(&space.meta);
    let (begin, reverse) = match part {
        Part::Front => (first, space.kind.takes_last()),
        Part::From(key) => (key.to_vec().max(first), false),
    };
    let rows = RangeRead::of((begin, end)).reverse(reverse).limit(page_rows()).page(tr).await?;
    let mut next = rows.next().unwrap_or_default();
    let (metas, aliens): (Vec<_>, Vec<_>) = rows
        .iter()
        .map(|row| meta_row(space, row.key(), row.value()))
        .partition(|(id, _)| space.kind.owns(id));
    let found = try_join_all(metas.iter().map(|(id, _)| has_item(space, tr, id))).await?;
    let (mut cleared, mut bytes, mut ends) = (0, 0, BatchEnds::default());
    for (id, meta) in metas.iter().zip(found).filter(|(_, has_item)| !has_item).map(|(row, _)| row) {
        clear(space, tr, id, meta).await?;
        // The other program took it for good.
        ends.add_record(meta, Ending::Taken);
        cleared += 1;
        bytes += cost::removing(space, id, meta) + cost::ended(space, id, meta, 0);
        if bytes >= page_bytes() {
            next = after(&space.meta_key(id));
            break;
        }
    }
    if !ends.is_empty() {
        ends.read(space, tr).await?.write(tr);
    }
    let next = matches!(part, Part::From(_)).then_some(next);
    Ok(OrphanPage { cleared, alien: aliens.into_iter().next().map(|(id, _)| id), next })
}

/// Whether a ready item has this id; reads its key alone, not its value.
async fn has_item(space: &Space, tr: &Transaction, id: &ItemId) -> Result<bool, QueueError> {
    let key = space.ready_key(id);
    let found = tr.get_key(&KeySelector::first_greater_or_equal(key.as_slice()), true).await?;
    Ok(found[..] == key[..])
}

async fn clear(space: &Space, tr: &Transaction, id: &ItemId, meta: &[u8]) -> Result<(), QueueError> {
    for key in [space.ready_key(id), space.meta_key(id)] {
        conflict::as_reader(tr, &key)?;
    }
    tr.clear(&space.meta_key(id));
    parts::clear_by(space, tr, id, meta);
    // The key may be another item's by now.
    if let Some(meta) = meta::decode(meta) {
        unique::of_ended(space, tr, id, &meta);
    }
    Ok(())
}
