//! Whether a queue exists.

use foundationdb::Transaction;
use futures::future::try_join_all;

use crate::keys::{Space, counters};
use crate::model::error::QueueError;
use crate::model::kind::Kind;
use crate::run::range_read::RangeRead;

/// The ranges of a queue's rows. A recipe's items have a range of their own, behind the others.
pub(crate) fn ranges(space: &Space) -> Vec<(Vec<u8>, Vec<u8>)> {
    match space.kind {
        Kind::Fifo | Kind::Keyed => vec![space.queue_range()],
        Kind::Recipe(_) | Kind::Priority(..) => vec![space.queue_range(), space.item_range()],
    }
}

/// Whether a row belongs to its database and not to the queue: the records of a migration, a pause and sweepers, and the requests
/// that wait in line. Neither are the counters rows of the queue: a migration sets them at its end.
pub(crate) fn stays(space: &Space, key: &[u8]) -> bool {
    let own = [&space.pause, &space.migrate, &space.claim, &space.duty, &space.clocks, &space.times];
    own.into_iter().map(Vec::as_slice).chain(space.compared_counters()).any(|own| key == own)
        || key.starts_with(&space.wants)
}

/// Whether there is any row of a queue: items in any state, counters, records of producers.
pub(crate) async fn exists(space: &Space, tr: &Transaction) -> Result<bool, QueueError> {
    let counts = try_join_all(space.compared_counters().map(|key| tr.get(key, false))).await?;
    if counts.iter().any(|count| counters::decode(count.as_deref()) != 0) {
        return Ok(true);
    }
    // Only its own session can use a token slot, and neither how a queue is divided nor how long ended items are kept makes a queue.
    let makes_none = |key: &[u8]| {
        key.starts_with(&space.tokens)
            || [&space.partitions, &space.history].into_iter().any(|own| key == own.as_slice())
    };
    let is_of_queue = |key: &[u8]| !stays(space, key) && !makes_none(key);
    for range in ranges(space) {
        let mut pages = RangeRead::of(range).page_limit(100).growing().snapshot(false).pages(tr);
        while let Some(page) = pages.next_page().await? {
            if page.iter().any(|row| is_of_queue(row.key())) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}
