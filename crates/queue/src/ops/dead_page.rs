//! Retrying or purging dead letters in one transaction.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;

use bytes::Bytes;
use foundationdb::Transaction;
use futures::future::{try_join, try_join_all};
use mutant::bound;

use crate::keys::{Space, meta, range};
use crate::model::error::QueueError;
use crate::model::id::ItemId;
use crate::ops::dead::{decode, records, unique_holder};
use crate::ops::transition::{After, Before, Subject, Transitions};
use crate::ops::{bodies, cost, place};
use crate::run::conflict;
use crate::run::range_read::RangeRead;

/// The most letters of one transaction.
const PAGE: NonZeroUsize = NonZeroUsize::new(500).expect("500 is not 0");
/// About how many bytes one transaction writes at most.
fn page_bytes() -> usize {
    bound("dead-page-bytes", 1 << 20)
}
/// How many values are read at once.
fn together() -> usize {
    bound("dead-together", 32)
}

/// What to do with dead letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeadLetterAction {
    Retry,
    Purge,
}

/// Which dead letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which<'a> {
    /// Those behind this one, or the first: as many as one transaction can hold.
    After(Option<&'a ItemId>),
    /// This one. If it cannot be retried or purged, that is an error.
    One(&'a ItemId),
}

/// The result for a page of letters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DeadLetterPage {
    /// How many were retried or purged.
    pub(crate) moved: usize,
    /// How many stay because another item has their unique key.
    pub(crate) refused: usize,
    /// The item that has the unique key of a refused letter.
    pub(crate) holder: Option<ItemId>,
    /// How many cannot be read, and stay.
    pub(crate) unreadable: usize,
    /// The unreadable letters. They must be purged one by one, because each may have a unique key that only a search finds.
    pub(crate) one_by_one: Vec<ItemId>,
    /// The last that was read. `None`: there are no more letters.
    pub(crate) last: Option<ItemId>,
}

/// Whether a letter's record is or holds one that cannot be read, so that nobody knows whether the item has a unique key.
pub(crate) fn hides_key(record: &[u8]) -> bool {
    meta::decode(record).is_none_or(|meta| meta::unreadable(&meta).is_some())
}

/// Frees the unique keys of these items among a page of all keys; returns the key at which the next page begins, if there is one.
pub(crate) async fn free_keys(
    space: &Space,
    tr: &Transaction,
    from: Option<&[u8]>,
    ids: &BTreeSet<ItemId>,
) -> Result<Option<Vec<u8>>, QueueError> {
    let (first, end) = range(&space.unique);
    let begin = from.map_or(first, <[u8]>::to_vec);
    let rows = RangeRead::of((begin, end)).page(tr).await?;
    for row in rows.iter() {
        if ids.contains(&ItemId::new(Bytes::copy_from_slice(row.value()))) {
            conflict::as_reader(tr, row.key())?;
            tr.clear(row.key());
        }
    }
    Ok(rows.next())
}

/// Retries or purges letters. [`Which::After`] leaves letters that cannot be read.
pub(crate) async fn page(
    space: &Space,
    tr: &Transaction,
    action: DeadLetterAction,
    which: Which<'_>,
) -> Result<DeadLetterPage, QueueError> {
    let letters = match which {
        Which::After(after) => records(space, tr, after, PAGE).await?,
        Which::One(id) => {
            let record = tr.get(&space.dead_key(id), false).await?;
            record.map(|record| (id.clone(), Bytes::copy_from_slice(&record))).into_iter().collect()
        }
    };
    match action {
        DeadLetterAction::Retry => retry(space, tr, &letters, matches!(which, Which::One(_))).await,
        DeadLetterAction::Purge => purge(space, tr, &letters, matches!(which, Which::One(_))).await,
    }
}

/// Purges these letters, as far as one transaction can. Unless `each` is to go, letters stay that may have a unique key
/// that is not known.
pub(crate) async fn purge(
    space: &Space,
    tr: &Transaction,
    letters: &[(ItemId, Bytes)],
    each: bool,
) -> Result<DeadLetterPage, QueueError> {
    let (mut page, mut bytes) = (DeadLetterPage::default(), 0);
    let mut transitions = Transitions::without_ends(space);
    for (id, record) in letters {
        if bytes >= page_bytes() {
            break;
        }
        // It may have a unique key that must be found and freed first.
        if !each && hides_key(record) {
            page.one_by_one.push(id.clone());
            page.last = Some(id.clone());
            continue;
        }
        bytes += cost::removing(space, id, record);
        page.moves(id);
        transitions.add(tr, Before::Dead, After::Gone, Subject::new(id, &[], record))?;
    }
    transitions.write(tr, None).await?;
    Ok(page)
}

async fn retry(
    space: &Space,
    tr: &Transaction,
    letters: &[(ItemId, Bytes)],
    each: bool,
) -> Result<DeadLetterPage, QueueError> {
    let (mut page, mut bytes, mut keys) = (DeadLetterPage::default(), 0, BTreeSet::new());
    let mut transitions = Transitions::without_ends(space);
    for group in letters.chunks(together()) {
        let ids: Vec<_> = group.iter().map(|(id, _)| id).collect();
        let holders = try_join_all(group.iter().map(async |(id, record)| {
            let meta = decode(space, id, record);
            let holder = match &meta {
                Ok(meta) => unique_holder(space, tr, id, meta).await?,
                Err(_) => None,
            };
            Ok::<_, QueueError>((meta, holder))
        }));
        let (bodies, holders) = try_join(bodies::read(space, tr, &ids), holders).await?;
        for ((id, record), (value, (meta, holder))) in
            group.iter().zip(bodies.values.into_iter().zip(holders))
        {
            if bytes >= page_bytes() {
                break;
            }
            let read = place::check_kind(space, id).and(value);
            let (value, meta) = match read.and_then(|value| Ok((value, meta?))) {
                Err(QueueError::Unreadable { .. } | QueueError::WrongKind { .. }) if !each => {
                    page.unreadable += 1;
                    page.last = Some(id.clone());
                    continue;
                }
                read => read?,
            };
            bytes += cost::moving(space, id, value.len(), record);
            // Two letters may have had the same key. Then the first one has it again.
            let is_new = meta.unique.as_ref().is_none_or(|key| keys.insert(key.clone()));
            if holder.is_some() || !is_new {
                page.refused += 1;
                page.holder = holder;
                page.last = Some(id.clone());
                continue;
            }
            page.moves(id);
            transitions.add(tr, Before::Dead, After::Ready, Subject::changed(id, &value, meta))?;
        }
        if bytes >= page_bytes() {
            break;
        }
    }
    transitions.write(tr, None).await?;
    Ok(page)
}

impl DeadLetterPage {
    /// Counts a letter.
    fn moves(&mut self, id: &ItemId) {
        self.moved += 1;
        self.last = Some(id.clone());
    }
}
