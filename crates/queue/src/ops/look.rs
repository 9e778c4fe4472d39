//! The reads of a sweeper before it does anything. They conflict with nothing.

use std::ops::Range;

use foundationdb::options::StreamingMode;
use foundationdb::{RangeOption, Transaction};
use futures::TryStreamExt;
use futures::future::try_join3;

use crate::error::QueueError;
use crate::keys::claims::Claim;
use crate::keys::leases::{self, Header, LeaseId};
use crate::keys::{Space, after, later, operations, range};
use crate::meta::Millis;
use crate::ops::find::first_key;
use crate::ops::version::now;
use crate::ops::went_back::{self, WentBack};
use crate::ops::{times, want};
use crate::sightings::Sightings;
use crate::version_history::VersionHistory;
use mutant::mutant;

/// The most expired leases that one look names.
const MAX_EXPIRED: usize = 100;

/// One look reads about this many bytes of leases at most: this, and one reply of the database more.
pub(crate) const PAGE_BYTES: usize = 500_000;

/// The work of a sweeper, now or later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The version it was seen at.
    pub(crate) version: u64,
    /// One that had been read before the sweep's time was, if there is one.
    pub(crate) known: Option<u64>,
    pub(crate) claim: Option<Claim>,
    /// The earliest time that an item waits for.
    pub(crate) due: Option<Millis>,
    /// The parts that are read less often. `None`: not this time.
    pub(crate) seldom: Option<Seldom>,
}

/// The work that wakes no sweeper. It covers one page of the leases.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Seldom {
    /// Leases of the page that have run out, some of them.
    pub(crate) expired: Vec<LeaseId>,
    /// The version after which the first of the page's other leases may have run out.
    pub(crate) deadline: Option<u64>,
    /// How many of the page's other leases are past their deadline. Their holders may be alive.
    pub(crate) doubtful: usize,
    /// The key at which the next page begins; `None` if this page reaches the last lease.
    pub(crate) next: Option<Vec<u8>>,
    /// How many pages the leases have, roughly. 0 or 1 if this page has them all.
    pub(crate) pages: u64,
    /// The version of the oldest operation.
    pub(crate) operation: Option<u64>,
    /// Which versions there were at which times.
    pub(crate) times: Sightings,
    /// Whether versions are behind the queue's items.
    pub(crate) went_back: Option<WentBack>,
    /// Whether there are requests to be served that ran out.
    pub(crate) requests: bool,
}

/// Which leases a look covers.
#[derive(Debug)]
pub(crate) struct Leases<'a, P> {
    pub(crate) history: &'a VersionHistory,
    /// The page begins at this key; `None`: at the first lease.
    pub(crate) from: Option<&'a [u8]>,
    /// Leases that the look leaves out.
    pub(crate) passes: P,
}

/// Looks at everything, and at one page of leases; only at delayed items if the version is one of the `pause`.
pub(crate) async fn look<P: Fn(LeaseId) -> bool>(
    space: &Space,
    tr: &Transaction,
    pause: &Range<u64>,
    leases: Leases<'_, P>,
) -> Result<Seen, QueueError> {
    let version = now(tr).await?;
    leases.history.note(version);
    let seldom = async {
        if pause.contains(&version) {
            return Ok(None);
        }
        let operation = oldest_operation(space, tr);
        let (operation, times, went_back) =
            try_join3(operation, times::read(space, tr, true), went_back::look(space, tr)).await?;
        let seldom = Seldom {
            operation,
            times,
            went_back,
            requests: !want::expired(space, tr, version).await?.is_empty(),
            ..look_at_leases(space, tr, version, &leases).await?
        };
        Ok(Some(seldom))
    };
    let claim = async { Ok(tr.get(&space.claim, true).await?) };
    let (claim, due, seldom) = try_join3(claim, first_due(space, tr), seldom).await?;
    Ok(Seen { version, known: None, claim: claim.as_deref().and_then(Claim::decode), due, seldom })
}

/// A key that is none of ours counts as due, so that any process that goes about it names it; but for one behind all times, which nobody gets to.
pub(super) async fn first_due(space: &Space, tr: &Transaction) -> Result<Option<Millis>, QueueError> {
    let Some(key) = first_key(tr, &range(&space.later)).await? else { return Ok(None) };
    let none_of_ours = || (key <= later::at(&space.later, Millis::MAX)).then_some(0);
    Ok(later::decode(&space.later, &key).map_or_else(none_of_ours, |(due, _)| Some(due)))
}

async fn oldest_operation(space: &Space, tr: &Transaction) -> Result<Option<u64>, QueueError> {
    let key = first_key(tr, &range(&space.oplog)).await?;
    Ok(key.and_then(|key| operations::log_version(&space.oplog, &key)))
}

/// Reads one page of lease headers. The sweeper leaves leases of a layout that it does not know alone.
async fn look_at_leases<P: Fn(LeaseId) -> bool>(
    space: &Space,
    tr: &Transaction,
    version: u64,
    leases: &Leases<'_, P>,
) -> Result<Seldom, QueueError> {
    let (first, end) = range(&space.leases);
    let begin = leases.from.map_or(first.clone(), <[u8]>::to_vec);
    let option =
        RangeOption { mode: StreamingMode::WantAll, ..RangeOption::from((begin.as_slice(), end.as_slice())) };
    let mut pages = tr.get_ranges(option, true);
    let (mut seen, mut bytes) = (Seldom::default(), 0);
    while seen.expired.len() < MAX_EXPIRED
        && let Some(page) = pages.try_next().await?
    {
        for row in &page {
            bytes += row.key().len() + row.value().len();
            let Some(id) = leases::decode_key(&space.leases, row.key()) else { continue };
            let Some(header) = Header::decode(row.value()) else { continue };
            if let Some(left) = leases.history.left(&header, version) {
                let over_at = version.saturating_add(left.time - 1);
                seen.deadline = Some(seen.deadline.map_or(over_at, |first| first.min(over_at)));
                seen.doubtful += usize::from(left.is_past);
            } else if !(leases.passes)(id) {
                seen.expired.push(id);
            }
        }
        if bytes >= PAGE_BYTES && page.more() && !mutant("look-unbounded") {
            seen.next = page.last().map(|row| after(row.key()));
            break;
        }
    }
    if leases.from.is_some() || seen.next.is_some() {
        let bytes = tr.get_estimated_range_size_bytes(&first, &end).await?;
        seen.pages = 2.max(bytes.unsigned_abs().div_ceil(PAGE_BYTES as u64));
    }
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;

    use super::*;
    use crate::id::ItemId;
    use crate::keys::leases::Held;
    use crate::ops::lease;
    use crate::queue::Queue;
    use crate::session::SessionId;
    use crate::testing::on_database;

    /// The longest payload whose lease still has the body in the header, or nearly.
    const PAYLOAD: usize = 4_000;
    const LEASES: usize = 600;

    #[test]
    fn lease_reads_of_a_sweep_are_bounded_and_continue_in_the_next() {
        on_database(async |db| {
            let queue = Queue::new(b"", b"q").unwrap();
            let space = queue.space();
            let tr = db.create_trx().unwrap();
            for number in 0..LEASES as u64 {
                let held = Held {
                    id: ItemId::new(vec![0; 13].into()),
                    meta: Bytes::new(),
                    value: vec![b'x'; PAYLOAD].into(),
                };
                // Past its deadline. The history does not yet prove that its holder is gone.
                lease::put(space, &tr, LeaseId { session: SessionId([1; 16]), number }, (1, 1), &[held]);
            }
            tr.commit().await.unwrap();
            let history = VersionHistory::new(|| Duration::ZERO);
            let (mut from, mut found, mut looks) = (None, 0, 0);
            loop {
                let tr = db.create_trx().unwrap();
                let leases = Leases { history: &history, from: from.as_deref(), passes: |_| false };
                let seen = look(space, &tr, &(0..0), leases).await.unwrap().seldom.unwrap();
                // A page, and one reply of the database.
                assert!(seen.doubtful * PAYLOAD <= PAGE_BYTES + 80_000, "{} in a look", seen.doubtful);
                assert!(seen.pages >= 2);
                (found, looks) = (found + seen.doubtful, looks + 1);
                from = seen.next;
                if from.is_none() {
                    break;
                }
            }
            assert_eq!((found, looks), (LEASES, 5));
        });
    }
}
