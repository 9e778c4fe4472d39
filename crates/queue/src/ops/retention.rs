//! Removing dead letters that are older than their queue keeps them.
//!
//! Letters are in the order of their ids, not of their deaths: a page of all of them is read, and the old ones among them are removed. An
//! index by time would cost every death two writes, and would not have the letters of earlier versions.

use bytes::Bytes;
use foundationdb::Transaction;

use crate::keys::{Space, after, meta, range};
use crate::model::error::QueueError;
use crate::model::id::ItemId;
use crate::model::time::{Millis, millis};
use crate::ops::cost;
use crate::ops::dead_page::purge;
use crate::run::pause::check_unfrozen;
use crate::run::range_read::RangeRead;
use mutant::{bound, mutant};

/// The most letters that one transaction looks at. One reply of the database may have fewer.
fn page_rows() -> usize {
    bound("retention-page", 500)
}
/// About how many bytes one transaction writes at most.
fn page_bytes() -> usize {
    bound("retention-page-bytes", 1 << 20)
}

/// What one transaction did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RetentionPage {
    /// Letters that were removed.
    pub(crate) removed: usize,
    /// When the oldest letter of the page died that stays and can be removed later.
    pub(crate) oldest: Option<Millis>,
    /// The key at which the letters go on; `None` behind the last.
    pub(crate) next: Option<Vec<u8>>,
}

/// Removes the letters of a page that died by `until`, as a purge does; fails at commit if another has moved one.
///
/// A letter stays if nobody knows when it died, or if its item's record cannot be read: it may have a unique key, which only a search
/// of all keys finds. A person decides about it.
pub(crate) async fn remove_old(
    space: &Space,
    tr: &Transaction,
    from: Option<&[u8]>,
    until: Millis,
) -> Result<RetentionPage, QueueError> {
    let (first, end) = range(&space.dead);
    let begin = from.map_or(first, <[u8]>::to_vec);
    let rows = RangeRead::of((begin, end)).limit(page_rows()).page(tr).await?;
    let (mut old, mut bytes) = (Vec::new(), 0);
    let mut page = RetentionPage { next: rows.next(), ..RetentionPage::default() };
    for row in rows.iter() {
        let Some(died) = died_at(row.value()) else { continue };
        if died > until && !mutant("dead-letters-are-removed-at-once") {
            page.oldest = Some(page.oldest.map_or(died, |oldest| oldest.min(died)));
            continue;
        }
        let id = ItemId::new(Bytes::copy_from_slice(&row.key()[space.dead.len()..]));
        bytes += cost::removing(space, &id, row.value());
        old.push((id, Bytes::copy_from_slice(row.value())));
        if bytes >= page_bytes() {
            page.next = Some(after(row.key()));
            break;
        }
    }
    if !old.is_empty() {
        check_unfrozen(space, tr).await?;
        page.removed = purge(space, tr, &old, false).await?.moved;
    }
    Ok(page)
}

/// When a letter died, if that is known and everything of it can be read.
fn died_at(record: &[u8]) -> Option<Millis> {
    let meta = meta::decode(record).filter(|meta| meta::unreadable(meta).is_none())?;
    meta.death.map(|death| millis(death.at)).filter(|at| *at > 0)
}
