//! The reads of a sweeper before it does anything. They conflict with nothing.

use foundationdb::Transaction;
use futures::future::{try_join, try_join5};

use crate::keys::agenda::Event;
use crate::keys::claims::Claim;
use crate::keys::duty::Duty;
use crate::keys::ended::Setting;
use crate::keys::leases::Header;
use crate::keys::{Counter, Space, counters, leases, operations, range};
use crate::model::error::QueueError;
use crate::model::lease_id::LeaseId;
use crate::model::sightings::Sightings;
use crate::model::time::Millis;
use crate::ops::agenda::{ByEvent, First, firsts};
use crate::ops::clocks::Judgement;
use crate::ops::duty::{Lookout, Scope};
use crate::ops::find::first_key;
use crate::ops::sweep_right::held_by_another;
use crate::ops::went_back::WentBack;
use crate::ops::{clocks, duty, ended, times, want, went_back};
use crate::run::range_read::RangeRead;
use crate::run::version::now;
use crate::run::version_history::VersionHistory;
use mutant::{bound, mutant};

/// The most expired leases that one look names.
fn max_expired() -> usize {
    bound("look-expired-leases", 100)
}

/// One look reads about this many bytes of leases at most: this, and one reply of the database more.
pub(crate) fn page_bytes() -> usize {
    bound("look-bytes", 500_000)
}

/// The work of a sweeper, now or later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The version it was seen at.
    pub(crate) version: u64,
    /// One that had been read before the sweep's time was, if there is one.
    pub(crate) known: Option<u64>,
    /// Which sweeper is on duty, or was.
    pub(crate) duty: Option<Duty>,
    /// What the sweeper thinks of its clock.
    pub(crate) clock: Judgement,
    /// The first time of each event: that of removals is later by how far removals are behind other work.
    pub(crate) times: ByEvent<Option<Millis>>,
    /// How much was to be read.
    pub(crate) scope: Scope,
    /// For how many versions another sweeper works on the queue. It is read if there may be work.
    pub(crate) claimed: Option<u64>,
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
    /// Whether there is any lease, on this page or before it.
    pub(crate) has_leases: bool,
    /// `npop`; `None` if nothing was ever fetched.
    pub(crate) npop: Option<u64>,
    /// The version of the oldest operation.
    pub(crate) operation: Option<u64>,
    /// Which versions there were at which times.
    pub(crate) times: Sightings,
    /// Whether versions are behind the queue's items.
    pub(crate) went_back: Option<WentBack>,
    /// Whether there are requests to be served.
    pub(crate) has_requests: bool,
    /// Whether some of them ran out.
    pub(crate) requests: bool,
    /// How long ended items are kept, if they are.
    pub(crate) history: Option<Setting>,
}

impl Seldom {
    /// Whether a sweeper can have no other work than with scheduled items and operations, until something is fetched.
    pub(crate) fn is_idle(&self) -> bool {
        !self.has_leases && !self.has_requests && self.went_back.is_none()
    }
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

/// Looks: first which sweeper is on duty, and then as far as the [`Scope`] goes, at one page of leases at most. If another sweeper
/// works on the queue, it looks no further.
pub(crate) async fn look<P: Fn(LeaseId) -> bool>(
    space: &Space,
    tr: &Transaction,
    lookout: &Lookout,
    leases: Leases<'_, P>,
) -> Result<Seen, QueueError> {
    let version = now(tr).await?;
    leases.history.note(version);
    let ((duty, clocks), firsts) =
        try_join(try_join(duty::read(space, tr, true), clocks::read(space, tr, true)), firsts(space, tr))
            .await?;
    let clock = lookout.clock.judge(lookout.me, &clocks, version);
    let lookout = &Lookout { now: clock.time(lookout.clock.time), ..lookout.clone() };
    let behind = lookout.now.saturating_sub(clock.removal_time(lookout.clock.time));
    let mut times = ByEvent::of(|event| {
        let time = firsts[event].map(|first| first.at(lookout.now, version));
        if event.is_removal() { time.map(|at| at.saturating_add(behind)) } else { time }
    });
    let mut scope = lookout.scope(version, duty, times.iter().min());
    if let Scope::Unless(npop, _) = scope
        && self::npop(space, tr).await?.unwrap_or(0) != npop
        && !mutant("fetch-from-an-idle-queue-unseen")
    {
        scope = Scope::Everything;
    }
    if let Some(First::Marked(_)) = firsts[Event::Batch]
        && let Some(again) = lookout.marks_again(version)
    {
        times[Event::Batch] = Some(again);
    }
    let mut seen = Seen { version, known: None, duty, clock, times, scope, claimed: None, seldom: None };
    if scope == Scope::Everything && lookout.looks_always() {
        let seldom = look_at_seldom(space, tr, version, &leases);
        let (claimed, seldom) = try_join(claimed(space, tr, lookout, version), seldom).await?;
        (seen.claimed, seen.seldom) = (claimed, Some(seldom));
    } else if scope == Scope::Everything || Event::ALL.iter().any(|event| seen.is_due(*event, lookout)) {
        seen.claimed = claimed(space, tr, lookout, version).await?;
        if seen.claimed.is_none() && scope == Scope::Everything {
            seen.seldom = Some(look_at_seldom(space, tr, version, &leases).await?);
        }
    }
    Ok(seen)
}

impl Seen {
    /// Whether this sweeper is to do what is due of an event. While another one is on duty, it does so only when that one is late.
    pub(crate) fn is_due(&self, event: Event, lookout: &Lookout) -> bool {
        let is_second = lookout.is_second(self.version, self.duty) && self.scope != Scope::Everything;
        !is_second && self.times[event].is_some_and(|time| time <= lookout.now)
    }
}

async fn claimed(
    space: &Space,
    tr: &Transaction,
    lookout: &Lookout,
    version: u64,
) -> Result<Option<u64>, QueueError> {
    let claim = tr.get(&space.claim, true).await?;
    Ok(held_by_another(claim.as_deref().and_then(Claim::decode), lookout.me, version))
}

async fn npop(space: &Space, tr: &Transaction) -> Result<Option<u64>, QueueError> {
    let npop = tr.get(space.counter(Counter::Pop), true).await?;
    Ok(npop.map(|npop| counters::decode(Some(&npop))))
}

async fn look_at_seldom<P: Fn(LeaseId) -> bool>(
    space: &Space,
    tr: &Transaction,
    version: u64,
    leases: &Leases<'_, P>,
) -> Result<Seldom, QueueError> {
    let (operation, times, went_back, requests, npop) = try_join5(
        oldest_operation(space, tr),
        times::read(space, tr, true),
        went_back::look(space, tr),
        want::look(space, tr, version),
        npop(space, tr),
    )
    .await?;
    let (has_requests, requests) = requests;
    // A setting of a later version is that version's work.
    let history =
        async { Ok(QueueError::if_readable(ended::setting(space, tr, true).await)?.ok().flatten()) };
    let (page, history) = try_join(look_at_leases(space, tr, version, leases), history).await?;
    Ok(Seldom { operation, times, went_back, has_requests, requests, npop, history, ..page })
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
    let mut pages = RangeRead::of((begin.as_slice(), end.as_slice())).pages(tr);
    let has_leases = leases.from.is_some();
    let (mut seen, mut bytes) = (Seldom { has_leases, ..Seldom::default() }, 0);
    while seen.expired.len() < max_expired()
        && let Some(page) = pages.next_page().await?
    {
        for row in page.iter() {
            bytes += row.key().len() + row.value().len();
            let Some(id) = leases::decode_key(&space.leases, row.key()) else { continue };
            let Some(header) = Header::decode(row.value()) else { continue };
            seen.has_leases = true;
            if let Some(left) = leases.history.left(&header, version) {
                let over_at = version.saturating_add(left.time - 1);
                seen.deadline = Some(seen.deadline.map_or(over_at, |first| first.min(over_at)));
                seen.doubtful += usize::from(left.is_past);
            } else if !(leases.passes)(id) {
                seen.expired.push(id);
            }
        }
        if bytes >= page_bytes() && page.has_more() && !mutant("look-unbounded") {
            seen.next = page.next();
            break;
        }
    }
    if leases.from.is_some() || seen.next.is_some() {
        let bytes = tr.get_estimated_range_size_bytes(&first, &end).await?;
        seen.pages = 2.max(bytes.unsigned_abs().div_ceil(page_bytes() as u64));
    }
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;

    use super::*;
    use crate::client::queue::Queue;
    use crate::keys::leases::Held;
    use crate::model::id::ItemId;
    use crate::model::session_id::SessionId;
    use crate::ops::lease;
    use crate::testing::on_database;

    /// The longest payload of which an earlier version put the body into the header, or nearly.
    const PAYLOAD: usize = 4_000;
    const LEASES: usize = 600;

    #[test]
    fn lease_reads_of_a_sweep_are_bounded_and_continue_in_the_next() {
        let _bounds = mutant::Bounds::default().with("lease-inline-bytes", 4_096).enter();
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
                let seen = look(space, &tr, &Lookout::always(), leases).await.unwrap().seldom.unwrap();
                // A page, and one reply of the database.
                assert!(seen.doubtful * PAYLOAD <= page_bytes() + 80_000, "{} in a look", seen.doubtful);
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
