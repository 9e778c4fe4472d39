//! What a sweeper looks at before it does anything. Reads only, and conflicts with nothing.

use std::ops::Range;

use foundationdb::options::StreamingMode;
use foundationdb::{RangeOption, Transaction};
use futures::TryStreamExt;
use futures::future::try_join3;

use crate::error::QueueError;
use crate::keys::claims::Claim;
use crate::keys::leases::{self, Header, LeaseId};
use crate::keys::{Space, later, operations, range};
use crate::meta::Millis;
use crate::ops::find::first_key;
use crate::ops::version::now;
use crate::ops::went_back::{self, WentBack};
use crate::ops::{times, want};
use crate::sightings::Sightings;
use crate::version_history::VersionHistory;

/// The most expired leases that one look names.
const MAX_EXPIRED: usize = 100;

/// What there is to do, now or at some time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The version it was seen at.
    pub(crate) version: u64,
    /// One that had been read before the sweep's time was, if there is one.
    pub(crate) known: Option<u64>,
    pub(crate) claim: Option<Claim>,
    /// The earliest time that an item waits for.
    pub(crate) due: Option<Millis>,
    /// What is looked at less often; `None`: not this time.
    pub(crate) seldom: Option<Seldom>,
}

/// What nobody is woken for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Seldom {
    /// Leases that have run out, some of them.
    pub(crate) expired: Vec<LeaseId>,
    /// The version after which the first of the others may have run out.
    pub(crate) deadline: Option<u64>,
    /// How many of the others are past their deadline. Their holders may be alive.
    pub(crate) doubtful: usize,
    /// The version of the oldest operation.
    pub(crate) operation: Option<u64>,
    /// Which versions there were at which times.
    pub(crate) times: Sightings,
    /// Whether versions are behind the queue's items.
    pub(crate) went_back: Option<WentBack>,
    /// Whether there are requests to be served that ran out.
    pub(crate) requests: bool,
}

/// Looks; at everything unless the version is one of a `pause`, but not at leases that `passes` over.
pub(crate) async fn look(
    space: &Space,
    tr: &Transaction,
    pause: &Range<u64>,
    history: &VersionHistory,
    passes: impl Fn(LeaseId) -> bool,
) -> Result<Seen, QueueError> {
    let version = now(tr).await?;
    history.note(version);
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
            ..look_at_leases(space, tr, version, history, passes).await?
        };
        Ok(Some(seldom))
    };
    let claim = async { Ok(tr.get(&space.claim, true).await?) };
    let (claim, due, seldom) = try_join3(claim, first_due(space, tr), seldom).await?;
    Ok(Seen { version, known: None, claim: claim.as_deref().and_then(Claim::decode), due, seldom })
}

/// A key that is none of ours counts as due, so that whoever goes about it names it; but for one behind all times, which nobody gets to.
async fn first_due(space: &Space, tr: &Transaction) -> Result<Option<Millis>, QueueError> {
    let Some(key) = first_key(tr, &range(&space.later)).await? else { return Ok(None) };
    let none_of_ours = || (key <= later::at(&space.later, Millis::MAX)).then_some(0);
    Ok(later::decode(&space.later, &key).map_or_else(none_of_ours, |(due, _)| Some(due)))
}

async fn oldest_operation(space: &Space, tr: &Transaction) -> Result<Option<u64>, QueueError> {
    let key = first_key(tr, &range(&space.oplog)).await?;
    Ok(key.and_then(|key| operations::log_version(&space.oplog, &key)))
}

/// Leases of a layout that this version does not know are left to those that do.
async fn look_at_leases(
    space: &Space,
    tr: &Transaction,
    version: u64,
    history: &VersionHistory,
    passes: impl Fn(LeaseId) -> bool,
) -> Result<Seldom, QueueError> {
    let option = RangeOption { mode: StreamingMode::WantAll, ..RangeOption::from(range(&space.leases)) };
    let mut pages = tr.get_ranges(option, true);
    let mut seen = Seldom::default();
    while seen.expired.len() < MAX_EXPIRED
        && let Some(page) = pages.try_next().await?
    {
        for row in &page {
            let Some(id) = leases::decode_key(&space.leases, row.key()) else { continue };
            let Some(header) = Header::decode(row.value()) else { continue };
            if let Some(left) = history.left(&header, version) {
                let over_at = version.saturating_add(left.time - 1);
                seen.deadline = Some(seen.deadline.map_or(over_at, |first| first.min(over_at)));
                seen.doubtful += usize::from(left.is_past);
            } else if !passes(id) {
                seen.expired.push(id);
            }
        }
    }
    Ok(seen)
}
