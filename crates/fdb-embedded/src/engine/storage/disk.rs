//! The few things that storage asks of a file, so that tests can stand in for a disk that fails.

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use crate::fork::Own;

/// A file, or what behaves like one.
pub trait Disk: Debug + Send + Sync + 'static {
    /// Its length, bytes.
    fn len(&self) -> io::Result<u64>;

    /// Fills `out` from `offset` on; `UnexpectedEof` when the file ends before.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;

    /// Writes all of `data`.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Cuts it off, or makes it longer with zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Makes the file system set aside space for `len` bytes from `offset` on, which may lie beyond the end. Content and length stay.
    /// Fails without a change where the disk is full, or where the file system cannot do it.
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()>;

    /// What was written before outlasts a power failure once this returns.
    fn sync_data(&self) -> io::Result<()>;
}

impl<D: Disk + AsFd> Disk for Own<D> {
    fn len(&self) -> io::Result<u64> {
        (**self).len()
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        (**self).read_at(offset, out)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        (**self).write_at(offset, data)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        Disk::set_len(&**self, len)
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        (**self).allocate(offset, len)
    }

    fn sync_data(&self) -> io::Result<()> {
        Disk::sync_data(&**self)
    }
}

impl Disk for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(out, offset)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write_all_at(data, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        File::set_len(self, len)
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        if len == 0 {
            return Ok(());
        }
        loop {
            match fallocate(self, FallocateFlags::KEEP_SIZE, offset, len) {
                Err(Errno::INTR) => {}
                other => return Ok(other?),
            }
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        File::sync_data(self)
    }
}
