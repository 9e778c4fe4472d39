//! Fetching from a queue with partitions: which partition a session fetches from, and how far.
//!
//! A session stays at one partition while that has items that are old enough: each fetched item is at most `max-disorder` younger than the
//! oldest ready item. Otherwise it chooses another partition.
//!
//! Sessions divide partitions among them by patience. An item that is first in a partition is left alone for that long, so that another
//! session can get it that does not wait there. A session that loses against another one in a partition becomes patient there, and, less so, in
//! all partitions where it has neither won nor lost. A session that gets items in a partition becomes less patient there. So each partition soon
//! has one session that does not wait, and the others come if that one does not. A session that never meets others never waits.

use std::num::NonZeroUsize;
use std::sync::Arc;

use foundationdb::Transaction;

use super::Session;
use super::plan::Chosen;
use super::suspects::PAGE;
use crate::client::session::known_partitions::{HEADS_KNOWN, Heads, PartitionChoice};
use crate::client::session::options::{FetchOptions, Goal};
use crate::keys::Space;
use crate::model::error::QueueError;
use crate::model::kind::Kind;
use crate::model::place::Extent;
use crate::ops::claim::passed_over;
use crate::ops::partitions;
use crate::ops::ready::is_full;
use crate::ops::scan::Row;
use crate::run::version::now;
use mutant::mutant;

impl Session {
    /// Whether the queue has partitions, as far as the session has known for a moment, or reads now.
    pub(super) async fn is_divided(&mut self, tr: &Transaction) -> Result<bool, QueueError> {
        let space = self.queue.space().clone();
        if space.kind != Kind::Fifo {
            return Ok(false);
        }
        let version = now(tr).await?;
        if self.partitions.known(version).is_none() {
            let record = partitions::read(&space, tr).await?;
            self.partitions.learn(&space, record, version);
        }
        Ok(!self.partitions.spaces.is_empty())
    }

    /// Reads how the queue is divided, unless the session has read it in this transaction. Returns whether that has changed.
    pub(super) async fn is_division_news(&mut self, tr: &Transaction) -> Result<bool, QueueError> {
        let (space, version) = (self.queue.space().clone(), now(tr).await?);
        let Some((known, read_at)) = self.partitions.division.filter(|_| space.kind == Kind::Fifo) else {
            return Ok(false);
        };
        if read_at == version || mutant("division-known-while-empty") {
            return Ok(false);
        }
        let record = partitions::read(&space, tr).await?;
        self.partitions.learn(&space, record, version);
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
        let max_disorder =
            self.partitions.division.and_then(|(record, _)| record).map_or(0, |it| it.max_disorder);
        if max_disorder == 0 {
            return self.choose_in_order(tr, take, goal).await;
        }
        let known = self.partitions.heads.take();
        let known = known.filter(|heads| (heads.at..heads.at.saturating_add(HEADS_KNOWN)).contains(&version));
        let mut is_of_now = known.is_none();
        let mut heads = match known {
            Some(heads) => heads,
            None => self.read_heads(tr, version).await?,
        };
        loop {
            let choice = self.partitions.choose(&heads, version, max_disorder, &mut self.rng);
            let (partition, until) = match choice {
                PartitionChoice::Partition(partition, until) => (partition, until),
                PartitionChoice::Wait if is_of_now => {
                    return Ok(Chosen::Waits(self.queue.space().partitions.clone()));
                }
                PartitionChoice::None if is_of_now => return Ok(Chosen::Empty(None)),
                // What was read earlier may be out of date.
                PartitionChoice::Wait | PartitionChoice::None => {
                    (heads, is_of_now) = (self.read_heads(tr, version).await?, true);
                    continue;
                }
            };
            let space = self.partitions.spaces[usize::from(partition)].clone();
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
                self.partitions.behind = took_all.then_some((partition, last));
                self.partitions.heads = Some(heads);
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
        let spaces = self.partitions.spaces.clone();
        (self.partitions.heads, self.partitions.behind) = (None, None);
        loop {
            let rows = self.find_allowed(tr, take.k, &spaces, goal.is_lease()).await?;
            if let Some(chosen) = self.claim(tr, take, (rows, Extent::Unknown), true, goal)? {
                return Ok(chosen);
            }
        }
    }

    async fn read_heads(&self, tr: &Transaction, version: u64) -> Result<Heads, QueueError> {
        Ok(Heads { at: version, of: partitions::heads(&self.partitions.spaces, tr).await? })
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
