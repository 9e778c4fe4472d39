//! Fetching from a queue with partitions: which partition a session fetches from, and how far.
//!
//! A session stays at one partition while that has items that are old enough: each fetched item is at most `max-disorder` younger than the
//! oldest ready item. Otherwise it chooses another partition.
//!
//! Sessions divide partitions among them by patience. A session that loses against another one in a partition is patient there from then
//! on: each of its fetches waits before it goes to that partition, so that the session that won gets the items. A session that gets
//! items although it has waited becomes less patient there. So each partition soon has one session that does not wait, and sessions do not
//! conflict if they are not more than partitions. A session that never meets others never waits.

use std::num::NonZeroUsize;
use std::sync::Arc;

use foundationdb::Transaction;

use super::Session;
use super::choose::Chosen;
use super::fetch::{FetchOptions, Goal};
use super::suspects::PAGE;
use crate::approach::Extent;
use crate::error::QueueError;
use crate::item::Stamp;
use crate::keys::Space;
use crate::keys::partitions::{Deal, Record};
use crate::kind::Kind;
use crate::ops::claim::{is_full, passed_over};
use crate::ops::partitions;
use crate::ops::push::Pusher;
use crate::ops::scan::Row;
use crate::ops::version::now;
use crate::rng::Rng;
use mutant::mutant;

/// For how many versions a session relies on how the queue was divided. A tenth of a second.
const DIVISION_KNOWN: u64 = 100_000;

/// For how many versions a session relies on which items were first in each partition. A twentieth of a second.
const HEADS_KNOWN: u64 = 50_000;

/// How long a session waits, in versions, after it has lost in a partition for the first time: as long as a commit takes, and up to
/// twice as long, so that sessions do not wait alike.
const PATIENCE: u64 = 15_000;

/// The longest wait, in versions: how long an item may lie in a partition whose session is gone.
const MAX_PATIENCE: u64 = 60_000;

/// A shorter patience is none.
const MIN_PATIENCE: u64 = 2_000;

/// What a session knows of its queue's partitions.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    /// The record, and the version that it was read at.
    division: Option<(Option<Record>, u64)>,
    /// The spaces of all partitions, if there are several.
    spaces: Vec<Arc<Space>>,
    heads: Option<Heads>,
    /// The last item that the fetch under way takes, and its partition.
    behind: Option<(u8, Stamp)>,
    /// Where the session fetches.
    at: Option<u8>,
    /// How long a fetch waits before it goes to each partition, in versions.
    patience: Vec<u64>,
    /// The version at which the fetch under way has begun, or has lost.
    since: Option<u64>,
    /// How many pushes there were.
    pushes: u64,
}

/// The first item of each partition.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Heads {
    /// The version that they were read at.
    at: u64,
    of: Vec<Option<Stamp>>,
}

/// Where a fetch looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lane {
    /// In this partition, for items of versions up to this one.
    Partition(u8, u64),
    /// There may be items, and they are too fresh for it.
    Wait,
    /// No partition has an item for it.
    None,
}

impl Heads {
    /// The version of the oldest ready item, or an earlier one.
    fn oldest(&self) -> u64 {
        // What has come into an empty partition is younger than the look.
        let versions = self.of.iter().map(|head| head.map_or(self.at, |stamp| stamp.version()));
        versions.min().unwrap_or(self.at)
    }
}

impl Lanes {
    /// How many pushes there were; counts one.
    pub(super) fn next_turn(&mut self, rng: &mut Rng) -> u64 {
        if self.pushes == 0 {
            // Sessions begin at different partitions.
            self.pushes = rng.next() >> 1;
        }
        self.pushes += 1;
        self.pushes
    }

    /// Whether it is known that the queue has no partitions.
    pub(super) fn is_plain(&self, version: u64) -> bool {
        matches!(self.known(version), Some(None))
    }

    /// A push has found out how the queue is divided.
    pub(super) fn pushed(&mut self, pusher: &Pusher<'_>, version: u64) {
        if pusher.deal() == Some(Deal::PLAIN) && self.spaces.is_empty() && self.known(version).is_none() {
            self.division = Some((None, version));
        }
    }

    fn known(&self, version: u64) -> Option<Option<Record>> {
        let (record, read_at) = self.division?;
        (read_at..read_at.saturating_add(DIVISION_KNOWN)).contains(&version).then_some(record)
    }

    fn learn(&mut self, space: &Space, record: Option<Record>, version: u64) {
        let most = record.map_or(1, |record| usize::from(record.most));
        if most == 1 {
            (self.spaces, self.heads) = (Vec::new(), None);
        } else if self.spaces.len() != most {
            self.spaces = partitions::all(space, record);
            self.patience.resize(most, 0);
            self.heads = None;
        }
        self.division = Some((record, version));
    }

    /// The fetch under way has failed; whether it has lost against another.
    pub(super) fn failed(&mut self, lost: bool, rng: &mut Rng) {
        (self.heads, self.behind, self.since) = (None, None, None);
        if lost && let Some(patience) = self.at.take().and_then(|at| self.patience.get_mut(usize::from(at))) {
            let more = PATIENCE + rng.next() % PATIENCE;
            *patience = patience.saturating_mul(2).saturating_add(more).min(MAX_PATIENCE);
        }
    }

    /// The fetch under way has committed, with items.
    pub(super) fn committed(&mut self) {
        if let (Some(heads), Some((partition, stamp))) = (&mut self.heads, self.behind.take()) {
            heads.of[usize::from(partition)] = Some(stamp);
        }
        self.since = None;
        if let Some(patience) = self.at.and_then(|at| self.patience.get_mut(usize::from(at))) {
            *patience = if *patience < 2 * MIN_PATIENCE { 0 } else { *patience / 2 };
        }
    }

    /// Chooses a partition.
    fn choose(&mut self, heads: &Heads, version: u64, max_disorder: u64, rng: &mut Rng) -> Lane {
        let until = heads.oldest().saturating_add(max_disorder);
        let until = if mutant("disorder-unbounded") { u64::MAX } else { until };
        let with_items = (0..).zip(&heads.of).filter_map(|(i, head)| Some((i, head.as_ref()?.version())));
        let eligible: Vec<(u8, u64)> = with_items.filter(|(_, head)| *head <= until).collect();
        let since = *self.since.get_or_insert(version);
        let patience = |i: u8| self.patience.get(usize::from(i)).copied().unwrap_or(0);
        let is_over = |i: &u8| since.saturating_add(patience(*i)) <= version;
        let allowed: Vec<u8> = eligible.iter().map(|(i, _)| *i).filter(is_over).collect();
        let Some(least) = allowed.iter().map(|i| patience(*i)).min() else {
            return if eligible.is_empty() { Lane::None } else { Lane::Wait };
        };
        let at = match self.at.filter(|at| allowed.contains(at)) {
            Some(at) => at,
            None => {
                let best: Vec<u8> = allowed.into_iter().filter(|i| patience(*i) == least).collect();
                best[rng.below(best.len())]
            }
        };
        self.at = Some(at);
        Lane::Partition(at, until)
    }
}

impl Session {
    /// Whether the queue has partitions, as far as the session has known for a moment, or reads now.
    pub(super) async fn is_divided(&mut self, tr: &Transaction) -> Result<bool, QueueError> {
        let space = self.queue.space().clone();
        if space.kind != Kind::Fifo {
            return Ok(false);
        }
        let version = now(tr).await?;
        if self.lanes.known(version).is_none() {
            let record = partitions::read(&space, tr).await?;
            self.lanes.learn(&space, record, version);
        }
        Ok(!self.lanes.spaces.is_empty())
    }

    /// Reads how the queue is divided, unless the session has read it in this transaction. Returns whether that has changed.
    pub(super) async fn is_division_news(&mut self, tr: &Transaction) -> Result<bool, QueueError> {
        let (space, version) = (self.queue.space().clone(), now(tr).await?);
        let Some((known, read_at)) = self.lanes.division.filter(|_| space.kind == Kind::Fifo) else {
            return Ok(false);
        };
        if read_at == version || mutant("division-known-while-empty") {
            return Ok(false);
        }
        let record = partitions::read(&space, tr).await?;
        self.lanes.learn(&space, record, version);
        Ok(record != known)
    }

    /// Chooses a partition, and removes its first items.
    pub(super) async fn choose_partition(
        &mut self,
        tr: &Transaction,
        take: &FetchOptions<'_>,
        goal: Goal<'_>,
    ) -> Result<Chosen, QueueError> {
        let version = now(tr).await?;
        let max_disorder = self.lanes.division.and_then(|(record, _)| record).map_or(0, |it| it.max_disorder);
        if max_disorder == 0 {
            return self.choose_in_order(tr, take, goal).await;
        }
        let known = self.lanes.heads.take();
        let known = known.filter(|heads| (heads.at..heads.at.saturating_add(HEADS_KNOWN)).contains(&version));
        let mut is_of_now = known.is_none();
        let mut heads = match known {
            Some(heads) => heads,
            None => self.read_heads(tr, version).await?,
        };
        loop {
            let lane = self.lanes.choose(&heads, version, max_disorder, &mut self.rng);
            let (partition, until) = match lane {
                Lane::Partition(partition, until) => (partition, until),
                Lane::Wait if is_of_now => return Ok(Chosen::Waits(self.queue.space().partitions.clone())),
                Lane::None if is_of_now => {
                    self.lanes.since = None;
                    return Ok(Chosen::Empty);
                }
                // What was read earlier may be out of date.
                Lane::Wait | Lane::None => {
                    (heads, is_of_now) = (self.read_heads(tr, version).await?, true);
                    continue;
                }
            };
            let space = self.lanes.spaces[usize::from(partition)].clone();
            let mut rows = self.find_allowed(tr, take.k, &[space], goal.is_lease()).await?;
            // Items that this fetch may not have are passed over, as if they were being handled.
            heads.of[usize::from(partition)] = rows.first().and_then(|row| row.id.stamp());
            let is_old_enough = |row: &&Row| row.id.stamp().is_some_and(|stamp| stamp.version() <= until);
            let count = rows.iter().take_while(is_old_enough).count();
            rows.truncate(count);
            let Some(last) = rows.last().and_then(|row| row.id.stamp()) else { continue };
            if let Some(chosen) = self.claim(tr, take, (rows, Extent::Unknown), true, goal)? {
                // Once this has committed, the first item that is left there is behind these.
                let took_all = matches!(&chosen, Chosen::Rows(rows, _) if rows.len() == count);
                self.lanes.behind = took_all.then_some((partition, last));
                self.lanes.heads = Some(heads);
                return Ok(chosen);
            }
        }
    }

    /// Removes the first items of all partitions, in the order of their pushes.
    async fn choose_in_order(
        &mut self,
        tr: &Transaction,
        take: &FetchOptions<'_>,
        goal: Goal<'_>,
    ) -> Result<Chosen, QueueError> {
        let spaces = self.lanes.spaces.clone();
        (self.lanes.heads, self.lanes.behind) = (None, None);
        loop {
            let rows = self.find_allowed(tr, take.k, &spaces, goal.is_lease()).await?;
            if let Some(chosen) = self.claim(tr, take, (rows, Extent::Unknown), true, goal)? {
                return Ok(chosen);
            }
        }
    }

    async fn read_heads(&self, tr: &Transaction, version: u64) -> Result<Heads, QueueError> {
        Ok(Heads { at: version, of: partitions::heads(&self.lanes.spaces, tr).await? })
    }

    /// The first items of these partitions, from the first on that this fetch may have.
    async fn find_allowed(
        &self,
        tr: &Transaction,
        k: NonZeroUsize,
        spaces: &[Arc<Space>],
        on_lease: bool,
    ) -> Result<Vec<Row>, QueueError> {
        let space = self.queue.space();
        let (mut limit, mut behind) = (k, None);
        loop {
            let mut rows = partitions::find(spaces, tr, limit, behind).await?;
            let count = passed_over(space, &rows, || self.allows(on_lease))?;
            if count < rows.len() {
                rows.drain(..count);
                return Ok(rows);
            }
            if !is_full(space, &rows, limit) {
                return Ok(Vec::new());
            }
            (limit, behind) = (k.max(PAGE), rows.last().and_then(|row| row.id.stamp()));
        }
    }
}
