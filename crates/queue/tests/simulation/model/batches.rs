//! Batches: items of any queues whose ends are counted, and a callback when all have ended.

use std::collections::{BTreeMap, BTreeSet};

use kvqueue_queue::item_batch::{BatchCounts, BatchId, NewBatch};
use kvqueue_queue::{Ending, ItemId, NewItem, from_millis, millis};

use super::{At, Model, Place, Sweeping, Verdict, promise};
use crate::image::Image;
use crate::image::batches::{Batch, MEMBERS, have_ended};
use crate::world::Millis;

type Counts = BTreeMap<u8, u64>;

/// The batches of a queue.
#[derive(Debug, Default)]
pub(super) struct Batches {
    pub(super) there: BTreeMap<BatchId, Batch>,
    /// The counts of each batch that there ever was, from which version on.
    counts: BTreeMap<BatchId, Vec<(u64, Counts)>>,
    /// Batches that have called back or were cancelled.
    gone: BTreeSet<BatchId>,
}

/// The members of batches that a transaction adds and ends.
#[derive(Debug, Default)]
pub(crate) struct Members {
    /// Items that it pushed, and others that joined.
    pushed: BTreeMap<BatchId, u64>,
    /// Those of them that had ended before they joined.
    ended_before: BTreeMap<BatchId, Counts>,
    ended: BTreeMap<BatchId, Counts>,
}

impl Members {
    pub(super) fn push(&mut self, id: &BatchId) {
        *self.pushed.entry(id.clone()).or_default() += 1;
    }

    pub(super) fn join_ended(&mut self, id: &BatchId, ending: Ending) {
        self.push(id);
        let code = Ending::ALL.iter().position(|of| *of == ending).map_or(0, |at| at as u8 + 1);
        *self.ended_before.entry(id.clone()).or_default().entry(code).or_default() += 1;
    }

    pub(super) fn end(&mut self, id: &BatchId, code: u8) {
        *self.ended.entry(id.clone()).or_default().entry(code).or_default() += 1;
    }
}

/// The code of an ending, if this is one.
pub(super) fn ending(from: &Place, to: &Place) -> Option<u8> {
    match to {
        // A dead letter has ended before.
        _ if *from == Place::Dead => None,
        Place::Done => Some(1),
        Place::Dead => Some(2),
        Place::Cancelled | Place::Purged => Some(3),
        Place::Expired => Some(4),
        Place::Taken => Some(5),
        Place::Ready | Place::Leased(_) | Place::Later(_) => None,
    }
}

/// The counts as people see them.
pub(crate) fn counts(of: &Counts) -> BatchCounts {
    let count = |code: u8| of.get(&code).copied().unwrap_or(0);
    BatchCounts {
        members: count(MEMBERS),
        done: count(1),
        dead: count(2),
        cancelled: count(3),
        expired: count(4),
        taken: count(5),
        ..BatchCounts::default()
    }
}

/// What a batch pushes when it calls back.
fn callback(id: &BatchId, batch: &Batch, is_complete: bool, of: &Counts, now: Millis) -> NewItem {
    let BatchCounts { members, done, dead, cancelled, expired, taken, .. } = counts(of);
    let outcome = if is_complete { "complete" } else { "deadline" };
    let numbers = [
        ("members", members),
        ("done", done),
        ("dead", dead),
        ("cancelled", cancelled),
        ("expired", expired),
        ("taken", taken),
    ];
    let item = batch.callback.clone().with_attribute("batch", id.to_string());
    let item = item.with_attribute("batch-outcome", outcome).with_enqueued_at(from_millis(now));
    numbers
        .into_iter()
        .fold(item, |item, (name, n)| item.with_attribute(format!("batch-{name}"), n.to_string()))
}

impl Model {
    /// The members that the last transaction has added and ended.
    pub(crate) fn take_members(&mut self) -> Members {
        std::mem::take(&mut self.members)
    }

    /// A transaction at any queue has added members to batches that are here, and ended some. It may wake sweepers more than once.
    pub(crate) fn members_changed(&mut self, members: &Members, after: &Image, at: At) -> Verdict {
        for (id, n) in &members.pushed {
            promise!(self.frozen.is_none(), "{id} got a member while its home was frozen");
            // It may be committed by the same transaction.
            let is_open = |batch: &&mut Batch| batch.committed.is_none() || batch.mark == Some(at.commit);
            let batch = self.batches.there.get_mut(id).filter(is_open);
            let batch = batch.ok_or_else(|| format!("{id} got a member, and is not open"))?;
            *batch.counts.entry(MEMBERS).or_default() += n;
            for (code, n) in members.ended_before.get(id).into_iter().flatten() {
                *batch.counts.entry(*code).or_default() += n;
            }
        }
        let mut marked = 0;
        for (id, ended) in &members.ended {
            let Some(batch) = self.batches.there.get_mut(id) else { continue };
            for (code, n) in ended {
                *batch.counts.entry(*code).or_default() += n;
            }
            if batch.committed.is_some() {
                batch.mark = Some(at.commit);
                marked += ended.values().sum::<u64>();
            }
        }
        for id in members.pushed.keys().chain(members.ended.keys()) {
            self.note_counts(id, at);
        }
        if marked > 0 {
            let woken = after.counters.nlater.wrapping_sub(self.counters.nlater);
            promise!(
                (1..=marked).contains(&woken),
                "{marked} members ended, which woke sweepers {woken} times"
            );
            self.counters.nlater += woken;
            self.counters.ndue += woken;
        }
        Ok(())
    }

    pub(super) fn batch_made(&mut self, id: &BatchId, new: &NewBatch, now: Millis) -> Verdict {
        promise!(!self.batches.gone.contains(id), "{id} was made once more");
        promise!(self.frozen.is_none(), "{id} was made while the queue was frozen");
        let NewBatch { callback, deadline } = new.clone();
        let batch = Batch {
            created: now,
            deadline: deadline.map(millis),
            row: deadline.map(millis),
            callback,
            ..Batch::default()
        };
        let earlier = self.batches.there.insert(id.clone(), batch);
        promise!(earlier.is_none(), "{id} was made twice");
        // Sweepers are woken.
        self.counters.nlater += u64::from(deadline.is_some());
        self.counters.ndue += u64::from(deadline.is_some());
        self.batches.counts.insert(id.clone(), vec![(0, Counts::new())]);
        Ok(())
    }

    pub(super) fn batch_committed(&mut self, id: &BatchId, now: Millis, at: At) -> Verdict {
        promise!(self.frozen.is_none(), "{id} was committed while the queue was frozen");
        let batch = self.batches.there.get_mut(id).filter(|batch| batch.committed.is_none());
        let batch = batch.ok_or_else(|| format!("{id} was committed twice"))?;
        (batch.committed, batch.mark) = (Some(now), Some(at.commit));
        self.counters.nlater += 1;
        self.counters.ndue += 1;
        Ok(())
    }

    pub(super) fn batch_cancelled(&mut self, id: &BatchId) -> Verdict {
        promise!(self.frozen.is_none(), "{id} was cancelled while the queue was frozen");
        promise!(self.batches.there.remove(id).is_some(), "{id} was cancelled twice");
        self.batches.gone.insert(id.clone());
        Ok(())
    }

    /// A batch calls back once: when it is committed and all members have ended, or when its deadline has passed, by the sweeper's clock. The
    /// callback has the counts that the sweeper saw. A mark is cleared of no batch that is complete.
    pub(super) fn batches_seen(
        &mut self,
        closed: &[(BatchId, ItemId)],
        unmarked: &[BatchId],
        by: Sweeping,
        at: At,
    ) -> Verdict {
        let mut items = Vec::new();
        for (id, item) in closed {
            let batch = self.batches.there.remove(id).ok_or_else(|| format!("{id} called back twice"))?;
            let seen = self.counts_at(id, at.read);
            let is_complete = batch.committed.is_some() && have_ended(&seen);
            let is_due = batch.deadline.is_some_and(|deadline| deadline <= by.now);
            promise!(is_complete || is_due, "{id} called back at {}: {batch:?}", by.now);
            promise!(!is_complete || seen == batch.counts, "{id} was complete with {seen:?}: {batch:?}");
            items.push((item.clone(), callback(id, &batch, is_complete, &seen, by.now)));
            self.batches.gone.insert(id.clone());
        }
        for id in unmarked {
            let seen = self.counts_at(id, at.read);
            let batch = self.batches.there.get_mut(id).ok_or_else(|| format!("{id} is not there"))?;
            let mark = batch.mark.take();
            promise!(mark.is_some_and(|mark| mark <= at.read), "{id} was marked at {mark:?}, unseen");
            let is_complete = batch.committed.is_some() && have_ended(&seen);
            let is_due = batch.deadline.is_some_and(|deadline| deadline <= by.now);
            promise!(!is_complete && !is_due, "{id} did not call back at {}: {batch:?}", by.now);
        }
        if items.is_empty() { Ok(()) } else { self.pushed(&items, None, at) }
    }

    fn note_counts(&mut self, id: &BatchId, at: At) {
        if let Some(batch) = self.batches.there.get(id) {
            let counts = batch.counts.clone();
            self.batches.counts.entry(id.clone()).or_default().push((at.commit, counts));
        }
    }

    fn counts_at(&self, id: &BatchId, version: u64) -> Counts {
        let counts = self.batches.counts.get(id).map(Vec::as_slice).unwrap_or_default();
        let last = counts.partition_point(|(commit, _)| *commit <= version);
        last.checked_sub(1).map(|last| counts[last].1.clone()).unwrap_or_default()
    }

    /// The batches that are there.
    pub(crate) fn batches(&self) -> &BTreeMap<BatchId, Batch> {
        &self.batches.there
    }

    /// Whether a batch that is gone now had these counts at a version, or since.
    pub(crate) fn had_counts(&self, id: &BatchId, version: u64, told: BatchCounts) -> bool {
        let all = self.batches.counts.get(id).map(Vec::as_slice).unwrap_or_default();
        let first = all.partition_point(|(commit, _)| *commit <= version).saturating_sub(1);
        self.batches.gone.contains(id) && all[first..].iter().any(|(_, of)| counts(of) == told)
    }
}
