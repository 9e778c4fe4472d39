//! Reading the items of one key.

use bytes::Bytes;
use foundationdb::Transaction;
use futures::future::try_join;

use super::candidate::Candidate;
use crate::keys::{Space, after, range};
use crate::model::error::QueueError;
use crate::model::id::ItemId;
use crate::model::id_layout::key_element;
use crate::ops::scan;
use crate::ops::scan::Row;
use crate::run::range_read::RangeRead;

/// Whether any ready item of the queue has a side record. Where none has, a fetch need not look for those of each key.
pub(super) async fn have_metas(space: &Space, tr: &Transaction) -> Result<bool, QueueError> {
    Ok(!read(tr, range(&space.meta), 1, usize::MAX).await?.0.is_empty())
}

/// The next items of a key, at most `n`, and whether there are no others.
pub(super) async fn next_items(
    space: &Space,
    tr: &Transaction,
    candidate: &Candidate,
    n: usize,
    most_bytes: usize,
    has_metas: bool,
) -> Result<(Vec<Row>, bool), QueueError> {
    let element = key_element(&candidate.key);
    let behind = candidate.rows.last().map(|row| &row.id);
    let within = |records: &[u8]| {
        let (first, end) = range(&[records, &element].concat());
        let begin = behind.map_or(first, |id| after(&[records, id.as_bytes()].concat()));
        (begin, end)
    };
    // One more tells whether there are more.
    let metas = async {
        if has_metas { read(tr, within(&space.meta), n, usize::MAX).await } else { Ok((Rows::new(), true)) }
    };
    let (rows, metas) = try_join(read(tr, within(&space.ready), n + 1, most_bytes), metas).await?;
    let (found, is_end) = rows;
    let is_over = is_end && found.len() <= n;
    let row = |(key, value): (Vec<u8>, Vec<u8>)| {
        let id = scan::suffix(space, &key)?.to_vec();
        Ok(Row { id: ItemId::new(id.into()), value: value.into(), meta: Bytes::new() })
    };
    let mut rows: Vec<Row> = found.into_iter().take(n).map(row).collect::<Result<_, QueueError>>()?;
    let metas = metas.0.iter().map(|(key, value)| scan::meta_row(space, key, value));
    scan::attach(&mut rows, metas.collect());
    Ok((rows, is_over))
}

type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// The first rows of a range, at most `limit`, and a page more than `most_bytes`; and whether these are all.
async fn read(
    tr: &Transaction,
    range: (Vec<u8>, Vec<u8>),
    limit: usize,
    most_bytes: usize,
) -> Result<(Rows, bool), QueueError> {
    let mut pages = RangeRead::of(range).limit(limit).pages(tr);
    let (mut rows, mut bytes, mut is_end): (Rows, _, _) = (Vec::new(), 0, true);
    while let Some(page) = pages.next_page().await? {
        rows.extend(page.iter().map(|row| (row.key().to_vec(), row.value().to_vec())));
        bytes += page.byte_len();
        is_end = !page.has_more();
        if bytes >= most_bytes {
            break;
        }
    }
    Ok((rows, is_end))
}
