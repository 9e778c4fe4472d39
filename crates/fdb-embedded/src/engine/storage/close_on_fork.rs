//! A file that is closed in forked processes, as a [`Disk`].

use std::io;
use std::os::fd::AsFd;

use checked_pages::Disk;

use crate::fork::CloseOnFork;

impl<D: Disk + AsFd> Disk for CloseOnFork<D> {
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
        (**self).set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        (**self).sync_data()
    }

    fn used(&self) -> io::Result<u64> {
        (**self).used()
    }
}
