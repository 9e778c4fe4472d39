//! redb's B-trees: a table of the keys, and one of the engine's own records.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use checked_pages::Pages;
use redb::{Database, Durability, ReadableDatabase, ReadableTable, Table, TableDefinition, WriteTransaction};

use super::error::{StorageError, with_cause};
use super::failure_latch::FailureLatch;
use super::log::LogAnchor;
use super::memtable::Memtable;
use super::snapshot::Snapshot;
use super::undo_log::{UndoBuilder, UndoSegment};
use crate::engine::atomic::AtomicOp;
use crate::engine::mutation::{Effect, Mutation};

type Keys = TableDefinition<'static, &'static [u8], &'static [u8]>;

const DATA: Keys = TableDefinition::new("data");
const META: TableDefinition<'static, &'static str, i64> = TableDefinition::new("meta");

/// Memory that redb may use for pages, in bytes. The operating system's page cache lies below it.
const CACHE_BYTES: usize = 64 << 20;

/// `META`: no version above this one has been handed out to any client.
const CEILING: &str = "version-ceiling";
/// `META`: the LSN of the last batch.
const BATCH: &str = "batch";
/// `META`: the log's anchor. Its generation, which is the checkpoint's LSN, is 0 while no log is in
/// use.
const LOG_ID: &str = "log-id";
const LOG_GENERATION: &str = "log-generation";
const LOG_LEN: &str = "log-len";

/// `META`: bytes of the keys and values of all rows, and the LSN of the batch that they were counted
/// after. Earlier versions do not count: the bytes are known only if that is the last batch.
const LIVE_BYTES: &str = "live-bytes";
const LIVE_BATCH: &str = "live-batch";

/// The engine's own records in redb's file.
#[derive(Debug, Clone, Copy, Default)]
pub struct TreeMeta {
    /// No version above this one has been handed out.
    pub ceiling: i64,
    /// The LSN of the last batch in the file.
    pub batch: u64,
    /// The anchor of the log, while one is in use.
    pub anchor: Option<LogAnchor>,
    /// Bytes of the log that were flushed when they were allocated.
    pub log_len: u64,
    /// Bytes of the keys and values of all rows, if they have been counted.
    pub live_bytes: Option<u64>,
}

/// How a transaction on the tree is committed.
#[derive(Debug, Clone, Copy)]
pub enum TreeCommit {
    /// In memory only; the log makes it durable.
    InMemory,
    /// Durable, and the log restarts with this anchor.
    Checkpoint(LogAnchor),
    /// Durable, and no log is in use until the next checkpoint of this process.
    Recovery,
    /// Durable, and no log is in use afterwards. The file is closed next.
    FinalCheckpoint,
}

/// The changes of one transaction on the tree.
#[derive(Debug, Clone, Copy, Default)]
pub struct TreeWrites<'a> {
    /// Evaluated writes, applied first.
    pub memtable: Option<&'a Memtable>,
    /// Mutations with their versionstamps filled in, applied next in order.
    pub mutations: &'a [Mutation],
}

impl<'a> TreeWrites<'a> {
    /// Mutations without a memtable.
    pub fn of(mutations: &'a [Mutation]) -> TreeWrites<'a> {
        TreeWrites { memtable: None, mutations }
    }
}

/// The result of a transaction on redb's tree.
#[derive(Debug)]
pub struct FlushedTree {
    /// Bytes of all keys and values after the transaction, if they have been counted.
    pub live_bytes: Option<u64>,
    /// The values before the transaction, unless they take too much memory.
    pub undo: Option<UndoSegment>,
    /// The tree after the transaction.
    pub snapshot: Arc<Snapshot>,
}

/// The open redb file.
#[derive(Debug)]
pub struct Tree {
    pub(super) db: Database,
    latch: Arc<FailureLatch>,
}

impl Tree {
    /// Opens the file. Calls `on_repair` if redb has to walk through the whole file.
    pub fn open(
        pages: Pages,
        latch: Arc<FailureLatch>,
        on_repair: impl Fn() + 'static,
    ) -> Result<Tree, StorageError> {
        let policy = pages.policy();
        let mut builder = Database::builder();
        builder.set_cache_size(CACHE_BYTES);
        builder.set_repair_callback({
            let policy = Arc::clone(&policy);
            move |_| {
                policy.start_repair();
                on_repair();
            }
        });
        // `Pages` verifies what redb reads, except during a repair, when redb verifies it.
        let opened = catch_unwind(AssertUnwindSafe(|| builder.create_with_backend(pages)));
        policy.finish_open();
        let db =
            opened.map_err(|_| StorageError::Panicked)?.map_err(|error| with_cause(&latch, error.into()))?;
        Ok(Tree { db, latch })
    }

    /// Creates the tables in a new file.
    pub fn create_tables(&self) -> Result<(), StorageError> {
        let create = || -> Result<(), redb::Error> {
            let write = self.db.begin_write()?;
            write.open_table(DATA)?;
            {
                let mut meta = write.open_table(META)?;
                meta.insert(LIVE_BYTES, 0)?;
                meta.insert(LIVE_BATCH, 0)?;
            }
            write.commit()?;
            Ok(())
        };
        create().map_err(|error| self.with_cause(error))
    }

    /// Creates the tables as format 2 had them, which had no log.
    #[cfg(test)]
    pub fn create_like_format_2(&self, rows: &[(&[u8], &[u8])], ceiling: i64) {
        let write = self.db.begin_write().unwrap();
        for (key, value) in rows {
            write.open_table(DATA).unwrap().insert(*key, *value).unwrap();
        }
        write.open_table(META).unwrap().insert(CEILING, ceiling).unwrap();
        write.commit().unwrap();
    }

    /// The engine's own records. A file of format 2 has none about a log.
    pub fn meta(&self) -> Result<TreeMeta, StorageError> {
        let meta = || -> Result<TreeMeta, redb::Error> {
            let meta = self.db.begin_read()?.open_table(META)?;
            let get = |name| Ok::<_, redb::Error>(meta.get(name)?.map_or(0, |value| value.value()));
            let (generation, len) = (get(LOG_GENERATION)?.cast_unsigned(), get(LOG_LEN)?.cast_unsigned());
            let anchor = LogAnchor { id: get(LOG_ID)?.cast_unsigned(), checkpoint_lsn: generation, len };
            Ok(TreeMeta {
                ceiling: get(CEILING)?,
                batch: get(BATCH)?.cast_unsigned(),
                anchor: (generation != 0).then_some(anchor),
                log_len: len,
                live_bytes: live_bytes(&meta)?,
            })
        };
        meta().map_err(|error| self.with_cause(error))
    }

    /// The newest snapshot.
    pub fn snapshot(&self) -> Result<Snapshot, StorageError> {
        let open = || -> Result<_, redb::Error> { Ok(self.db.begin_read()?.open_table(DATA)?) };
        let data = open().map_err(|error| self.with_cause(error))?;
        Ok(Snapshot::new(data, Arc::clone(&self.latch)))
    }

    /// Applies writes, and a new version ceiling if there is one, as batch `lsn`.
    // `.ci/instructions` excludes this function by its name.
    #[inline(never)]
    pub fn apply(
        &self,
        writes: TreeWrites<'_>,
        ceiling: Option<i64>,
        lsn: u64,
        commit: TreeCommit,
    ) -> Result<FlushedTree, StorageError> {
        let written = self.write(writes, ceiling, lsn, commit);
        let (undo, live_bytes) = written.map_err(|error| self.with_cause(error))?;
        Ok(FlushedTree { undo: UndoSegment::new(undo), snapshot: Arc::new(self.snapshot()?), live_bytes })
    }

    /// Counts the bytes of all rows, by reading them, and keeps the sum.
    pub fn count_live_bytes(&self) -> Result<u64, StorageError> {
        let count = || -> Result<u64, redb::Error> {
            let mut write = self.db.begin_write()?;
            write.set_durability(Durability::None)?;
            let mut bytes = 0;
            for row in write.open_table(DATA)?.iter()? {
                let (key, value) = row?;
                bytes += len_of(key.value(), value.value());
            }
            {
                let mut meta = write.open_table(META)?;
                let batch = meta.get(BATCH)?.map_or(0, |batch| batch.value());
                meta.insert(LIVE_BYTES, bytes)?;
                meta.insert(LIVE_BATCH, batch)?;
            }
            write.commit()?;
            Ok(bytes.cast_unsigned())
        };
        count().map_err(|error| self.with_cause(error))
    }

    /// Makes the file one of a version that did not count the bytes of its rows.
    #[cfg(test)]
    pub fn forget_live_bytes(&self) {
        let write = self.db.begin_write().unwrap();
        write.open_table(META).unwrap().remove(LIVE_BYTES).unwrap();
        write.commit().unwrap();
    }

    fn write(
        &self,
        writes: TreeWrites<'_>,
        ceiling: Option<i64>,
        lsn: u64,
        commit: TreeCommit,
    ) -> Result<(UndoBuilder, Option<u64>), redb::Error> {
        let mut undo = UndoBuilder::default();
        let mut write = self.db.begin_write()?;
        match commit {
            TreeCommit::InMemory => write.set_durability(Durability::None)?,
            // Saves redb's list of free pages, so that redb need not walk through the file after a
            // kill.
            TreeCommit::Checkpoint(_) | TreeCommit::Recovery => write.set_quick_repair(true),
            // redb saves that list itself when it closes the file.
            TreeCommit::FinalCheckpoint => {}
        }
        let TreeWrites { memtable, mutations } = writes;
        if let Some(memtable) = memtable.filter(|memtable| memtable.size().writes > 0) {
            let mut data = write.open_table(DATA)?;
            memtable.each_newest(|key, value| put(&mut data, key, value, &mut undo))?;
        }
        if !mutations.is_empty() {
            let mut data = write.open_table(DATA)?;
            apply_all(&mut data, mutations, &mut undo)?;
        }
        let live_bytes = write_meta(&write, (ceiling, lsn, undo.size_change), commit)?;
        write.commit()?;
        Ok((undo, live_bytes))
    }

    fn with_cause(&self, error: redb::Error) -> StorageError {
        with_cause(&self.latch, error)
    }
}

/// The bytes of all rows after the last batch, if they have been counted.
fn live_bytes(meta: &impl ReadableTable<&'static str, i64>) -> Result<Option<u64>, redb::Error> {
    let get = |name| Ok::<_, redb::Error>(meta.get(name)?.map(|value| value.value()));
    let is_current = get(LIVE_BATCH)? == Some(get(BATCH)?.unwrap_or(0));
    Ok(get(LIVE_BYTES)?.filter(|_| is_current).map(i64::cast_unsigned))
}

/// Writes the engine's records, and returns the bytes of all rows, if they have been counted.
fn write_meta(
    write: &WriteTransaction,
    (ceiling, lsn, size_change): (Option<i64>, u64, i64),
    commit: TreeCommit,
) -> Result<Option<u64>, redb::Error> {
    let mut meta = write.open_table(META)?;
    let live_bytes = live_bytes(&meta)?.map(|bytes| bytes.saturating_add_signed(size_change));
    if let Some(bytes) = live_bytes {
        meta.insert(LIVE_BYTES, bytes.cast_signed())?;
        meta.insert(LIVE_BATCH, lsn.cast_signed())?;
    }
    meta.insert(BATCH, lsn.cast_signed())?;
    if let Some(ceiling) = ceiling {
        meta.insert(CEILING, ceiling)?;
    }
    match commit {
        TreeCommit::InMemory => {}
        TreeCommit::Checkpoint(anchor) => {
            meta.insert(LOG_ID, anchor.id.cast_signed())?;
            meta.insert(LOG_GENERATION, anchor.checkpoint_lsn.cast_signed())?;
            meta.insert(LOG_LEN, anchor.len.cast_signed())?;
        }
        TreeCommit::Recovery | TreeCommit::FinalCheckpoint => drop(meta.insert(LOG_GENERATION, 0)?),
    }
    Ok(live_bytes)
}

type Data<'t> = Table<'t, &'static [u8], &'static [u8]>;

/// Applies mutations in order. The last value of each single key is written once and in key order, however many
/// transactions of the batch have changed it.
fn apply_all(data: &mut Data<'_>, mutations: &[Mutation], undo: &mut UndoBuilder) -> Result<(), redb::Error> {
    let mut points = BTreeMap::new();
    for mutation in mutations {
        let value_after = |op: AtomicOp, key: &[u8], operand: &[u8]| {
            Ok::<_, redb::Error>(match points.get(key) {
                Some(old) => op.apply(Option::as_deref(old), operand),
                None => op.apply(data.get(key)?.as_ref().map(redb::AccessGuard::value), operand),
            })
        };
        match mutation.clone().effect(value_after)? {
            Effect::Write { key, value } => drop(points.insert(key, value)),
            Effect::Clear { begin, end } => {
                write_points(data, std::mem::take(&mut points), undo)?;
                data.retain_in::<&[u8], _>(begin.as_slice()..end.as_slice(), |key, value| {
                    undo.record(key, Some(value));
                    undo.size_change -= len_of(key, value);
                    false
                })?;
            }
        }
    }
    write_points(data, points, undo)
}

fn write_points(
    data: &mut Data<'_>,
    points: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    undo: &mut UndoBuilder,
) -> Result<(), redb::Error> {
    points.into_iter().try_for_each(|(key, value)| put(data, &key, value.as_deref(), undo))
}

fn len_of(key: &[u8], value: &[u8]) -> i64 {
    (key.len() + value.len()).cast_signed() as i64
}

fn put(
    data: &mut Data<'_>,
    key: &[u8],
    value: Option<&[u8]>,
    undo: &mut UndoBuilder,
) -> Result<(), redb::Error> {
    let old = match value {
        Some(value) => data.insert(key, value)?,
        None => data.remove(key)?,
    };
    if value.is_some() || old.is_some() {
        let old = old.as_ref().map(redb::AccessGuard::value);
        undo.size_change +=
            value.map_or(0, |value| len_of(key, value)) - old.map_or(0, |old| len_of(key, old));
        undo.record(key, old);
    }
    Ok(())
}
