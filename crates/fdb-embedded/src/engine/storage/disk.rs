//! The few things that storage asks of a file, so that tests can stand in for a disk that fails.

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};

use crate::fork::Own;

/// What the operating system counts the space of a file in, bytes.
const BLOCK: u64 = 512;

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

    /// What was written before outlasts a power failure once this returns.
    fn sync_data(&self) -> io::Result<()>;

    /// Bytes of the disk that it takes: fewer than its length where nothing was written yet.
    fn used(&self) -> io::Result<u64> {
        self.len()
    }
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

    fn sync_data(&self) -> io::Result<()> {
        Disk::sync_data(&**self)
    }

    fn used(&self) -> io::Result<u64> {
        (**self).used()
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

    fn sync_data(&self) -> io::Result<()> {
        File::sync_data(self)
    }

    fn used(&self) -> io::Result<u64> {
        Ok(self.metadata()?.blocks() * BLOCK)
    }
}
