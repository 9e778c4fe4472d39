//! A file whose length nobody else may change.
//!
//! A program that cuts a file in place (`truncate`, a shell's `>`) leaves its name and its inode as they are, and the next write makes it as
//! long as before, with a hole. So the length is compared before each write, after each flush, and once a second.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};

use checked_pages::Disk;
use mutant::mutant;
use rustix::fs::{AtFlags, StatxFlags, statx};

use crate::fork::CloseOnFork;

/// A file, and the length that this process gave it.
#[derive(Debug)]
pub struct KnownLength {
    file: CloseOnFork<File>,
    len: AtomicU64,
}

impl KnownLength {
    /// The file as it is now.
    pub fn new(file: CloseOnFork<File>) -> io::Result<KnownLength> {
        let len = AtomicU64::new(length(&file)?);
        Ok(KnownLength { file, len })
    }

    /// Whether another program has cut the file.
    pub fn is_cut(&self) -> bool {
        // In this order: the file only becomes longer before `len` does, and shorter after it.
        let least = self.len.load(Ordering::Acquire);
        !mutant("cut-file-unnoticed") && length(&self.file).is_ok_and(|len| len < least)
    }

    fn verify(&self) -> io::Result<()> {
        match self.is_cut() {
            true => Err(io::Error::other("another program has cut the file while this process worked on it")),
            false => Ok(()),
        }
    }
}

/// The length of a file. This asks for nothing else: see [`super::super::file_guard::GuardedFile::is_linked`].
fn length(file: &CloseOnFork<File>) -> io::Result<u64> {
    match statx(file.as_fd(), "", AtFlags::EMPTY_PATH, StatxFlags::SIZE) {
        Ok(found) => Ok(found.stx_size),
        // An old kernel or a sandbox lacks the call.
        Err(_) => Ok(file.metadata()?.len()),
    }
}

impl Disk for KnownLength {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_at(offset, out)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.verify()?;
        self.file.write_at(offset, data)?;
        self.len.fetch_max(offset + data.len() as u64, Ordering::AcqRel);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.verify()?;
        // While it becomes shorter, a look from another thread finds it long enough.
        self.len.fetch_min(len, Ordering::AcqRel);
        self.file.set_len(len)?;
        self.len.store(len, Ordering::Release);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()?;
        self.verify()
    }

    fn used(&self) -> io::Result<u64> {
        self.file.used()
    }
}
