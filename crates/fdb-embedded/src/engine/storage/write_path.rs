//! The way of a batch: into the log and a memtable at once, and with others into redb a little later.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::env::StorageEnv;
use super::log::Log;
use super::memtable_flusher::{FlushJob, MemtableFlusher};
use super::mutation_evaluator::{evaluate, removes_few_keys};
use super::pages::Meter;
use super::space_reserve::SpaceReserve;
use super::superversion::Superversion;
use super::tree::{Tree, TreeCommit, TreeWrites};
use super::{Durability, FlushedTree, MAX_UNFLUSHED, Snapshot, StorageError, WriteBatch};
use crate::engine::memtable::{Memtable, MemtableSize};
use crate::engine::mutation::Mutation;
use crate::engine::undo_log::FlushedMemtable;

/// A memtable goes to redb when this much is in it.
const MEMTABLE_LIMIT: MemtableSize = MemtableSize { bytes: 256 << 10, writes: 2_048, removals: 128 };

/// Or when its first batch is so old.
const MEMTABLE_MAX_AGE: Duration = Duration::from_millis(5);

/// With this many mutations, or removals, a batch goes to redb by itself: that takes no longer than to keep it for others.
const LARGE_BATCH: MemtableSize = MemtableSize { bytes: 0, writes: 200, removals: 48 };

fn is_large_batch(batch: &WriteBatch) -> bool {
    let is_removal = |mutation: &&Mutation| matches!(mutation, Mutation::ClearRange { .. });
    batch.mutations.len() >= LARGE_BATCH.writes
        || batch.mutations.iter().filter(is_removal).count() >= LARGE_BATCH.removals
}

/// What else update for readers when a batch was applied.
#[derive(Debug, Default)]
pub struct StorageUpdate {
    /// What is to be read from now on, if it is another than before.
    pub superversion: Option<Arc<Superversion>>,
    /// What has gone to redb, oldest first.
    pub flushed: Vec<FlushedMemtable>,
    /// What the batch has written.
    pub written_keys: WrittenKeys,
}

/// What a batch has written.
#[derive(Debug)]
pub enum WrittenKeys {
    /// These keys.
    Keys(Vec<Bytes>),
    /// The keys of its mutations, ranges among them.
    Mutations(Arc<WriteBatch>),
}

impl Default for WrittenKeys {
    fn default() -> WrittenKeys {
        WrittenKeys::Keys(Vec::new())
    }
}

/// Rows of a database that is so small that they are counted to see how much of the file is free.
const FEW_ROWS: u64 = 1_000;

/// Bytes of the file that are in use even if there are no rows.
const EMPTY_FILE_BYTES: u64 = 512 << 10;

/// Space in the data file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskSpace {
    /// The disk gives the file no more space.
    pub is_short: bool,
    /// Bytes of the file's reusable that are free again. An estimate, on the low side.
    pub reusable: u64,
    /// Bytes of the disk that are free, and not needed for what was committed.
    pub unused: u64,
    /// Bytes that can be written, those of the reserve and of the file's reusable among them.
    pub available: u64,
    /// Bytes of these that should be kept for transactions that free space.
    pub reserve: u64,
}

impl DiskSpace {
    /// Where the disk has no end.
    const PLENTY: DiskSpace =
        DiskSpace { is_short: false, reusable: 0, unused: u64::MAX, available: u64::MAX, reserve: 0 };
}

/// A memtable that the flusher has.
#[derive(Debug)]
struct ImmutableMemtable {
    memtable: Arc<Memtable>,
    /// The version of its last batch.
    last: i64,
}

/// What batches pass through, one at a time.
#[derive(Debug)]
pub struct WritePath {
    tree: Arc<Tree>,
    env: Box<dyn StorageEnv>,
    flusher: Box<dyn MemtableFlusher>,
    log: Log,
    meter: Arc<Meter>,
    /// The disk's space, where it may end.
    reserve: Option<Arc<SpaceReserve>>,
    /// Bytes of the file that what came since the last checkpoint may take: redb writes some of it only then.
    pending: u64,
    /// The same of what a checkpoint has written since one that wrote nothing: until then redb keeps the pages that this freed.
    unfreed: u64,
    /// The lsn of the last batch at the last checkpoint.
    committed: u64,
    /// The disk has no more space for the file.
    is_short: bool,
    /// Bytes of the disk that are free or in the reserve, when that was last looked at.
    disk_bytes: u64,
    /// An estimate of what the file has free of pages that were written before, bytes. When the file takes more of the disk it
    /// has none; from then on each removed row adds to it.
    free: i64,
    /// Bytes of the disk that the file took at the last checkpoint.
    used: u64,
    /// Bytes that redb had written to its file when the log began anew.
    written_before: u64,
    /// The lsn of the last batch.
    lsn: u64,
    /// Its version.
    version: i64,
    /// The newest version ceiling, unless redb has it.
    ceiling: Option<i64>,
    immutable: Option<ImmutableMemtable>,
    active: Arc<Memtable>,
    /// When something was first put into it.
    began: Option<Instant>,
    superversion: Arc<Superversion>,
}

impl WritePath {
    /// Goes on after batch `lsn`, which redb has.
    pub fn new(
        tree: Arc<Tree>,
        log: Log,
        meter: Arc<Meter>,
        lsn: u64,
        env: Box<dyn StorageEnv>,
    ) -> Result<WritePath, StorageError> {
        let flusher = env.start_flusher(&tree).map_err(StorageError::NoThread)?;
        let active = Arc::new(Memtable::default());
        let snapshot = Arc::new(tree.snapshot()?);
        let superversion = Arc::new(Superversion::new(snapshot, vec![Arc::clone(&active)], 0, 0));
        let (ceiling, immutable, began) = (None, None, None);
        let (version, written_before) = (0, 0);
        Ok(WritePath {
            tree,
            env,
            flusher,
            log,
            meter,
            reserve: None,
            pending: 0,
            unfreed: 0,
            committed: lsn,
            is_short: false,
            disk_bytes: 0,
            free: 0,
            used: 0,
            written_before,
            lsn,
            version,
            ceiling,
            immutable,
            active,
            began,
            superversion,
        })
    }

    /// What is to be read.
    pub fn superversion(&self) -> &Arc<Superversion> {
        &self.superversion
    }

    /// Where the next record goes in the log.
    #[cfg(test)]
    pub fn log_end(&self) -> u64 {
        self.log.end()
    }

    /// From now on the disk's space is looked after.
    pub fn set_space_reserve(&mut self, reserve: Arc<SpaceReserve>) {
        self.used = reserve.used();
        self.reserve = Some(reserve);
    }

    /// Whether a batch that takes `cost` bytes of the data file finds them, on a disk with `free` bytes. A disk that had no space
    /// for the reserve is asked for it again if `asks_again`.
    pub fn reserve_space(&mut self, cost: u64, free: u64, asks_again: bool) -> DiskSpace {
        let Some(reserve) = &self.reserve else { return DiskSpace::PLENTY };
        let (reusable, wanted) = (self.reusable(), reserve.wanted(self.used));
        let may_refill = asks_again || !self.is_short;
        let is_whole = reserve.held() >= wanted || (may_refill && reserve.refill(wanted));
        // Where no space can be set aside, as much is left free.
        let is_whole = is_whole || (reserve.is_unsupported() && free >= wanted + self.pending + cost);
        self.is_short = !is_whole || free < self.pending + cost;
        if !self.is_short {
            self.pending += cost;
        }
        self.disk_bytes = free.saturating_add(reserve.held());
        let available = self.disk_bytes.saturating_add(reusable).saturating_sub(self.pending + self.unfreed);
        DiskSpace {
            is_short: self.is_short,
            reusable,
            unused: free.saturating_sub(self.pending),
            available,
            reserve: wanted,
        }
    }

    /// Half of the estimate: pages are not free before the next checkpoint, and some are half full.
    fn reusable(&self) -> u64 {
        self.free.max(0).cast_unsigned() / 2
    }

    /// All that was written is on the disk: what does that say of the space in the file?
    fn estimate_free(&mut self) -> Result<(), StorageError> {
        let Some(reserve) = &self.reserve else { return Ok(()) };
        let used = reserve.used();
        if used > self.used {
            self.free = 0;
        }
        self.used = used;
        self.free = self.free.clamp(0, used.cast_signed());
        let snapshot = self.superversion.snapshot().expect("it is the newest state");
        if self.is_short && snapshot.len()? <= FEW_ROWS {
            let mut bytes = EMPTY_FILE_BYTES;
            for row in snapshot.range(b"", &[0xff; 64])? {
                let (key, value) = row?;
                bytes += 2 * (key.value().len() + value.value().len()) as u64;
            }
            // It is nearly exact, so `reusable` need not count half of it.
            self.free = self.free.max(2 * used.saturating_sub(bytes).cast_signed());
        }
        Ok(())
    }

    /// A transaction that is admitted on a full disk takes so much.
    pub fn charge_space(&mut self, cost: u64) {
        self.pending += cost;
    }

    /// On a full disk only a checkpoint lets redb use again what was freed, and another one what that freed.
    pub fn needs_checkpoint_for_space(&self) -> bool {
        self.is_short && self.pending + self.unfreed > (self.disk_bytes + self.reusable()) / 8
    }

    /// Puts a batch into the log, and where readers find it. Where the log has no reserve for it, or redb has much that is not flushed, all goes
    /// to redb, durably.
    pub fn apply(
        &mut self,
        batch: WriteBatch,
        durability: Durability,
    ) -> Result<StorageUpdate, StorageError> {
        self.lsn += 1;
        self.version = batch.version;
        self.ceiling = batch.ceiling.or(self.ceiling);
        let is_much = self.meter.written() - self.written_before > MAX_UNFLUSHED;
        if is_much || self.needs_checkpoint_for_space() || !self.log.has_room(&batch) {
            return self.checkpoint_with(batch);
        }
        if is_large_batch(&batch)
            || !self.superversion.read_newest(|before| removes_few_keys(before, &batch.mutations))?
        {
            return self.apply_large(Arc::new(batch), durability);
        }
        self.log.write(self.lsn, &batch)?;
        let WriteBatch { version, mutations, .. } = batch;
        if !mutations.is_empty() {
            self.began.get_or_insert_with(|| self.env.now());
        }
        let keys =
            self.superversion.read_below_active(|below| evaluate(below, &self.active, version, mutations))?;
        self.log.flush_for(durability)?;
        let update = self.rotate_memtable(false)?;
        Ok(StorageUpdate { written_keys: WrittenKeys::Keys(keys), ..update })
    }

    /// Flushes what was only written, and gives redb what it does not have.
    pub fn flush_idle(&mut self) -> Result<StorageUpdate, StorageError> {
        self.log.flush()?;
        self.rotate_memtable(true)
    }

    /// Flushes what was only written.
    pub fn flush_log(&mut self) -> Result<(), StorageError> {
        self.log.flush()
    }

    /// Leaves nothing in the log.
    pub fn checkpoint(&mut self) -> Result<StorageUpdate, StorageError> {
        let is_done = self.log.is_empty() && !self.needs_checkpoint_for_space();
        if is_done { self.rotate_memtable(true) } else { self.checkpoint_with(WriteBatch::default()) }
    }

    /// Makes everything durable in redb's file, which needs no log then.
    pub fn close(&mut self) -> Result<(), StorageError> {
        if self.log.is_used() {
            self.write_to_tree(WriteBatch::default(), TreeCommit::FinalCheckpoint).map(drop)
        } else {
            Ok(())
        }
    }

    /// Makes a batch, and all that redb does not have, durable there; the log begins anew.
    fn checkpoint_with(&mut self, batch: WriteBatch) -> Result<StorageUpdate, StorageError> {
        let anchor = self.log.prepare_checkpoint(self.lsn)?;
        let update = self.write_to_tree(batch, TreeCommit::Checkpoint(anchor))?;
        self.log.restart(anchor);
        self.written_before = self.meter.written();
        let is_empty = std::mem::replace(&mut self.committed, self.lsn) == self.lsn;
        self.unfreed = match (is_empty, self.is_short) {
            (true, _) => 0,
            (false, true) => self.unfreed + self.pending,
            (false, false) => self.pending,
        };
        self.pending = 0;
        self.estimate_free()?;
        Ok(update)
    }

    /// Applies all that redb does not have, and then the batch, while that is flushed to the log.
    fn apply_large(
        &mut self,
        batch: Arc<WriteBatch>,
        durability: Durability,
    ) -> Result<StorageUpdate, StorageError> {
        let mut update = StorageUpdate::default();
        self.collect_flushed(true, &mut update)?;
        let group = self.start_flush(Some(Arc::clone(&batch)))?;
        // Whatever becomes of the log: the flusher has no other job when this returns.
        let logged = self.log.write(self.lsn, &batch).and_then(|()| self.log.flush_for(durability));
        let applied = self.flusher.wait();
        logged?;
        self.install_flushed(group, applied?, &mut update);
        update.written_keys = WrittenKeys::Mutations(batch);
        Ok(update)
    }

    /// Gives the flusher what redb does not have.
    fn start_flush(&mut self, batch: Option<Arc<WriteBatch>>) -> Result<ImmutableMemtable, StorageError> {
        let memtable = std::mem::take(&mut self.active);
        self.began = None;
        let (ceiling, lsn) = (self.ceiling.take(), self.lsn);
        self.flusher.begin(FlushJob { memtable: Arc::clone(&memtable), batch, ceiling, lsn })?;
        Ok(ImmutableMemtable { memtable, last: self.version })
    }

    /// Gives redb all that it does not have, and then a batch that is in no memtable.
    fn write_to_tree(
        &mut self,
        batch: WriteBatch,
        commit: TreeCommit,
    ) -> Result<StorageUpdate, StorageError> {
        let mut update = StorageUpdate::default();
        self.collect_flushed(true, &mut update)?;
        let writes = TreeWrites { memtable: Some(&self.active), mutations: &batch.mutations };
        let applied = self.tree.apply(writes, self.ceiling.take(), self.lsn, commit)?;
        let group = ImmutableMemtable { memtable: std::mem::take(&mut self.active), last: self.version };
        self.began = None;
        self.install_flushed(group, applied, &mut update);
        update.written_keys = WrittenKeys::Mutations(Arc::new(batch));
        Ok(update)
    }

    /// Takes note of what the flusher has done, and gives it more when that is due, or at once.
    fn rotate_memtable(&mut self, at_once: bool) -> Result<StorageUpdate, StorageError> {
        let mut update = StorageUpdate::default();
        self.collect_flushed(at_once, &mut update)?;
        if self.immutable.is_none() && (at_once || self.is_memtable_full()) && self.began.is_some() {
            self.immutable = Some(self.start_flush(None)?);
            let snapshot = self.superversion.snapshot().expect("it is the newest state");
            self.install_superversion(
                snapshot,
                self.superversion.base_version(),
                self.superversion.bytes_written(),
                &mut update,
            );
        }
        Ok(update)
    }

    fn is_memtable_full(&self) -> bool {
        let MemtableSize { bytes, writes, removals } = self.active.size();
        bytes >= MEMTABLE_LIMIT.bytes
            || writes >= MEMTABLE_LIMIT.writes
            || removals >= MEMTABLE_LIMIT.removals
            || self.began.is_some_and(|began| self.env.now().duration_since(began) >= MEMTABLE_MAX_AGE)
    }

    fn collect_flushed(&mut self, wait: bool, update: &mut StorageUpdate) -> Result<(), StorageError> {
        if self.immutable.is_none() {
            return Ok(());
        }
        let applied = if wait { Some(self.flusher.wait()) } else { self.flusher.poll() };
        if let Some(applied) = applied.transpose()?
            && let Some(immutable) = self.immutable.take()
        {
            self.install_flushed(immutable, applied, update);
        }
        Ok(())
    }

    /// A group is in redb.
    fn install_flushed(
        &mut self,
        group: ImmutableMemtable,
        applied: FlushedTree,
        update: &mut StorageUpdate,
    ) {
        let ImmutableMemtable { memtable, last } = group;
        self.free -= applied.size_change;
        update.flushed.push(FlushedMemtable { memtable, undo: applied.undo, last });
        self.install_superversion(applied.snapshot, last, self.meter.written(), update);
    }

    /// Makes a state of a snapshot and what is not in it.
    fn install_superversion(
        &mut self,
        snapshot: Arc<Snapshot>,
        base: i64,
        written: u64,
        update: &mut StorageUpdate,
    ) {
        let immutable = self.immutable.iter().map(|immutable| Arc::clone(&immutable.memtable));
        let memtables = immutable.chain([Arc::clone(&self.active)]).collect();
        self.superversion = Arc::new(Superversion::new(snapshot, memtables, base, written));
        update.superversion = Some(Arc::clone(&self.superversion));
    }
}
