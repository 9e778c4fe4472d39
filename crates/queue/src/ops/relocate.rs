//! Moving items out of a queue, to be pushed elsewhere in the same transaction.

use std::num::NonZeroUsize;
use std::sync::Arc;

use foundationdb::Transaction;
use mutant::bound;

use crate::keys::{Space, meta};
use crate::model::error::QueueError;
use crate::model::id::ItemId;
use crate::model::item::Item;
use crate::model::kind::Kind;
use crate::model::meta::Meta;
use crate::model::place::Place;
use crate::model::stored::{State, StoredItem};
use crate::ops::aside::{fitting, read_records};
use crate::ops::ready as ready_items;
use crate::ops::scan::Row;
use crate::ops::transition::{After, Before, Subject, Transitions};
use crate::ops::{dead, partitions, scan};

/// The most items of one transaction.
pub(crate) const PAGE: NonZeroUsize = NonZeroUsize::new(200).expect("200 is not 0");
/// The most bytes that one transaction moves, or a single item.
fn page_bytes() -> usize {
    bound("relocate-page-bytes", 1 << 20)
}

/// Which items are moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Movable {
    /// Ready items, in the order in which they would be fetched.
    Ready,
    /// Dead letters, in the order of their ids. They become ready, with all their attempts before them.
    Dead,
}

/// Where to look, and how far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stretch<'a> {
    /// Behind this item.
    pub(crate) behind: Option<&'a ItemId>,
    /// To this one, which is the last.
    pub(crate) until: &'a ItemId,
    pub(crate) k: NonZeroUsize,
}

/// Items that may be moved.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// As they are stored.
    pub(crate) rows: Vec<Row>,
    /// As they are to be stored.
    pub(crate) items: Vec<StoredItem>,
    /// How many were passed over, since what is known of them cannot be read.
    pub(crate) unreadable: usize,
    /// The last that was looked at.
    pub(crate) last: Option<ItemId>,
}

/// Reads the next items, without a conflict.
pub(crate) async fn find(
    space: &Space,
    tr: &Transaction,
    what: Movable,
    stretch: Stretch<'_>,
) -> Result<Found, QueueError> {
    match what {
        Movable::Ready => ready(space, tr, stretch).await,
        Movable::Dead => dead(space, tr, stretch).await,
    }
}

async fn ready(space: &Space, tr: &Transaction, stretch: Stretch<'_>) -> Result<Found, QueueError> {
    let spaces = partitions::read_all(space, tr).await?;
    let mut rows = if spaces.len() > 1 {
        partitions::find(&spaces, tr, stretch.k, stretch.behind.and_then(ItemId::stamp)).await?
    } else {
        let place = Place { behind: stretch.behind.cloned(), skip: 0 };
        ready_items::find(space, tr, stretch.k, &place).await?
    };
    let within = |row: &&Row| match space.kind {
        kind if kind.takes_last() => row.id >= *stretch.until,
        Kind::Fifo => row.id.stamp() <= stretch.until.stamp(),
        _ => row.id <= *stretch.until,
    };
    rows.truncate(rows.iter().take_while(within).count());
    rows.truncate(fitting(space, &rows, page_bytes())?);
    let items = scan::items(space, tr, &rows).await?;
    let items = items.into_iter().map(|item| stored(item, |meta| meta)).collect();
    Ok(Found { last: rows.last().map(|row| row.id.clone()), rows, items, unreadable: 0 })
}

async fn dead(space: &Space, tr: &Transaction, stretch: Stretch<'_>) -> Result<Found, QueueError> {
    let mut records = dead::records(space, tr, stretch.behind, stretch.k).await?;
    records.retain(|(id, _)| id <= stretch.until);
    let looked_at = records.last().map(|(id, _)| id.clone());
    // A dead letter with an unreadable side record stays, for a version that can read it.
    let mut unreadable = Vec::new();
    records.retain(|(id, record)| {
        let readable = meta::decode(record).is_some_and(|record| meta::unreadable(&record).is_none());
        if !readable {
            unreadable.push(id.clone());
        }
        readable
    });
    let found = read_records(space, tr, &records, page_bytes()).await?;
    let read = &records[..found.len()];
    let last = if read.len() == records.len() { looked_at } else { read.last().map(|(id, _)| id.clone()) };
    unreadable.retain(|id| Some(id) <= last.as_ref());
    let (mut rows, mut items) = (Vec::new(), Vec::new());
    for ((id, _), found) in read.iter().zip(found) {
        match found {
            Ok((row, item)) => {
                rows.push(row);
                items.push(stored(item, dead::retried));
            }
            Err(_) => unreadable.push(id.clone()),
        }
    }
    Ok(Found { rows, items, unreadable: unreadable.len(), last })
}

/// The same, to be pushed. Its priority is for the caller to say.
fn stored(item: Item, change: impl FnOnce(Meta) -> Meta) -> StoredItem {
    let meta = change(item.meta.map(Arc::unwrap_or_clone).unwrap_or_default());
    StoredItem { payload: item.payload, meta, state: State::Ready, priority: 0, key: item.id.key() }
}

/// Removes rows that [`find`] has read, with all that goes with them; fails at commit if another has moved one.
pub(crate) async fn remove(
    space: &Space,
    tr: &Transaction,
    what: Movable,
    rows: &[&Row],
) -> Result<(), QueueError> {
    let mut transitions = Transitions::without_ends(space);
    let before = match what {
        Movable::Ready => Before::Ready,
        Movable::Dead => Before::Dead,
    };
    for row in rows {
        transitions.add(tr, before, After::Gone, Subject::new(&row.id, &[], &row.meta))?;
    }
    transitions.write(tr, None).await
}
