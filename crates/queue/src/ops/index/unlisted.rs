//! Keys that have ready items, and are not listed.

use foundationdb::Transaction;
use futures::future::try_join_all;
use mutant::bound;

use crate::keys::keyed::KeyedSpace;
use crate::keys::{Space, after, range};
use crate::model::error::QueueError;
use crate::model::id_layout::{key_element, split_id};
use crate::ops::find::first_key;
use crate::run::range_read::RangeRead;

/// How many listed keys one page looks at, and how many other keys it finds at most.
fn page_keys() -> usize {
    bound("unlisted-page", 1_000)
}
/// How many reads are under way at once.
const TOGETHER: usize = 100;

/// What was found in a page of keys.
#[derive(Debug, Default)]
pub(crate) struct UnlistedPage {
    pub(crate) keys: Vec<Vec<u8>>,
    /// The last key that was looked at; `None`: there are no others.
    pub(crate) through: Option<Vec<u8>>,
}

/// The next keys behind `behind` that have ready items and are not listed. Reads between each two listed keys whether there are items of another, and reads no item of
/// a listed key. Without a conflict.
pub(crate) async fn page(
    space: &Space,
    keyed: &KeyedSpace,
    tr: &Transaction,
    behind: Option<&[u8]>,
) -> Result<UnlistedPage, QueueError> {
    let (begin, end) = keyed.listed_range();
    let begin = behind.map_or(begin, |key| after(&keyed.listed_key(key)));
    let rows = RangeRead::of((begin, end)).limit(page_keys()).page(tr).await?;
    let listed: Vec<_> = rows.iter().filter_map(|row| keyed.decode_listed(row.key())).collect();
    let is_last = !rows.has_more();
    let (first, last) = space.item_range();
    let items = |key: &[u8]| range(&[space.ready.as_slice(), &key_element(key)].concat());
    // The gaps between the items of listed keys.
    let begins = std::iter::once(behind.map_or(first, |key| items(key).1));
    let begins = begins.chain(listed.iter().map(|key| items(key).1));
    let ends = listed.iter().map(|key| items(key).0).chain(is_last.then_some(last));
    let gaps: Vec<_> = begins.zip(ends).collect();
    let mut page =
        UnlistedPage { through: listed.last().cloned().filter(|_| !is_last), ..UnlistedPage::default() };
    for some in gaps.chunks(TOGETHER) {
        let firsts = try_join_all(some.iter().map(|gap| first_key(tr, gap))).await?;
        for ((_, end), first) in some.iter().zip(firsts) {
            let mut next = first;
            while let Some(row) = next {
                if page.keys.len() >= page_keys() {
                    page.through = page.keys.last().cloned();
                    return Ok(page);
                }
                let key = row.strip_prefix(space.ready.as_slice()).and_then(split_id).map(|(key, _)| key);
                // A row of another layout belongs to nobody.
                let begin = key.as_deref().map_or_else(|| after(&row), |key| items(key).1);
                page.keys.extend(key);
                next = first_key(tr, &(begin, end.clone())).await?;
            }
        }
    }
    Ok(page)
}
