//! The file operations that storage needs, as a trait, so that tests can simulate a failing disk.

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

/// The unit in which the operating system counts a file's allocated space, in bytes.
const BLOCK: u64 = 512;

/// A file, or a simulation of one.
#[expect(clippy::len_without_is_empty, reason = "no caller asks whether a file is empty")]
pub trait Disk: Debug + Send + Sync + 'static {
    /// The length in bytes.
    fn len(&self) -> io::Result<u64>;

    /// Fills `out` from `offset` on. Fails with `UnexpectedEof` if the file ends before.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;

    /// Writes all of `data`.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Truncates the file, or extends it with zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Makes all earlier writes survive a power failure.
    fn sync_data(&self) -> io::Result<()>;

    /// Allocated bytes. A sparse file has fewer than its length.
    fn used(&self) -> io::Result<u64> {
        self.len()
    }
}

impl<D: Disk> Disk for Arc<D> {
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
