//! A disk that repeats the writes that a failed flush has lost.
//!
//! After a failed flush, operating systems mark the file's dirty pages as clean. Their bytes stay
//! in memory, and the next flush succeeds without writing them. A process that opened the file then
//! would build on data that a power failure can still take away. So after a failed flush this disk
//! reads and writes everything again that was written since the last successful one. The next flush
//! then writes it, or fails too.

use std::io;
use std::ops::Range;

use parking_lot::Mutex;

use crate::disk::Disk;
use mutant::mutant;

/// The most separate ranges to remember. More are merged into one.
const MAX_SPANS: usize = 4_096;
/// Bytes read and written at a time.
const CHUNK: u64 = 1 << 20;

/// A disk that repeats the writes that a failed flush has lost.
#[derive(Debug)]
pub struct RewritingDisk {
    disk: Box<dyn Disk>,
    /// Ranges written since the last successful flush.
    unflushed: Mutex<Vec<Range<u64>>>,
}

impl RewritingDisk {
    /// A disk that repeats writes to `disk`.
    pub fn new(disk: Box<dyn Disk>) -> RewritingDisk {
        RewritingDisk { disk, unflushed: Mutex::default() }
    }

    /// Flushes a file that other processes may have written. If that fails, rewrites the whole
    /// file.
    pub fn flush_existing_writes(&self) -> io::Result<()> {
        let len = self.disk.len()?;
        self.note(0, len);
        self.sync_data()
    }

    fn note(&self, offset: u64, len: u64) {
        let (begin, end) = (offset, offset + len);
        let mut unflushed = self.unflushed.lock();
        match unflushed.last_mut() {
            Some(last) if begin <= last.end && last.start <= end => {
                *last = last.start.min(begin)..last.end.max(end);
            }
            _ => unflushed.push(begin..end),
        }
        if unflushed.len() > MAX_SPANS {
            let begin = unflushed.iter().map(|span| span.start).min().unwrap_or(0);
            let end = unflushed.iter().map(|span| span.end).max().unwrap_or(0);
            unflushed.clear();
            unflushed.push(begin..end);
        }
    }

    fn rewrite(&self, span: &Range<u64>) -> io::Result<()> {
        let end = span.end.min(self.disk.len()?);
        let mut at = span.start;
        let mut bytes = Vec::new();
        while at < end {
            let chunk = CHUNK.min(end - at);
            bytes.resize(usize::try_from(chunk).expect("a chunk fits"), 0);
            self.disk.read_at(at, &mut bytes)?;
            self.disk.write_at(at, &bytes)?;
            at += chunk;
        }
        Ok(())
    }
}

impl Disk for RewritingDisk {
    fn len(&self) -> io::Result<u64> {
        self.disk.len()
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.disk.read_at(offset, out)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.note(offset, data.len() as u64);
        self.disk.write_at(offset, data)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.disk.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        let unflushed = std::mem::take(&mut *self.unflushed.lock());
        let result = self.disk.sync_data();
        if result.is_err() && !mutant("failed-flush-is-forgotten") {
            // A range that cannot be rewritten stays unknown, which the error of the flush already
            // says.
            for span in &unflushed {
                let _ = self.rewrite(span);
            }
            self.unflushed.lock().extend(unflushed);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::SplitMix;
    use crate::sim::{Atomic, FailedFlush, SimDisk};

    #[test]
    fn writes_lost_by_a_failed_flush_are_repeated_by_the_next() {
        let file = SimDisk::default();
        let disk = RewritingDisk::new(Box::new(file.clone()));
        disk.set_len(5 * 4096).unwrap();
        disk.sync_data().unwrap();
        disk.write_at(4096, &[1; 4096]).unwrap();
        disk.write_at(3 * 4096 + 100, &[2; 100]).unwrap();
        file.fail_once_after(0, FailedFlush::KeepsPages);
        disk.sync_data().unwrap_err();
        drop(disk);
        // Another process opens the file, changes nothing, and flushes.
        let next = RewritingDisk::new(Box::new(file.clone()));
        next.sync_data().unwrap();
        let left = file.after_power_failure(file.moments(), Atomic::Sector, &mut SplitMix(1));
        assert_eq!(left, file.bytes());
        assert_eq!((left[4096], left[3 * 4096 + 100]), (1, 2));
    }

    #[test]
    fn after_a_failed_flush_of_existing_writes_the_whole_file_is_rewritten() {
        let file = SimDisk::default();
        Disk::set_len(&file, 3 * CHUNK).unwrap();
        file.write_at(2 * CHUNK + 5, &[1]).unwrap();
        let disk = RewritingDisk::new(Box::new(file.clone()));
        file.fail_once_after(0, FailedFlush::KeepsPages);
        disk.flush_existing_writes().unwrap_err();
        RewritingDisk::new(Box::new(file.clone())).sync_data().unwrap();
        let left = file.after_power_failure(file.moments(), Atomic::Sector, &mut SplitMix(1));
        assert_eq!(left, file.bytes());
    }

    #[test]
    fn too_many_unflushed_spans_are_merged_into_one() {
        let file = SimDisk::default();
        let disk = RewritingDisk::new(Box::new(file));
        disk.set_len(4 * CHUNK).unwrap();
        for n in 0..=MAX_SPANS as u64 {
            disk.write_at(n * 512, &[1; 100]).unwrap();
        }
        let all = 0..MAX_SPANS as u64 * 512 + 100;
        assert!(disk.unflushed.lock().iter().eq(std::iter::once(&all)));
        disk.write_at(50, &[1; 100]).unwrap();
        assert_eq!(disk.unflushed.lock().len(), 1);
    }
}
