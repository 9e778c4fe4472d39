//! The write-ahead log: batches that redb's file does not have yet.
//!
//! A batch is written here before it is acknowledged, and flushed unless all its commits are
//! asynchronous. The file is filled with zeros and flushed before use, so that a later flush writes
//! no metadata. A checkpoint restarts the log at offset 0. redb stores a [`LogAnchor`] in the same
//! transaction, which tells the records of this round from those of earlier rounds.

mod anchor;
mod block;
pub mod record;
pub mod scan;

use std::io;
use std::sync::Arc;

use checked_pages::{Disk, FailureSink};
use mutant::{bound, mutant};

use super::batch::{Durability, WriteBatch};
use super::error::{StorageError, io_failure};
use super::failure_latch::FailureLatch;
use crate::files::is_full;
use block::PaddedBlock;
use record::{BLOCK, RecordPosition, SECTOR};

pub use anchor::LogAnchor;

/// The length of the log in bytes.
#[derive(Debug, Clone, Copy)]
pub struct LogBounds {
    /// Of a new log.
    pub first: u64,
    /// The most by which it grows at a time.
    pub step: u64,
    /// The maximum.
    pub most: u64,
}

/// A new directory stays small. At full length the log holds at least 8,192 commits, each in its
/// own block, so that the cost of a checkpoint is small in comparison.
pub const LOG_BOUNDS: LogBounds = LogBounds { first: 1 << 20, step: 4 << 20, most: 32 << 20 };

/// The most bytes of records before a checkpoint, so that recovery takes a fraction of a second.
const MAX_RECORDS: usize = 8 << 20;

/// The most batches that wait for a common flush.
const MAX_UNFLUSHED: usize = 1_000;

/// Bytes of zeros written at a time. Linux may keep what one call writes as one piece of its cache,
/// and account for the whole piece as written when a record changes a block of it.
const PIECE: usize = 16 << 10;

/// Bytes of the buffer for records that are kept between batches.
const KEPT_BUFFER: usize = 1 << 20;

static ZEROS: [u8; PIECE] = [0; PIECE];

/// The log of an open database.
#[derive(Debug)]
pub struct Log {
    disk: Box<dyn Disk>,
    latch: Arc<FailureLatch>,
    bounds: LogBounds,
    /// The `id` of this process's anchors.
    id: u64,
    /// Bytes that were filled with zeros and flushed.
    len: u64,
    /// The anchor in redb's file, while the log is in use.
    anchor: Option<LogAnchor>,
    /// The offset of the next record.
    end: u64,
    /// Bytes of the records, without the gaps between them.
    used: u64,
    /// The number of batches at the end that are not flushed.
    unflushed: u16,
    record: Vec<u8>,
    block: PaddedBlock,
}

impl Log {
    /// A log that is not in use. `len` bytes of it were flushed earlier; `id` is random.
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

    /// True if it holds no batch.
    pub fn is_empty(&self) -> bool {
        self.end == 0
    }

    /// Bytes of the file that were filled.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The offset of the next record.
    #[cfg(test)]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// True if it is in use.
    pub fn is_used(&self) -> bool {
        self.anchor.is_some()
    }

    /// True if it is in use and has space for the batch.
    pub fn has_room(&self, batch: &WriteBatch) -> bool {
        let space = record::space(batch);
        self.is_used()
            && self.end + space <= self.len
            && (self.used == 0 || self.used + space <= bound("log-records-bytes", MAX_RECORDS) as u64)
    }

    /// Appends a batch without a flush.
    pub fn write(&mut self, lsn: u64, batch: &WriteBatch) -> Result<(), StorageError> {
        let LogAnchor { id, checkpoint_lsn, .. } = self.anchor.expect("`has_room` was checked before");
        let position =
            RecordPosition { id, checkpoint_lsn, lsn, unflushed: self.unflushed, offset: self.end };
        record::encode(position, batch, &mut self.record);
        let space = self.record.len();
        // Writes whole blocks, so that the operating system need not read the old ones first.
        let within = usize::try_from(self.end % BLOCK as u64).expect("less than a block");
        let padded = (within + space).next_multiple_of(BLOCK) - within;
        let written = self.disk.write_at(self.end, self.block.padded(&mut self.record, padded));
        written.map_err(|source| self.refused("write", &source))?;
        self.unflushed += 1;
        self.end += space as u64;
        self.used += space as u64;
        // Does not keep a large buffer for small records.
        self.record.shrink_to(KEPT_BUFFER);
        Ok(())
    }

    /// Flushes if the batch asks for it or too many batches wait.
    pub fn flush_for(&mut self, durability: Durability) -> Result<(), StorageError> {
        if mutant("acknowledged-before-flush") {
            return Ok(());
        }
        if durability == Durability::Flushed
            || usize::from(self.unflushed) >= bound("log-unflushed-batches", MAX_UNFLUSHED)
        {
            self.flush()
        } else {
            Ok(())
        }
    }

    /// Flushes the batches that wait.
    pub fn flush(&mut self) -> Result<(), StorageError> {
        if self.unflushed > 0 {
            self.disk.sync_data().map_err(|source| self.refused("flush", &source))?;
            self.unflushed = 0;
            // Never writes a block again that holds a flushed record.
            if !mutant("log-shares-blocks") {
                self.end = self.end.next_multiple_of(BLOCK as u64);
            }
        }
        Ok(())
    }

    fn refused(&self, operation: &str, source: &io::Error) -> StorageError {
        io_failure(&self.latch, operation, source)
    }

    /// Prepares a checkpoint with batch `checkpoint_lsn`, and returns the anchor to store in the
    /// same durable transaction as all batches up to it.
    pub fn prepare_checkpoint(&mut self, checkpoint_lsn: u64) -> Result<LogAnchor, StorageError> {
        if !self.is_used() {
            self.start_using()?;
        } else if self.end * 2 > self.len {
            // A log that is emptied often, because the engine is often idle, stays short.
            self.grow()?;
        }
        Ok(LogAnchor { id: self.id, checkpoint_lsn, len: self.len })
    }

    /// Restarts the log, after the anchor is durable.
    pub fn restart(&mut self, anchor: LogAnchor) {
        self.anchor = Some(anchor);
        // The checkpoint has made unflushed records durable in redb's file.
        (self.end, self.used, self.unflushed) = (0, 0, 0);
    }

    /// Erases the start of what an earlier process left, so that no old record can be mistaken for
    /// a new one.
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

    /// Leaves the length as it is if the disk is full.
    fn grow(&mut self) -> Result<(), StorageError> {
        let most = if mutant("log-grows-without-end") { u64::MAX } else { self.bounds.most };
        let len = most.min(self.len + self.len.min(self.bounds.step));
        if len <= self.len {
            return Ok(());
        }
        match self.fill(len).and_then(|()| self.disk.sync_data()) {
            Ok(()) => self.len = len,
            Err(source) if is_full(&source) => {
                self.bounds.most = self.len;
                // Returns the space: the data file needs it.
                let _ = self.disk.set_len(self.len);
            }
            Err(source) => return Err(self.refused("write", &source)),
        }
        Ok(())
    }

    /// Writes zeros up to `len`. With space that is only allocated, each later flush would have to
    /// write metadata.
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
