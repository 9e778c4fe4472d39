//! Requests of takes that ask to be served: asking, reading the line of waiting requests, leaving it.

use foundationdb::Transaction;
use foundationdb::options::MutationType;
use futures::future::try_join;
use mutant::bound;

use crate::keys::wants::Want;
use crate::keys::{Space, items, range};
use crate::model::error::QueueError;
use crate::model::id_layout::suffix_stamp;
use crate::model::lease_id::LeaseId;
use crate::run::conflict;
use crate::run::range_read::RangeRead;
use crate::run::version::now;

/// The most requests that one transaction serves.
pub(crate) fn max_served() -> usize {
    bound("requests-served", 100)
}

/// How many requests a take looks at that asks only if others wait.
fn glance() -> usize {
    bound("requests-glanced-at", 8)
}

/// How long a request may be served, in versions. Who asked looks far more often than that, and asks again if its request was
/// dropped. What is served to the dead comes back only when its lease runs out; of each session that is one request at most.
pub(crate) const LIFE: u64 = 5_000_000;

/// How long each request is left to serve itself and the line by those behind it, in versions. The process that asked may be dead.
pub(crate) const PATIENCE: u64 = 500_000;

/// How many places wait one behind the other; those behind them all wait for as long as the last of these.
const MOST_PATIENT: usize = 4;

/// A request that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WaitingRequest {
    pub(crate) key: Vec<u8>,
    pub(crate) want: Want,
}

/// The requests for items from one end, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Line {
    /// The first of them, at most [`max_served`].
    pub(crate) first: Vec<WaitingRequest>,
    /// The one that the caller asked about, wherever it stands.
    pub(crate) own: Option<WaitingRequest>,
    /// Keys of requests that ran out.
    pub(crate) expired: Vec<Vec<u8>>,
}

impl Line {
    /// Whether the process that made the own request is to serve the line, having seen the same request first for this many versions: its own stands
    /// first, or those before it have let it wait. Each place behind waits longer, or all would serve at once and conflict.
    pub(crate) fn serves(&self, waited: u64) -> bool {
        let Some(own) = &self.own else { return false };
        let place = self.first.iter().position(|waiting| waiting == own).unwrap_or(self.first.len());
        !self.first.is_empty() && waited >= PATIENCE * place.min(MOST_PATIENT) as u64
    }

    /// Sorts a request in.
    fn add(&mut self, waiting: WaitingRequest, own: &[LeaseId], last: bool, now: u64) {
        let is_own = own.contains(&waiting.want.lease);
        if is_own {
            self.own = Some(waiting.clone());
        }
        if !is_own && waiting.want.deadline < now {
            if self.expired.len() < max_served() {
                self.expired.push(waiting.key);
            }
        } else if waiting.want.last == last && self.first.len() < max_served() {
            self.first.push(waiting);
        }
    }
}

/// Asks. The request's place in the line is that of this transaction among all commits.
pub(crate) fn ask(space: &Space, tr: &Transaction, want: &Want) {
    tr.atomic_op(
        &items::pending_record(&space.wants, 0, &[]),
        &want.encode(),
        MutationType::SetVersionstampedKey,
    );
}

/// Whether anybody may wait at the end that the queue is taken from: one of the first [`glance`] requests does, or there are as many.
pub(crate) async fn any(space: &Space, tr: &Transaction) -> Result<bool, QueueError> {
    let (requests, now) = try_join(first(space, tr, glance()), now(tr)).await?;
    let waits = |want: &Want| want.deadline >= now && want.last == space.kind.takes_last();
    Ok(requests.len() == glance() || requests.iter().any(|(_, want)| want.as_ref().is_some_and(waits)))
}

/// The expired requests at the beginning of the line.
async fn expired(space: &Space, tr: &Transaction, now: u64) -> Result<Vec<Vec<u8>>, QueueError> {
    let requests = first(space, tr, max_served()).await?;
    let ran_out = |want: Option<Want>| want.is_some_and(|want| want.deadline < now);
    Ok(requests.into_iter().filter_map(|(key, want)| ran_out(want).then_some(key)).collect())
}

/// Whether there are requests, and whether some of the first ran out.
pub(crate) async fn look(space: &Space, tr: &Transaction, now: u64) -> Result<(bool, bool), QueueError> {
    let requests = first(space, tr, max_served()).await?;
    let ran_out = |want: &Want| want.deadline < now;
    Ok((!requests.is_empty(), requests.iter().any(|(_, want)| want.as_ref().is_some_and(ran_out))))
}

/// Clears requests that ran out; returns how many. There may be more.
pub(crate) async fn dismiss(space: &Space, tr: &Transaction) -> Result<usize, QueueError> {
    let keys = expired(space, tr, now(tr).await?).await?;
    keys.iter().try_for_each(|key| remove(tr, key))?;
    Ok(keys.len())
}

/// The first requests, at snapshot isolation; `None` where one is of another layout.
async fn first(
    space: &Space,
    tr: &Transaction,
    limit: usize,
) -> Result<Vec<(Vec<u8>, Option<Want>)>, QueueError> {
    let rows = RangeRead::of(range(&space.wants)).limit(limit).exact().page(tr).await?;
    Ok(rows.iter().map(|row| (row.key().to_vec(), Want::decode(row.value()))).collect())
}

/// Reads the line, at snapshot isolation: as far as there are requests to serve, and on until one of `own` is found.
///
/// Requests of a layout that this version does not know are passed over.
pub(crate) async fn line(
    space: &Space,
    tr: &Transaction,
    own: &[LeaseId],
    now: u64,
) -> Result<Line, QueueError> {
    let mut pages = RangeRead::of(range(&space.wants)).pages(tr);
    let mut line = Line::default();
    while (line.own.is_none() || line.first.len() < max_served())
        && let Some(page) = pages.next_page().await?
    {
        for row in page.iter() {
            let stamp = row.key().strip_prefix(space.wants.as_slice()).and_then(suffix_stamp);
            if let (Some(_), Some(want)) = (stamp, Want::decode(row.value())) {
                let waiting = WaitingRequest { key: row.key().to_vec(), want };
                line.add(waiting, own, space.kind.takes_last(), now);
            }
        }
    }
    Ok(line)
}

/// Takes a request out of the line; fails at commit if another has.
pub(crate) fn remove(tr: &Transaction, key: &[u8]) -> Result<(), QueueError> {
    conflict::as_reader(tr, key)?;
    tr.clear(key);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;
    use crate::model::session_id::SessionId;

    const NOW: u64 = 1_000;

    fn waiting(session: u8, deadline: u64, last: bool) -> WaitingRequest {
        let lease = LeaseId { session: SessionId([session; 16]), number: 1 };
        let want = Want { lease, k: NonZeroUsize::MIN, length: 0, deadline, last };
        WaitingRequest { key: vec![session], want }
    }

    fn line_of(requests: impl IntoIterator<Item = WaitingRequest>, own: u8) -> Line {
        let own = [waiting(own, 0, false).want.lease];
        let mut line = Line::default();
        requests.into_iter().for_each(|waiting| line.add(waiting, &own, false, NOW));
        line
    }

    #[test]
    fn the_line_has_only_live_requests_of_its_end() {
        let requests = [
            waiting(1, NOW - 1, false),
            waiting(2, NOW, true),
            waiting(3, NOW, false),
            waiting(4, NOW - 1, true),
            waiting(5, NOW, false),
        ];
        let line = line_of(requests.clone(), 3);
        assert_eq!(line.first, [requests[2].clone(), requests[4].clone()]);
        assert_eq!(line.expired, [vec![1], vec![4]]);
        assert!(line.serves(0));
        assert!(!line_of(requests.clone(), 5).serves(0));
        assert!(!line_of(requests, 6).serves(u64::MAX));
    }

    #[test]
    fn the_first_request_serves_and_later_ones_after_their_patience() {
        let requests = [1, 2, 3].map(|session| waiting(session, NOW, false));
        for (waited, servers) in
            [(0, [true, false, false]), (PATIENCE, [true, true, false]), (2 * PATIENCE, [true; 3])]
        {
            assert_eq!([1, 2, 3].map(|own| line_of(requests.clone(), own).serves(waited)), servers);
        }
        assert!(!line_of(requests, 2).serves(PATIENCE - 1));
        assert!(!Line::default().serves(u64::MAX));
    }

    #[test]
    fn a_sessions_own_request_does_not_expire_while_it_reads() {
        let line = line_of([waiting(1, 0, false), waiting(2, NOW, false)], 1);
        assert!(line.serves(0) && line.expired.is_empty());
    }

    #[test]
    fn the_line_is_bounded_and_finds_the_own_request_behind_it() {
        let line = line_of((0..150).map(|n| waiting(n, NOW, false)), 140);
        assert_eq!((line.first.len(), line.own), (max_served(), Some(waiting(140, NOW, false))));
        let line = line_of((0..150).map(|n| waiting(n, 0, false)), 200);
        assert_eq!((line.first.len(), line.expired.len()), (0, max_served()));
    }
}
