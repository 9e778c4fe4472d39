//! The way of a batch: into the log and a delta at once, and with others into redb a little later.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::applier::{Apply, Job};
use super::env::Env;
use super::log::Log;
use super::outcome::{self, is_listable};
use super::pages::Meter;
use super::room::Room as FileRoom;
use super::state::State;
use super::tree::{Commit, Tree, Writes};
use super::{Applied, Batch, Durability, MAX_UNFLUSHED, Snapshot, StorageError};
use crate::engine::delta::{Delta, Weight};
use crate::engine::history::Group;
use crate::engine::mutation::Mutation;

/// A delta goes to redb when this much is in it.
const MOST: Weight = Weight { bytes: 256 << 10, writes: 2_048, removals: 128 };

/// Or when its first batch is so old.
const OLDEST: Duration = Duration::from_millis(5);

/// With this many mutations, or removals, a batch goes to redb by itself: that takes no longer than to keep it for others.
const LARGE: Weight = Weight { bytes: 0, writes: 200, removals: 48 };

fn is_large(batch: &Batch) -> bool {
    let is_removal = |mutation: &&Mutation| matches!(mutation, Mutation::ClearRange { .. });
    batch.mutations.len() >= LARGE.writes
        || batch.mutations.iter().filter(is_removal).count() >= LARGE.removals
}

/// What else changed for readers when a batch was applied.
#[derive(Debug, Default)]
pub struct Changed {
    /// What is to be read from now on, if it is another than before.
    pub state: Option<Arc<State>>,
    /// What has gone to redb, oldest first.
    pub applied: Vec<Group>,
    /// What the batch has written.
    pub touched: Touched,
}

/// What a batch has written.
#[derive(Debug)]
pub enum Touched {
    /// These keys.
    Keys(Vec<Bytes>),
    /// The keys of its mutations, ranges among them.
    By(Arc<Batch>),
}

impl Default for Touched {
    fn default() -> Touched {
        Touched::Keys(Vec::new())
    }
}

/// Rows of a database that is so small that they are counted to see how much of the file is free.
const FEW: u64 = 1_000;

/// Bytes of the file that are in use even if there are no rows.
const OVERHEAD: u64 = 512 << 10;

/// Space in the data file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// The disk gives the file no more space.
    pub is_short: bool,
    /// Bytes of the file's own that are free again. An estimate, on the low side.
    pub own: u64,
    /// Bytes of the disk that are free, and not needed for what was committed.
    pub left: u64,
    /// Bytes that can be written, those of the reserve and of the file's own among them.
    pub available: u64,
    /// Bytes of these that should be kept for transactions that free space.
    pub reserve: u64,
}

impl Room {
    /// Where the disk has no end.
    const PLENTY: Room = Room { is_short: false, own: 0, left: u64::MAX, available: u64::MAX, reserve: 0 };
}

/// A delta that the applier has.
#[derive(Debug)]
struct Frozen {
    delta: Arc<Delta>,
    /// The version of its last batch.
    last: i64,
}

/// What batches pass through, one at a time.
#[derive(Debug)]
pub struct Progress {
    tree: Arc<Tree>,
    env: Box<dyn Env>,
    applier: Box<dyn Apply>,
    log: Log,
    meter: Arc<Meter>,
    /// The disk's space, where it may end.
    room: Option<Arc<FileRoom>>,
    /// Bytes of the file that what came since the last checkpoint may take: redb writes some of it only then.
    pending: u64,
    /// The same of what a checkpoint has written since one that wrote nothing: until then redb keeps the pages that this freed.
    unfreed: u64,
    /// The number of the last batch at the last checkpoint.
    committed: u64,
    /// The disk has no more space for the file.
    is_short: bool,
    /// Bytes of the disk that are free or in the reserve, when that was last looked at.
    ahead: u64,
    /// An estimate of what the file has free of pages that were written before, bytes. When the file takes more of the disk it
    /// has none; from then on each removed row adds to it.
    free: i64,
    /// Bytes of the disk that the file took at the last checkpoint.
    used: u64,
    /// Bytes that redb had written to its file when the log began anew.
    written_before: u64,
    /// The number of the last batch.
    number: u64,
    /// Its version.
    version: i64,
    /// The newest version ceiling, unless redb has it.
    ceiling: Option<i64>,
    frozen: Option<Frozen>,
    active: Arc<Delta>,
    /// When something was first put into it.
    began: Option<Instant>,
    state: Arc<State>,
}

impl Progress {
    /// Goes on after batch `number`, which redb has.
    pub fn new(
        tree: Arc<Tree>,
        log: Log,
        meter: Arc<Meter>,
        number: u64,
        env: Box<dyn Env>,
    ) -> Result<Progress, StorageError> {
        let applier = env.start_applier(&tree).map_err(StorageError::NoThread)?;
        let active = Arc::new(Delta::default());
        let snapshot = Arc::new(tree.snapshot()?);
        let state = Arc::new(State::new(snapshot, vec![Arc::clone(&active)], 0, 0));
        let (ceiling, frozen, began) = (None, None, None);
        let (version, written_before) = (0, 0);
        Ok(Progress {
            tree,
            env,
            applier,
            log,
            meter,
            room: None,
            pending: 0,
            unfreed: 0,
            committed: number,
            is_short: false,
            ahead: 0,
            free: 0,
            used: 0,
            written_before,
            number,
            version,
            ceiling,
            frozen,
            active,
            began,
            state,
        })
    }

    /// What is to be read.
    pub fn state(&self) -> &Arc<State> {
        &self.state
    }

    /// Where the next record goes in the log.
    #[cfg(test)]
    pub fn log_end(&self) -> u64 {
        self.log.end()
    }

    /// From now on the disk's space is looked after.
    pub fn mind(&mut self, room: Arc<FileRoom>) {
        self.used = room.used();
        self.room = Some(room);
    }

    /// Whether a batch that takes `cost` bytes of the data file finds them, on a disk with `free` bytes. A disk that had no space
    /// for the reserve is asked for it again if `asks_again`.
    pub fn make_room(&mut self, cost: u64, free: u64, asks_again: bool) -> Room {
        let Some(room) = &self.room else { return Room::PLENTY };
        let (own, reserve) = (self.own(), room.wanted(self.used));
        let may_refill = asks_again || !self.is_short;
        let is_whole = room.held() >= reserve || (may_refill && room.refill(reserve));
        // Where no space can be set aside, as much is left free.
        let is_whole = is_whole || (room.is_unsupported() && free >= reserve + self.pending + cost);
        self.is_short = !is_whole || free < self.pending + cost;
        if !self.is_short {
            self.pending += cost;
        }
        self.ahead = free.saturating_add(room.held());
        let available = self.ahead.saturating_add(own).saturating_sub(self.pending + self.unfreed);
        Room { is_short: self.is_short, own, left: free.saturating_sub(self.pending), available, reserve }
    }

    /// Half of the estimate: pages are not free before the next checkpoint, and some are half full.
    fn own(&self) -> u64 {
        self.free.max(0).cast_unsigned() / 2
    }

    /// All that was written is on the disk: what does that say of the space in the file?
    fn estimate_free(&mut self) -> Result<(), StorageError> {
        let Some(room) = &self.room else { return Ok(()) };
        let used = room.used();
        if used > self.used {
            self.free = 0;
        }
        self.used = used;
        self.free = self.free.clamp(0, used.cast_signed());
        let snapshot = self.state.snapshot().expect("it is the newest state");
        if self.is_short && snapshot.len()? <= FEW {
            let mut bytes = OVERHEAD;
            for row in snapshot.range(b"", &[0xff; 64])? {
                let (key, value) = row?;
                bytes += 2 * (key.value().len() + value.value().len()) as u64;
            }
            // It is nearly exact, so `own` need not count half of it.
            self.free = self.free.max(2 * used.saturating_sub(bytes).cast_signed());
        }
        Ok(())
    }

    /// A transaction that is admitted on a full disk takes so much.
    pub fn use_room(&mut self, cost: u64) {
        self.pending += cost;
    }

    /// On a full disk only a checkpoint lets redb use again what was freed, and another one what that freed.
    pub fn is_crowded(&self) -> bool {
        self.is_short && self.pending + self.unfreed > (self.ahead + self.own()) / 8
    }

    /// Puts a batch into the log, and where readers find it. Where the log has no room for it, or redb has much that is not flushed, all goes
    /// to redb, durably.
    pub fn apply(&mut self, batch: Batch, durability: Durability) -> Result<Changed, StorageError> {
        self.number += 1;
        self.version = batch.version;
        self.ceiling = batch.ceiling.or(self.ceiling);
        let is_much = self.meter.written() - self.written_before > MAX_UNFLUSHED;
        if is_much || self.is_crowded() || !self.log.has_room(&batch) {
            return self.commit(batch);
        }
        if is_large(&batch) || !self.state.newest(|before| is_listable(before, &batch.mutations))? {
            return self.add_to_redb(Arc::new(batch), durability);
        }
        self.log.write(self.number, &batch)?;
        let Batch { version, mutations, .. } = batch;
        if !mutations.is_empty() {
            self.began.get_or_insert_with(|| self.env.now());
        }
        let keys = self.state.below(|below| outcome::write(below, &self.active, version, mutations))?;
        self.log.flush_for(durability)?;
        let changed = self.turn(false)?;
        Ok(Changed { touched: Touched::Keys(keys), ..changed })
    }

    /// Flushes what was only written, and gives redb what it does not have.
    pub fn rest(&mut self) -> Result<Changed, StorageError> {
        self.log.flush()?;
        self.turn(true)
    }

    /// Flushes what was only written.
    pub fn flush_log(&mut self) -> Result<(), StorageError> {
        self.log.flush()
    }

    /// Leaves nothing in the log.
    pub fn settle(&mut self) -> Result<Changed, StorageError> {
        let is_done = self.log.is_empty() && !self.is_crowded();
        if is_done { self.turn(true) } else { self.commit(Batch::default()) }
    }

    /// Makes everything durable in redb's file, which needs no log then.
    pub fn close(&mut self) -> Result<(), StorageError> {
        if self.log.is_used() { self.give_all(Batch::default(), Commit::AndEnd).map(drop) } else { Ok(()) }
    }

    /// Makes a batch, and all that redb does not have, durable there; the log begins anew.
    fn commit(&mut self, batch: Batch) -> Result<Changed, StorageError> {
        let mark = self.log.prepare(self.number)?;
        let changed = self.give_all(batch, Commit::AndBegin(mark))?;
        self.log.begin(mark);
        self.written_before = self.meter.written();
        let is_empty = std::mem::replace(&mut self.committed, self.number) == self.number;
        self.unfreed = match (is_empty, self.is_short) {
            (true, _) => 0,
            (false, true) => self.unfreed + self.pending,
            (false, false) => self.pending,
        };
        self.pending = 0;
        self.estimate_free()?;
        Ok(changed)
    }

    /// Applies all that redb does not have, and then the batch, while that is flushed to the log.
    fn add_to_redb(&mut self, batch: Arc<Batch>, durability: Durability) -> Result<Changed, StorageError> {
        let mut changed = Changed::default();
        self.collect(true, &mut changed)?;
        let group = self.freeze(Some(Arc::clone(&batch)))?;
        // Whatever becomes of the log: the applier has no other job when this returns.
        let logged = self.log.write(self.number, &batch).and_then(|()| self.log.flush_for(durability));
        let applied = self.applier.wait();
        logged?;
        self.finish(group, applied?, &mut changed);
        changed.touched = Touched::By(batch);
        Ok(changed)
    }

    /// Gives the applier what redb does not have.
    fn freeze(&mut self, batch: Option<Arc<Batch>>) -> Result<Frozen, StorageError> {
        let delta = std::mem::take(&mut self.active);
        self.began = None;
        let (ceiling, number) = (self.ceiling.take(), self.number);
        self.applier.begin(Job { delta: Arc::clone(&delta), batch, ceiling, number })?;
        Ok(Frozen { delta, last: self.version })
    }

    /// Gives redb all that it does not have, and then a batch that is in no delta.
    fn give_all(&mut self, batch: Batch, commit: Commit) -> Result<Changed, StorageError> {
        let mut changed = Changed::default();
        self.collect(true, &mut changed)?;
        let writes = Writes { delta: Some(&self.active), mutations: &batch.mutations };
        let applied = self.tree.apply(writes, self.ceiling.take(), self.number, commit)?;
        let group = Frozen { delta: std::mem::take(&mut self.active), last: self.version };
        self.began = None;
        self.finish(group, applied, &mut changed);
        changed.touched = Touched::By(Arc::new(batch));
        Ok(changed)
    }

    /// Takes note of what the applier has done, and gives it more when that is due, or at once.
    fn turn(&mut self, at_once: bool) -> Result<Changed, StorageError> {
        let mut changed = Changed::default();
        self.collect(at_once, &mut changed)?;
        if self.frozen.is_none() && (at_once || self.is_due()) && self.began.is_some() {
            self.frozen = Some(self.freeze(None)?);
            let snapshot = self.state.snapshot().expect("it is the newest state");
            self.show(snapshot, self.state.base(), self.state.written(), &mut changed);
        }
        Ok(changed)
    }

    fn is_due(&self) -> bool {
        let Weight { bytes, writes, removals } = self.active.weight();
        bytes >= MOST.bytes
            || writes >= MOST.writes
            || removals >= MOST.removals
            || self.began.is_some_and(|began| self.env.now().duration_since(began) >= OLDEST)
    }

    fn collect(&mut self, wait: bool, changed: &mut Changed) -> Result<(), StorageError> {
        if self.frozen.is_none() {
            return Ok(());
        }
        let applied = if wait { Some(self.applier.wait()) } else { self.applier.poll() };
        if let Some(applied) = applied.transpose()?
            && let Some(frozen) = self.frozen.take()
        {
            self.finish(frozen, applied, changed);
        }
        Ok(())
    }

    /// A group is in redb.
    fn finish(&mut self, group: Frozen, applied: Applied, changed: &mut Changed) {
        let Frozen { delta, last } = group;
        self.free -= applied.net;
        changed.applied.push(Group { delta, layer: applied.layer, last });
        self.show(applied.snapshot, last, self.meter.written(), changed);
    }

    /// Makes a state of a snapshot and what is not in it.
    fn show(&mut self, snapshot: Arc<Snapshot>, base: i64, written: u64, changed: &mut Changed) {
        let frozen = self.frozen.iter().map(|frozen| Arc::clone(&frozen.delta));
        let deltas = frozen.chain([Arc::clone(&self.active)]).collect();
        self.state = Arc::new(State::new(snapshot, deltas, base, written));
        changed.state = Some(Arc::clone(&self.state));
    }
}
