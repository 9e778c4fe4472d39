//! The file under redb: each page has a checksum, which is verified on every read.
//!
//! redb stores its own checksums in parent pages, but verifies them only during a repair. This
//! layer turns a flipped bit into an error when it is first read.
//! `docs/decisions/0006-checked-pages.md` explains how the two fit together.
//!
//! A checksum is flushed together with its page. So after a power failure a page may lack its
//! checksum, but only if no commit that needs the page was acknowledged. The superblock records
//! whether the last commit was flushed. Only if it was not, pages that do not match are passed to
//! redb's repair, which verifies them itself; the checksums of pages that it accepts are set again.

use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use redb::StorageBackend;

use crate::disk::Disk;
use crate::layout::{PAGE, contiguous_runs, logical_len, page_offset, physical_len};
use crate::page_checksums::{Checksum, PageChecksums, checksum_of};
use crate::recovery_policy::RecoveryPolicy;
use crate::rewriting_disk::RewritingDisk;
use crate::superblock::{FORMAT, HEADER, PageBytes, Superblock, SuperblockError};
use mutant::mutant;

const PAGE_BYTES: usize = PAGE as usize;

/// Records the failures of a file, and makes the errors that redb gets. redb itself answers later calls
/// with "previous I/O error" only.
pub trait FailureSink: Debug + Send + Sync {
    /// The file does not hold what was written.
    fn damaged(&self, what: &str) -> io::Error;

    /// The operating system refused `operation`, such as `read`.
    fn io_error(&self, operation: &str, source: &io::Error) -> io::Error;
}

/// The reason why a file cannot be opened.
#[derive(Debug)]
pub enum OpenError {
    /// The file is not one of these.
    Foreign,
    /// The file has this unsupported format.
    Format(u32),
    /// The file is damaged, or cannot be read: an error of the [`FailureSink`].
    Failed(io::Error),
}

/// Sizes of a file, for observers.
#[derive(Debug, Default)]
pub struct Meter {
    /// Bytes of pages written so far.
    pub written: AtomicU64,
    /// Length of the file in bytes, when it was last read.
    pub len: AtomicU64,
}

impl Meter {
    /// Bytes of pages written so far.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }
}

/// A file of pages, each with a checksum.
#[derive(Debug)]
pub struct Pages {
    disk: Box<dyn Disk>,
    failures: Arc<dyn FailureSink>,
    sums: PageChecksums,
    superblock: Mutex<Superblock>,
    policy: Arc<RecoveryPolicy>,
    meter: Arc<Meter>,
}

impl Pages {
    /// A new file.
    pub fn create(disk: Box<dyn Disk>, failures: Arc<dyn FailureSink>) -> Pages {
        Pages::on(RewritingDisk::new(disk), failures)
    }

    fn on(disk: RewritingDisk, failures: Arc<dyn FailureSink>) -> Pages {
        let disk: Box<dyn Disk> = Box::new(disk);
        Pages {
            disk,
            failures,
            sums: PageChecksums::default(),
            superblock: Mutex::new(Superblock::new()),
            policy: Arc::new(RecoveryPolicy::new(false)),
            meter: Arc::default(),
        }
    }

    /// An existing file.
    pub fn open(disk: Box<dyn Disk>, failures: Arc<dyn FailureSink>) -> Result<Pages, OpenError> {
        let disk = RewritingDisk::new(disk);
        let mut first: PageBytes = [0; PAGE_BYTES];
        let refused = |operation, source| OpenError::Failed(failures.io_error(operation, &source));
        let damaged = |what: &str| OpenError::Failed(failures.damaged(what));
        let len = disk.len().map_err(|source| refused("read", source))?;
        if len < PAGE {
            return Err(damaged(&format!("it is {len} bytes long, less than its first page")));
        }
        disk.read_at(0, &mut first).map_err(|source| refused("read", source))?;
        let mut superblock = Superblock::parse(&first).map_err(|unusable| match unusable {
            SuperblockError::Foreign => OpenError::Foreign,
            SuperblockError::Format(found) => OpenError::Format(found),
            SuperblockError::Damaged(what) => damaged(&format!("first page (bytes 0..{PAGE}): {what}")),
        })?;
        if superblock.is_in_flight() {
            // After a kill, the bytes just read may be in the page cache only. The next header must
            // not overwrite the last one on the disk.
            disk.flush_existing_writes().map_err(|source| refused("flush", source))?;
        }
        let policy = Arc::new(RecoveryPolicy::new(superblock.is_in_flight()));
        superblock.durable(superblock.written());
        let least = superblock.least_len();
        if len < least {
            return Err(damaged(&format!("it is {len} bytes long, and was at least {least}")));
        }
        let pages = Pages { superblock: Mutex::new(superblock), policy, ..Pages::on(disk, failures) };
        pages.len().map_err(OpenError::Failed)?;
        Ok(pages)
    }

    /// The recovery policy, to be informed about redb's repair and opening.
    pub fn policy(&self) -> Arc<RecoveryPolicy> {
        Arc::clone(&self.policy)
    }

    /// The sizes of the file.
    pub fn meter(&self) -> Arc<Meter> {
        Arc::clone(&self.meter)
    }

    /// Reads `pages`, which are contiguous in the file, and verifies each.
    fn read_run(&self, pages: Range<u64>, out: &mut [u8]) -> io::Result<()> {
        self.disk
            .read_at(page_offset(pages.start), out)
            .map_err(|source| self.unreadable(&pages, &source))?;
        let found = checksums_of(&pages, out);
        let wrong = self
            .sums
            .with(&*self.disk, pages.clone(), |sums| sums.iter().zip(&found).position(|(a, b)| a != b))
            .map_err(|source| self.unreadable(&pages, &source))?;
        let Some(wrong) = wrong.filter(|_| !mutant("pages-are-not-verified")) else { return Ok(()) };
        if self.policy.is_redb_verifying() {
            return self.sums.set(&*self.disk, pages.start, &found);
        }
        let page = pages.start + wrong as u64;
        let at = page_offset(page);
        Err(self.failures.damaged(&format!(
            "page {page} (bytes {at}..{end}) does not match its checksum",
            end = at + PAGE
        )))
    }

    fn unreadable(&self, pages: &Range<u64>, source: &io::Error) -> io::Error {
        if source.kind() == io::ErrorKind::UnexpectedEof {
            let end = page_offset(pages.end - 1) + PAGE;
            return self
                .failures
                .damaged(&format!("it ends before byte {end}, where a page of it should end"));
        }
        self.failures.io_error("read", source)
    }

    fn write_run(&self, pages: &Range<u64>, data: &[u8]) -> io::Result<()> {
        self.disk.write_at(page_offset(pages.start), data)?;
        self.meter.written.fetch_add(data.len() as u64, Ordering::Relaxed);
        self.sums.set(&*self.disk, pages.start, &checksums_of(pages, data))
    }

    fn write_header(&self, header: &[u8]) -> io::Result<()> {
        self.upgrade()?;
        let len = self.meter.len.load(Ordering::Relaxed);
        self.superblock.lock().set_header(header, len, |(offset, bytes)| self.disk.write_at(offset, bytes))
    }

    /// Marks a file of an older format as the newest one, before redb's first write to it. Not
    /// during a repair: a file that is refused stays unchanged.
    fn upgrade(&self) -> io::Result<()> {
        if !self.policy.may_mark_flushed() {
            return Ok(());
        }
        let Some(prefix) = self.superblock.lock().upgrade() else { return Ok(()) };
        self.disk.write_at(0, &prefix)?;
        self.disk.sync_data()
    }

    /// Records the smaller length durably before the file is truncated, so that the superblock
    /// never claims a longer file than there is.
    fn announce_len(&self, physical: u64) -> io::Result<()> {
        let mut superblock = self.superblock.lock();
        let header = *superblock.header();
        superblock.set_header(&header, physical, |(offset, bytes)| self.disk.write_at(offset, bytes))?;
        drop(superblock);
        self.sync()
    }

    fn sync(&self) -> io::Result<()> {
        let written = self.superblock.lock().written();
        self.sums.write(&*self.disk)?;
        self.disk.sync_data()?;
        self.superblock.lock().durable(written);
        if !self.policy.may_mark_flushed() {
            return Ok(());
        }
        match self.superblock.lock().flushed(written) {
            Some((offset, mark)) => self.disk.write_at(offset, &mark),
            None => Ok(()),
        }
    }

    fn resize(&self, len: u64) -> io::Result<()> {
        let physical = physical_len(len);
        if physical < self.disk.len()? {
            self.sums.cut(&*self.disk, len / PAGE)?;
            self.announce_len(physical)?;
        }
        self.disk.set_len(physical)?;
        self.meter.len.store(physical, Ordering::Relaxed);
        Ok(())
    }
}

/// The checksums of `pages` with the contents `data`. Computed before the table is locked.
fn checksums_of(pages: &Range<u64>, data: &[u8]) -> Vec<Checksum> {
    pages.clone().zip(data.chunks_exact(PAGE_BYTES)).map(|(page, bytes)| checksum_of(page, bytes)).collect()
}

/// The pages of a read or write of redb, which must be whole pages and not include the header.
fn pages_of(offset: u64, len: usize) -> io::Result<Range<u64>> {
    let len = len as u64;
    if offset == 0 || !offset.is_multiple_of(PAGE) || !len.is_multiple_of(PAGE) {
        let what = format!("{len} bytes at {offset} are neither redb's header nor whole pages");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    Ok(offset / PAGE..(offset + len) / PAGE)
}

fn header_len(len: usize) -> io::Result<usize> {
    if len > HEADER {
        let what = format!("redb's header has {len} bytes; format {FORMAT} has room for {HEADER}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    Ok(len)
}

impl StorageBackend for Pages {
    fn len(&self) -> io::Result<u64> {
        let physical = self.disk.len().map_err(|source| self.failures.io_error("read", &source))?;
        self.meter.len.store(physical, Ordering::Relaxed);
        logical_len(physical).ok_or_else(|| {
            self.failures
                .damaged(&format!("it is {physical} bytes long, which is no length that it ever had"))
        })
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if offset == 0 {
            let len = header_len(out.len())?;
            out.copy_from_slice(&self.superblock.lock().header()[..len]);
            return Ok(());
        }
        let mut out = out;
        for run in contiguous_runs(pages_of(offset, out.len())?) {
            let (part, rest) = out.split_at_mut((run.end - run.start) as usize * PAGE_BYTES);
            self.read_run(run, part)?;
            out = rest;
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.resize(len).map_err(|source| self.failures.io_error("resize", &source))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.sync().map_err(|source| self.failures.io_error("flush", &source))
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let refused = |source| self.failures.io_error("write", &source);
        if offset == 0 {
            header_len(data.len())?;
            return self.write_header(data).map_err(refused);
        }
        let mut data = data;
        for run in contiguous_runs(pages_of(offset, data.len())?) {
            let (part, rest) = data.split_at((run.end - run.start) as usize * PAGE_BYTES);
            self.write_run(&run, part).map_err(refused)?;
            data = rest;
        }
        Ok(())
    }
}
