//! Making delayed items ready before their time.

use std::collections::BTreeSet;

use foundationdb::Transaction;
use futures::future::join_all;
use mutant::bound;

use crate::keys::{Space, later};
use crate::model::error::QueueError;
use crate::model::id::ItemId;
use crate::ops::row_page::RowPage;
use crate::ops::transition::{After, Before, Subject, Transitions};
use crate::ops::{cost, place};

/// The most records that one transaction looks at.
fn page_rows() -> usize {
    bound("requeue-page", 500)
}
/// About how many bytes one transaction writes at most.
fn page_bytes() -> usize {
    bound("requeue-page-bytes", 1 << 20)
}
/// How many values are read at once.
fn together() -> usize {
    bound("requeue-together", 32)
}

/// The result for a page of scheduled items.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RequeuePage {
    /// The items that are ready now.
    pub(crate) moved: Vec<ItemId>,
    /// Records that cannot be read, or are another kind's. They stay.
    pub(crate) unreadable: usize,
    /// Where the next page begins; `None` behind the last of all.
    pub(crate) next: Option<Vec<u8>>,
}

/// Makes the first items of a range ready, or those of them that are `wanted`, at their own places.
pub(crate) async fn page(
    space: &Space,
    tr: &Transaction,
    (begin, end): (&[u8], &[u8]),
    wanted: Option<&BTreeSet<ItemId>>,
) -> Result<RequeuePage, QueueError> {
    let found = RowPage::read(tr, (begin, end), page_rows(), true).await?;
    let rows: Vec<_> = found.iter().map(|row| (row.key().to_vec(), row.value().to_vec())).collect();
    let mut page = RequeuePage { next: found.next(), ..RequeuePage::default() };
    drop(found);
    let (mut bytes, mut transitions) = (0, Transitions::without_ends(space));
    for group in rows.chunks(together()) {
        if bytes >= page_bytes() {
            page.next = group.first().map(|(key, _)| key.clone());
            break;
        }
        let due = group.iter().filter_map(|(key, meta)| match later::decode(&space.later, key) {
            Some((_, id)) if wanted.is_none_or(|wanted| wanted.contains(&id)) => Some((key, id, meta)),
            Some(_) => None,
            None => {
                page.unreadable += usize::from(wanted.is_none());
                None
            }
        });
        let due: Vec<_> = due.collect();
        let values = join_all(due.iter().map(async |(_, id, _)| {
            place::check_kind(space, id)?;
            place::body(space, tr, id).await
        }))
        .await;
        for ((key, id, meta), value) in due.into_iter().zip(values) {
            let value = match value {
                Ok(value) => value,
                Err(error) if error.database().is_some() => return Err(error),
                Err(_) => {
                    page.unreadable += 1;
                    continue;
                }
            };
            bytes += cost::moving(space, &id, value.len(), meta);
            let item = Subject::new(&id, &value, meta);
            transitions.add(tr, Before::Scheduled(key), After::Ready, &item)?;
            page.moved.push(id);
        }
    }
    transitions.write(tr, None).await?;
    Ok(page)
}
