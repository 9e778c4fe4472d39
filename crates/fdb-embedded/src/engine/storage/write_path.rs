//! The write path of a batch: log and memtable at once, redb a little later.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use checked_pages::Meter;

use super::batch::{Durability, WriteBatch};
use super::env::StorageEnv;
use super::error::StorageError;
use super::log::Log;
use super::memtable::{Memtable, MemtableSize};
use super::memtable_flusher::{FlushJob, MemtableFlusher};
use super::mutation_evaluator::{Prior, evaluate, read_prior};
use super::snapshot::Snapshot;
use super::space_reserve::{MIN_RESERVE, SpaceReserve};
use super::superversion::Superversion;
use super::tree::{FlushedTree, Tree, TreeCommit, TreeMeta, TreeWrites};
use super::undo_log::{FlushedMemtable, RetainedSegment};
use crate::engine::mutation::Mutation;
use mutant::{bound, mutant};

/// The active memtable is flushed to redb when it reaches this size.
const MEMTABLE_LIMIT: MemtableSize = MemtableSize { bytes: 256 << 10, writes: 2_048, removals: 128 };

/// The active memtable is flushed to redb when its oldest batch reaches this age.
const MEMTABLE_MAX_AGE: Duration = Duration::from_millis(5);

/// The most bytes that redb writes to its file between two checkpoints. A checkpoint has to flush
/// them, and half of redb's cache, while commits wait.
const MAX_UNFLUSHED: usize = 16 << 20;

/// A batch with this many mutations or removals goes straight to redb: that takes no longer than a
/// detour through the memtable.
const LARGE_BATCH: MemtableSize = MemtableSize { bytes: 0, writes: 200, removals: 48 };

fn is_large_batch(batch: &WriteBatch) -> bool {
    let is_removal = |mutation: &&Mutation| matches!(mutation, Mutation::ClearRange { .. });
    batch.mutations.len() >= bound("large-batch-writes", LARGE_BATCH.writes)
        || batch.mutations.iter().filter(is_removal).count()
            >= bound("large-batch-removals", LARGE_BATCH.removals)
}

/// The changes of applied batches for readers.
#[derive(Debug, Default)]
pub struct StorageUpdate {
    /// The superversion to read from now on, if it is a new one.
    pub superversion: Option<Arc<Superversion>>,
    /// Memtables that are now in redb, oldest first.
    pub flushed: Vec<FlushedMemtable>,
    /// The keys that the batch has written.
    pub written_keys: WrittenKeys,
}

/// The keys that a batch has written, for the watches.
#[derive(Debug)]
pub enum WrittenKeys {
    /// A list of keys.
    Keys(Vec<Bytes>),
    /// The keys and ranges of these mutations.
    Mutations(Arc<WriteBatch>),
}

impl Default for WrittenKeys {
    fn default() -> WrittenKeys {
        WrittenKeys::Keys(Vec::new())
    }
}

/// Bytes of a row in the file besides its key and value.
const ROW_OVERHEAD: u64 = 8;

/// Bytes of the file that an empty database uses.
const EMPTY_FILE_BYTES: u64 = 512 << 10;

/// How much the data file can still grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskSpace {
    /// The disk has no more space for the file, so it can only reuse its own.
    pub is_short: bool,
    /// Free bytes inside the file. An underestimate.
    pub reusable: u64,
    /// Free bytes of the disk that committed batches will not need.
    pub unused: u64,
    /// Bytes that can be written, including the reserve and the free bytes inside the file.
    pub available: u64,
    /// The part of `available` to keep for transactions that free space.
    pub reserve: u64,
}

/// Free bytes of the disk.
#[derive(Debug, Clone, Copy)]
pub struct FreeSpace {
    /// How many there were when they were last measured.
    pub bytes: u64,
    /// That was just now.
    pub is_new: bool,
}

impl DiskSpace {
    /// Used where there is no limit to the disk.
    const PLENTY: DiskSpace =
        DiskSpace { is_short: false, reusable: 0, unused: u64::MAX, available: u64::MAX, reserve: 0 };
}

/// A memtable that the flusher is writing to redb.
#[derive(Debug)]
struct ImmutableMemtable {
    memtable: Arc<Memtable>,
    /// The version of its last batch.
    last: i64,
}

/// The state of the write path. One batch passes through it at a time.
#[derive(Debug)]
pub struct WritePath {
    tree: Arc<Tree>,
    env: Box<dyn StorageEnv>,
    flusher: Box<dyn MemtableFlusher>,
    log: Log,
    meter: Arc<Meter>,
    /// Space of the disk that is set aside, unless the storage is in memory.
    reserve: Option<Arc<SpaceReserve>>,
    /// Upper estimate of the bytes that the data file needs for the batches since the last
    /// checkpoint.
    pending: u64,
    /// The same for the batches of earlier checkpoints, back to one that had nothing to write:
    /// until then redb does not reuse the pages that they freed.
    unfreed: u64,
    /// The LSN of the last checkpoint.
    committed: u64,
    /// The disk has no more space for the file.
    is_short: bool,
    /// Free bytes of the disk and of the reserve, when they were last measured.
    disk_bytes: u64,
    /// Bytes of the data file and the log when the disk's free space was measured.
    measured: (u64, u64),
    /// Bytes of all keys and values in the data file, if they have been counted.
    live_bytes: Option<u64>,
    /// What the rows needed at the last two checkpoints: redb can reuse what was free before them.
    needed: [u64; 2],
    /// What the rows needed when redb took space of the disk although the disk was full: with so
    /// many rows it cannot reuse what is free, because it is pinned or in small pieces.
    unusable_with: u64,
    /// Bytes in the reserve at the last checkpoint.
    held: u64,
    /// Bytes of the disk that the file used at the last checkpoint.
    used: u64,
    /// Bytes that redb had written to its file at the last checkpoint.
    written_before: u64,
    /// The LSN of the last batch.
    lsn: u64,
    /// The version of the last batch.
    version: i64,
    /// The newest version ceiling, if redb does not have it yet.
    ceiling: Option<i64>,
    immutable: Option<ImmutableMemtable>,
    active: Arc<Memtable>,
    /// When the active memtable received its first batch.
    began: Option<Instant>,
    superversion: Arc<Superversion>,
    /// Memory that nothing reads any more, until the flusher's next job.
    retired: Vec<RetainedSegment>,
}

impl WritePath {
    /// Continues after the last batch that redb has.
    pub fn new(
        tree: Arc<Tree>,
        log: Log,
        meter: Arc<Meter>,
        meta: &TreeMeta,
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
            committed: meta.batch,
            is_short: false,
            disk_bytes: 0,
            measured: (0, 0),
            live_bytes: meta.live_bytes,
            needed: [u64::MAX; 2],
            unusable_with: 0,
            held: 0,
            used: 0,
            written_before,
            lsn: meta.batch,
            version,
            ceiling,
            immutable,
            active,
            began,
            superversion,
            retired: Vec::new(),
        })
    }

    /// The newest superversion.
    pub fn superversion(&self) -> &Arc<Superversion> {
        &self.superversion
    }

    /// Adds what the write path holds.
    #[cfg(feature = "testing")]
    pub fn add_holdings(&mut self, holdings: &mut crate::engine::holdings::Holdings) {
        self.count_live_bytes();
        let memtables = self.immutable.iter().map(|immutable| &immutable.memtable).chain([&self.active]);
        holdings.memtables = memtables.map(|memtable| memtable.size().bytes).sum();
        holdings.undo_log.1 = self.retired.len();
        holdings.data_file = self.reserve.as_ref().map_or(0, |reserve| reserve.used());
        holdings.rows = self.live_bytes.unwrap_or(0);
        holdings.log = self.log.len();
    }

    /// Leaves memory to the flusher to free.
    pub fn retire(&mut self, retired: Vec<RetainedSegment>) {
        self.retired.extend(retired);
    }

    /// What waits for the flusher.
    pub fn take_retired(&mut self) -> Vec<RetainedSegment> {
        std::mem::take(&mut self.retired)
    }

    /// The offset of the next record in the log.
    #[cfg(test)]
    pub fn log_end(&self) -> u64 {
        self.log.end()
    }

    /// Sets the reserve, and with it the limit of the disk's space.
    pub fn set_space_reserve(&mut self, reserve: Arc<SpaceReserve>) {
        self.used = reserve.used();
        self.held = reserve.held();
        self.reserve = Some(reserve);
        // Nothing reads an older state.
        self.needed = [0; 2];
    }

    /// Reserves `cost` bytes of the data file. After the disk had no space for the reserve, tries
    /// again only if `asks_again`.
    pub fn reserve_space(&mut self, cost: u64, free: FreeSpace, asks_again: bool) -> DiskSpace {
        let Some(reserve) = &self.reserve else { return DiskSpace::PLENTY };
        if free.is_new {
            self.measured = (reserve.used(), self.log.len());
        }
        let (data, log) = self.measured;
        // What checkpoints have written since then is not in `pending` any more.
        let growth = self.used.saturating_sub(data) + self.log.len().saturating_sub(log);
        let forgets = mutant("growth-since-the-measurement-is-forgotten");
        let free = free.bytes.saturating_sub(if forgets { 0 } else { growth });
        let wanted = reserve.wanted(self.used);
        let may_refill = asks_again || !self.is_short;
        let is_whole = reserve.held() >= wanted || (may_refill && reserve.refill(wanted));
        // On a file system that cannot allocate ahead, leaves as much space free instead.
        let is_whole = is_whole || (reserve.is_unsupported() && free >= wanted + self.pending + cost);
        self.is_short = !is_whole || free < self.pending + cost;
        if !self.is_short {
            self.pending += cost;
        }
        self.disk_bytes = free.saturating_add(reserve.held());
        if self.is_short {
            self.count_live_bytes();
        }
        let reusable = self.reusable();
        let available = self.disk_bytes.saturating_add(reusable).saturating_sub(self.pending + self.unfreed);
        DiskSpace {
            is_short: self.is_short,
            reusable,
            unused: free.saturating_sub(self.pending),
            available,
            reserve: wanted,
        }
    }

    /// Estimate of the bytes inside the file that redb can reuse: what the rows leave, and left at
    /// the last two checkpoints, after which redb reuses the pages that were freed before.
    fn reusable(&self) -> u64 {
        let Some(needed) = self.needed() else { return 0 };
        let is_usable = self.unusable_with == 0 || needed < self.unusable_with / 4 * 3;
        if !is_usable || mutant("free-pages-are-forgotten") {
            return 0;
        }
        let needed = self.needed.into_iter().fold(needed, u64::max);
        self.used.saturating_sub(EMPTY_FILE_BYTES.saturating_add(needed))
    }

    /// Upper estimate of the bytes that the rows need in the file, if they have been counted. Pages
    /// in use may be half full.
    fn needed(&self) -> Option<u64> {
        let live = self.live_bytes.filter(|_| self.reserve.is_some())?;
        let rows = self.superversion.snapshot().and_then(|snapshot| snapshot.len().ok())?;
        Some(live.saturating_add(rows.saturating_mul(ROW_OVERHEAD)).saturating_mul(2))
    }

    /// Notes after a checkpoint whether redb can reuse what is free.
    fn note_reuse(&mut self) {
        let Some(reserve) = &self.reserve else { return };
        let held = std::mem::replace(&mut self.held, reserve.held());
        let is_taken = self.is_short && self.held < held && self.held < MIN_RESERVE / 2;
        let needed = self.needed().unwrap_or(u64::MAX);
        if is_taken {
            self.unusable_with = self.needed.into_iter().fold(needed, u64::max);
        } else if self.held >= MIN_RESERVE / 2 {
            self.unusable_with = 0;
        }
        self.needed = [needed, self.needed[0]];
        self.used = reserve.used();
    }

    /// Counts the rows' bytes of a file that an earlier version wrote. Reads the whole file, so this
    /// happens only when space is short, and once.
    fn count_live_bytes(&mut self) {
        if self.live_bytes.is_none() {
            // After an error the latch holds the failure, which the next batch meets.
            self.live_bytes = self.tree.count_live_bytes().ok();
        }
    }

    /// Counts the cost of a transaction that is admitted on a full disk.
    pub fn charge_space(&mut self, cost: u64) {
        self.pending += cost;
    }

    /// On a full disk a checkpoint lets redb reuse freed pages, and a second one the pages that the
    /// first freed.
    pub fn needs_checkpoint_for_space(&self) -> bool {
        if !self.is_short {
            return false;
        }
        // Free pages may be pinned, so the disk's own space has to suffice until the checkpoint.
        let most = ((self.disk_bytes + self.reusable()) / 8).min(self.disk_bytes / 2);
        self.pending + self.unfreed > most
    }

    /// Writes a batch to the log and the memtable. Makes a checkpoint instead if the log has no
    /// space for it or redb has written too much without a flush.
    pub fn apply(
        &mut self,
        batch: WriteBatch,
        durability: Durability,
    ) -> Result<StorageUpdate, StorageError> {
        self.lsn += 1;
        self.version = batch.version;
        self.ceiling = batch.ceiling.or(self.ceiling);
        let unflushed = bound("data-file-unflushed-bytes", MAX_UNFLUSHED) as u64;
        let is_much = self.meter.written() - self.written_before > unflushed;
        if is_much || self.needs_checkpoint_for_space() || !self.log.has_room(&batch) {
            return self.checkpoint_with(batch);
        }
        let Some(prior) = self.prior_of(&batch)? else {
            return self.apply_large(Arc::new(batch), durability);
        };
        self.log.write(self.lsn, &batch)?;
        let WriteBatch { version, mutations, .. } = batch;
        if !mutations.is_empty() {
            self.began.get_or_insert_with(|| self.env.now());
        }
        let keys = evaluate(prior, &self.active, version, mutations)?;
        self.log.flush_for(durability)?;
        let update = self.rotate_memtable(false)?;
        Ok(StorageUpdate { written_keys: WrittenKeys::Keys(keys), ..update })
    }

    /// The data that a batch depends on; `None` if the batch is too large for the memtable.
    fn prior_of(&self, batch: &WriteBatch) -> Result<Option<Prior>, StorageError> {
        if is_large_batch(batch) {
            return Ok(None);
        }
        self.superversion.read_below_active(|below| read_prior(below, &self.active, &batch.mutations))
    }

    /// Flushes the log and writes the memtable to redb.
    pub fn flush_idle(&mut self) -> Result<StorageUpdate, StorageError> {
        self.log.flush()?;
        self.rotate_memtable(true)
    }

    /// Flushes the log.
    pub fn flush_log(&mut self) -> Result<(), StorageError> {
        self.log.flush()
    }

    /// Makes redb's file complete and restarts the log.
    pub fn checkpoint(&mut self) -> Result<StorageUpdate, StorageError> {
        let is_done = self.log.is_empty() && !self.needs_checkpoint_for_space();
        if is_done { self.rotate_memtable(true) } else { self.checkpoint_with(WriteBatch::default()) }
    }

    /// Makes redb's file complete; until the next opening it needs no log.
    pub fn close(&mut self) -> Result<(), StorageError> {
        if self.log.is_used() {
            self.write_to_tree(WriteBatch::default(), TreeCommit::FinalCheckpoint).map(drop)
        } else {
            Ok(())
        }
    }

    /// Makes a batch and everything before it durable in redb's file, and restarts the log.
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
        self.note_reuse();
        Ok(update)
    }

    /// Applies a large batch directly to redb, after everything that redb lacks, while the log is
    /// flushed.
    fn apply_large(
        &mut self,
        batch: Arc<WriteBatch>,
        durability: Durability,
    ) -> Result<StorageUpdate, StorageError> {
        let mut update = StorageUpdate::default();
        self.collect_flushed(true, &mut update)?;
        let group = self.start_flush(Some(Arc::clone(&batch)))?;
        // Waits for the flusher even if the log failed: it must have no job when this returns.
        let logged = self.log.write(self.lsn, &batch).and_then(|()| self.log.flush_for(durability));
        let applied = self.flusher.wait();
        logged?;
        self.install_flushed(group, applied?, &mut update);
        update.written_keys = WrittenKeys::Mutations(batch);
        Ok(update)
    }

    /// Hands the active memtable, and possibly a batch after it, to the flusher.
    fn start_flush(&mut self, batch: Option<Arc<WriteBatch>>) -> Result<ImmutableMemtable, StorageError> {
        let memtable = std::mem::take(&mut self.active);
        self.began = None;
        let (ceiling, lsn) = (self.ceiling.take(), self.lsn);
        let retired = std::mem::take(&mut self.retired);
        self.flusher.begin(FlushJob { memtable: Arc::clone(&memtable), batch, ceiling, lsn, retired })?;
        Ok(ImmutableMemtable { memtable, last: self.version })
    }

    /// Writes everything that redb lacks, and then `batch`, in one transaction on this thread.
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

    /// Collects what the flusher has finished. Hands it the active memtable if that is full, or in
    /// any case with `at_once`.
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
        bytes >= bound("memtable-bytes", MEMTABLE_LIMIT.bytes)
            || writes >= bound("memtable-writes", MEMTABLE_LIMIT.writes)
            || removals >= bound("memtable-removals", MEMTABLE_LIMIT.removals)
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

    /// A memtable is in redb: publishes the new snapshot.
    fn install_flushed(
        &mut self,
        group: ImmutableMemtable,
        applied: FlushedTree,
        update: &mut StorageUpdate,
    ) {
        let ImmutableMemtable { memtable, last } = group;
        // A count of the rows includes a flush that had begun before.
        self.live_bytes = applied.live_bytes.or(self.live_bytes);
        update.flushed.push(FlushedMemtable { memtable, undo: applied.undo, last });
        self.install_superversion(applied.snapshot, last, self.meter.written(), update);
    }

    /// Builds a superversion from a snapshot and the memtables that are newer.
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
