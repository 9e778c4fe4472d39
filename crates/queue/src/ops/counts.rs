//! What there is in each state.

use foundationdb::options::StreamingMode;
use foundationdb::{RangeOption, Transaction};
use futures::TryStreamExt;
use futures::future::{try_join3, try_join5};

use crate::counts::{Counts, Rest};
use crate::error::QueueError;
use crate::keys::leases::Header;
use crate::keys::{Space, counters, range};
use crate::ops::find::first_key;
use crate::ops::len::{between, len};

/// A key each, without a value and without a conflict.
pub(crate) async fn rest(space: &Space, tr: &Transaction) -> Result<Rest, QueueError> {
    let any = async |range| first_key(tr, &range).await.map(|key| key.is_some());
    let (ready, leased, later) =
        try_join3(any(space.item_range()), any(range(&space.leases)), any(range(&space.later))).await?;
    Ok(Rest { ready, leased, later })
}

/// Counters, and the headers of all leases.
pub(crate) async fn counts(space: &Space, tr: &Transaction) -> Result<Counts, QueueError> {
    let counter = async |key| Ok(counters::decode(tr.get(key, true).await?.as_deref()));
    let (ready, leased, later, dead, done) = try_join5(
        len(space, tr),
        leased(space, tr),
        between(tr, &space.nlater, &space.ndue, true),
        counter(&space.ndead),
        counter(&space.ndone),
    )
    .await?;
    Ok(Counts { ready, leased, later, dead: dead.cast_signed(), done })
}

/// The items in leases that are not settled. Leases of a layout that this version does not know are passed over.
async fn leased(space: &Space, tr: &Transaction) -> Result<u64, QueueError> {
    let option = RangeOption { mode: StreamingMode::WantAll, ..RangeOption::from(range(&space.leases)) };
    let mut pages = tr.get_ranges(option, true);
    let mut items = 0;
    while let Some(page) = pages.try_next().await? {
        let open = page
            .iter()
            .filter_map(|row| Header::decode(row.value()))
            .map(|header| header.settled.open().count());
        items += open.sum::<usize>() as u64;
    }
    Ok(items)
}
