//! The log: batches that redb's file does not have, each written before it is acknowledged, and flushed for those who wait for that.
//!
//! | file | what |
//! |---|---|
//! | here | the file: adding a batch, beginning anew |
//! | `block` | padding to whole blocks |
//! | `record` | a batch as it lies there |
//! | `scan` | what a log that was left behind holds |
//!
//! Its length was filled with zeros and flushed before it was used, so that a flush has no metadata to write. After each
//! durable commit of redb's it begins anew from its start: a new *checkpoint_lsn*, which redb's file knows of by the [`LogAnchor`]
//! of that same commit. What is left of earlier generations is told by it.

mod block;
pub mod record;
pub mod scan;

use std::io;
use std::sync::Arc;

use super::disk::Disk;
use super::failure_latch::FailureLatch;
use super::{Durability, StorageError, WriteBatch};
use crate::mutant::mutant;
use block::PaddedBlock;
use record::{BLOCK, Header, RecordPosition, SECTOR};

/// What redb's file knows of its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogAnchor {
    /// Drawn at random whenever a process begins to use it.
    pub id: u64,
    /// The lsn of the batch with which it began anew: the first one in it is the next.
    pub checkpoint_lsn: u64,
    /// Bytes that it has, all flushed.
    pub len: u64,
}

impl LogAnchor {
    fn matches(&self, header: &Header, lsn: u64) -> bool {
        (header.id, header.checkpoint_lsn, header.lsn) == (self.id, self.checkpoint_lsn, lsn)
    }
}

/// How long a log is, bytes.
#[derive(Debug, Clone, Copy)]
pub struct LogBounds {
    /// When it is new.
    pub first: u64,
    /// By how much it grows at most when it has been filled.
    pub step: u64,
    /// At most.
    pub most: u64,
}

/// Little to write in an empty directory; in the end enough for a durable commit of redb's to cost little compared with the
/// commits that went into the log: at least 8,192, each in a block of its own.
pub const LOG_BOUNDS: LogBounds = LogBounds { first: 1 << 20, step: 4 << 20, most: 32 << 20 };

/// Bytes of records that a log takes at most before it starts from its beginning, so that they are applied in a fraction of a
/// second.
const MAX_RECORDS: u64 = 8 << 20;

/// Batches that wait together for a flush, at most.
const MAX_UNFLUSHED: u16 = 1_000;

/// Zeros that are written at a time.
const PIECE: usize = 1 << 20;

static ZEROS: [u8; PIECE] = [0; PIECE];

/// The log of an open database.
#[derive(Debug)]
pub struct Log {
    disk: Box<dyn Disk>,
    latch: Arc<FailureLatch>,
    bounds: LogBounds,
    /// Its id in each anchor.
    id: u64,
    /// Bytes that were written, and flushed, before.
    len: u64,
    /// What redb's file knows, while it is in use.
    anchor: Option<LogAnchor>,
    /// Where the next batch goes.
    end: u64,
    /// Bytes of the records in it, without the room between them.
    used: u64,
    /// How many batches at its end are not flushed yet.
    unflushed: u16,
    record: Vec<u8>,
    block: PaddedBlock,
}

impl Log {
    /// A log that is not in use, of which `len` bytes were flushed once. `id` was drawn at random.
    pub fn new(
        disk: Box<dyn Disk>,
        latch: Arc<FailureLatch>,
        len: u64,
        bounds: LogBounds,
        id: u64,
    ) -> io::Result<Log> {
        let there = disk.len().map_err(|source| latch.io_error("read", &source))?;
        Ok(Log {
            disk,
            latch,
            bounds,
            id,
            len: len.min(there),
            anchor: None,
            end: 0,
            used: 0,
            unflushed: 0,
            record: Vec::new(),
            block: PaddedBlock::default(),
        })
    }

    /// True if no batch is in it.
    pub fn is_empty(&self) -> bool {
        self.end == 0
    }

    /// Where the next batch goes.
    #[cfg(test)]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// True if it is in use.
    pub fn is_used(&self) -> bool {
        self.anchor.is_some()
    }

    /// True if it is in use and has room for the batch.
    pub fn has_room(&self, batch: &WriteBatch) -> bool {
        let space = record::space(batch);
        self.is_used() && self.end + space <= self.len && (self.used == 0 || self.used + space <= MAX_RECORDS)
    }

    /// Adds a batch, which is not flushed yet.
    pub fn write(&mut self, lsn: u64, batch: &WriteBatch) -> Result<(), StorageError> {
        let LogAnchor { id, checkpoint_lsn, .. } =
            self.anchor.expect("whoever adds has asked whether there is room");
        let place = RecordPosition { id, checkpoint_lsn, lsn, unflushed: self.unflushed, offset: self.end };
        record::encode(place, batch, &mut self.record);
        let space = self.record.len();
        // Whole blocks are written: the operating system need not read what was there before.
        let within = usize::try_from(self.end % BLOCK as u64).expect("less than a block");
        let padded = (within + space).next_multiple_of(BLOCK) - within;
        let written = self.disk.write_at(self.end, self.block.padded(&mut self.record, padded));
        written.map_err(|source| self.refused("write", &source))?;
        self.unflushed += 1;
        self.end += space as u64;
        self.used += space as u64;
        // One that was large is not kept for those that are not.
        self.record.shrink_to(PIECE);
        Ok(())
    }

    /// Flushes, if that is wanted or too many batches are not.
    pub fn flush_for(&mut self, durability: Durability) -> Result<(), StorageError> {
        if mutant("acknowledged-before-flush") {
            return Ok(());
        }
        if durability == Durability::Flushed || self.unflushed >= MAX_UNFLUSHED {
            self.flush()
        } else {
            Ok(())
        }
    }

    /// Flushes the batches that are not.
    pub fn flush(&mut self) -> Result<(), StorageError> {
        if self.unflushed > 0 {
            self.disk.sync_data().map_err(|source| self.refused("flush", &source))?;
            self.unflushed = 0;
            // The block that holds what was flushed is not written again.
            if !mutant("log-shares-blocks") {
                self.end = self.end.next_multiple_of(BLOCK as u64);
            }
        }
        Ok(())
    }

    fn refused(&self, operation: &str, source: &io::Error) -> StorageError {
        super::io_failure(&self.latch, operation, source)
    }

    /// Makes ready to begin anew with batch `checkpoint_lsn`, and says with what anchor: that is to be made durable together with
    /// all batches so far.
    pub fn prepare_checkpoint(&mut self, checkpoint_lsn: u64) -> Result<LogAnchor, StorageError> {
        if !self.is_used() {
            self.start_using()?;
        } else if self.end * 2 > self.len {
            // A log that is emptied often, because the engine is idle, stays short.
            self.grow()?;
        }
        Ok(LogAnchor { id: self.id, checkpoint_lsn, len: self.len })
    }

    /// The anchor is durable: the next batch goes to the start.
    pub fn restart(&mut self, anchor: LogAnchor) {
        self.anchor = Some(anchor);
        // redb's commit has flushed what was left.
        (self.end, self.used, self.unflushed) = (0, 0, 0);
    }

    /// What an earlier process left is wiped from its start: whoever finds anything there later knows whose it is.
    fn start_using(&mut self) -> Result<(), StorageError> {
        let outcome = if self.len < self.bounds.first {
            self.fill(self.bounds.first).and_then(|()| self.disk.write_at(0, &[0; SECTOR]))
        } else {
            self.disk.write_at(0, &[0; SECTOR])
        };
        outcome.map_err(|source| self.refused("write", &source))?;
        self.disk.sync_data().map_err(|source| self.refused("flush", &source))?;
        self.len = self.len.max(self.bounds.first);
        Ok(())
    }

    /// Where the disk is full it stays as it is.
    fn grow(&mut self) -> Result<(), StorageError> {
        let len = self.bounds.most.min(self.len + self.len.min(self.bounds.step));
        if len <= self.len {
            return Ok(());
        }
        match self.fill(len).and_then(|()| self.disk.sync_data()) {
            Ok(()) => self.len = len,
            Err(source) if is_full(&source) => {
                self.bounds.most = self.len;
                // The data file needs what there was.
                let _ = self.disk.set_len(self.len);
            }
            Err(source) => return Err(self.refused("write", &source)),
        }
        Ok(())
    }

    /// Writes zeros up to `len`. Room that is only set aside would have to be noted as written later, with a flush each.
    fn fill(&self, len: u64) -> io::Result<()> {
        if self.disk.len()? < len {
            self.disk.set_len(len)?;
        }
        let mut at = self.len;
        while at < len {
            let piece = PIECE.min(usize::try_from(len - at).unwrap_or(PIECE));
            self.disk.write_at(at, &ZEROS[..piece])?;
            at += piece as u64;
        }
        Ok(())
    }
}

/// True for the error of a disk, or of a quota, that has no space left.
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
