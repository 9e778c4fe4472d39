//! Disk space for the data file, and a reserve that is used where there is none.
//!
//! redb takes any failed write for the end: the outcome of the write is unknown, so no further commit is accepted. It must
//! therefore never meet a full disk. `DIR/reserve` is a file that holds allocated space and no data. When a write finds the
//! disk full, [`SpaceReserve`] cuts a piece off the reserve, so that the disk has this space, and writes again. Nobody but redb knows
//! which page of its file comes next, so the space cannot be set aside inside that file.
//!
//! The committer refuses transactions that add data before the reserve is needed. The reserve is for transactions that free space,
//! for a checkpoint, for an opening after a kill, and for the time when another program fills the disk.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use super::disk::Disk;
use super::log::is_full;
use crate::engine::directory::open_or_create;
use crate::fork::Own;

/// The reserve of an empty database, bytes.
const MIN_RESERVE: u64 = 4 << 20;
/// The largest reserve, bytes.
const MAX_RESERVE: u64 = 16 << 20;
/// The reserve grows with the data file, by so many bytes at a time.
const STEP: u64 = 1 << 20;
/// The least that is cut off the reserve, bytes.
const PIECE: u64 = 256 << 10;

/// A data file, and the reserve next to it.
#[derive(Debug)]
pub struct SpaceReserve {
    data: Box<dyn Disk>,
    reserve: Option<Own<File>>,
    /// Bytes that the reserve holds. The lock is for changing it.
    held: AtomicU64,
    changing: Mutex<()>,
    /// The file system does not allocate space ahead of need.
    is_unsupported: AtomicBool,
}

impl SpaceReserve {
    /// For a data file, with the reserve at this path, which is made if it is not there. It holds as much then as the disk has.
    pub fn open(data: Box<dyn Disk>, reserve: &Path) -> Arc<SpaceReserve> {
        // Without a reserve as much space of the disk is left free.
        let reserve = Own::open(|| open_or_create(reserve)).ok();
        let reserve = SpaceReserve {
            data,
            is_unsupported: AtomicBool::new(reserve.is_none()),
            reserve,
            held: AtomicU64::new(0),
            changing: Mutex::new(()),
        };
        reserve.restore();
        Arc::new(reserve)
    }

    /// What an earlier process left in it, and what the disk has.
    fn restore(&self) {
        let Some(file) = &self.reserve else { return };
        let left = file.used().and_then(|used| Ok(used.min(Disk::len(file)?))).unwrap_or(0).min(MAX_RESERVE);
        if Disk::set_len(file, left).is_ok() {
            self.held.store(left, Ordering::Relaxed);
        }
        let mut wanted = self.wanted(self.used());
        while wanted > self.held() && !self.refill(wanted) {
            wanted = wanted.midpoint(self.held()) / PIECE * PIECE;
        }
    }

    /// How much the reserve of a data file should hold that uses so many bytes of the disk.
    pub fn wanted(&self, used: u64) -> u64 {
        MAX_RESERVE.min(MIN_RESERVE + used / 4 / STEP * STEP)
    }

    /// Bytes of the disk that the data file uses.
    pub fn used(&self) -> u64 {
        self.data.used().unwrap_or(0)
    }

    /// Bytes that the reserve holds.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// True where space cannot be set aside.
    pub fn is_unsupported(&self) -> bool {
        self.is_unsupported.load(Ordering::Relaxed)
    }

    /// Makes the reserve hold so many bytes. `false` if the disk has too few, or cannot set any aside.
    pub fn refill(&self, wanted: u64) -> bool {
        let _changing = self.changing.lock();
        let Some(file) = self.reserve.as_ref().filter(|_| !self.is_unsupported()) else { return false };
        let held = self.held();
        if held >= wanted {
            return true;
        }
        let allocated = loop {
            match fallocate(file, FallocateFlags::empty(), 0, wanted) {
                Err(Errno::INTR) => {}
                other => break other.map_err(io::Error::from),
            }
        };
        match allocated {
            Ok(()) => self.held.store(wanted, Ordering::Relaxed),
            Err(error) => {
                if !is_full(&error) {
                    self.is_unsupported.store(true, Ordering::Relaxed);
                }
                // Some file systems keep the part that they had.
                let _ = Disk::set_len(file, held);
                return false;
            }
        }
        true
    }

    /// Gives the disk so many bytes of the reserve, or what it has. `false` if it holds nothing.
    fn release(&self, bytes: u64) -> bool {
        let _changing = self.changing.lock();
        let Some(file) = &self.reserve else { return false };
        let held = self.held();
        let left = held.saturating_sub(bytes.max(PIECE)) / PIECE * PIECE;
        if held == 0 || Disk::set_len(file, left).is_err() {
            return false;
        }
        self.held.store(left, Ordering::Relaxed);
        true
    }

    /// Does what takes up to so many bytes of the disk; again, with space from the reserve, while the disk is full.
    fn with_space(&self, bytes: u64, work: impl Fn() -> io::Result<()>) -> io::Result<()> {
        loop {
            match work() {
                Err(error) if is_full(&error) && self.release(bytes) => {}
                other => return other,
            }
        }
    }
}

impl Disk for Arc<SpaceReserve> {
    fn len(&self) -> io::Result<u64> {
        self.data.len()
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.data.read_at(offset, out)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.with_space(data.len() as u64, || self.data.write_at(offset, data))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.with_space(PIECE, || self.data.set_len(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.data.sync_data()
    }

    fn used(&self) -> io::Result<u64> {
        self.data.used()
    }
}

#[cfg(test)]
mod tests {
    use super::super::sim::SimDisk;
    use super::*;

    /// A disk that has space for so many bytes more, and for the bytes that the reserve gave back.
    #[derive(Debug)]
    struct Small {
        file: SimDisk,
        reserve: std::path::PathBuf,
        space: u64,
    }

    impl Disk for Small {
        fn len(&self) -> io::Result<u64> {
            self.file.len()
        }

        fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            self.file.read_at(offset, out)
        }

        fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            let reserve = std::fs::metadata(&self.reserve)?.len();
            if offset + data.len() as u64 + reserve > self.space {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.file.write_at(offset, data)
        }

        fn set_len(&self, len: u64) -> io::Result<()> {
            self.file.set_len(len)
        }

        fn sync_data(&self) -> io::Result<()> {
            self.file.sync_data()
        }

        fn used(&self) -> io::Result<u64> {
            Ok(0)
        }
    }

    #[test]
    fn a_write_that_finds_the_disk_full_gets_space_from_the_reserve() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("reserve");
        let file = SimDisk::new(vec![0; 3 * usize::try_from(MIN_RESERVE).unwrap()]);
        let small = Small { file: file.clone(), reserve: path.clone(), space: MIN_RESERVE + 100 };
        let reserve = SpaceReserve::open(Box::new(small), &path);
        if reserve.is_unsupported() {
            eprintln!("skipped: the file system of {} cannot allocate space", dir.path().display());
            return;
        }
        assert_eq!((reserve.held(), path.metadata().unwrap().len()), (MIN_RESERVE, MIN_RESERVE));
        reserve.write_at(0, &[1; 100]).unwrap();
        assert_eq!(reserve.held(), MIN_RESERVE, "there was space");
        reserve.write_at(100, &[2; 100]).unwrap();
        assert_eq!(reserve.held(), MIN_RESERVE - PIECE);
        let large = vec![3; usize::try_from(MIN_RESERVE - PIECE).unwrap()];
        reserve.write_at(200, &large).unwrap();
        assert_eq!(reserve.held(), 0);
        assert!(reserve.write_at(200 + MIN_RESERVE, &[4; 4096]).is_err(), "there is nothing left");
        assert_eq!(file.bytes()[..200], [[1; 100], [2; 100]].concat());
        assert!(reserve.refill(MIN_RESERVE) && reserve.held() == MIN_RESERVE);
    }

    #[test]
    fn an_opening_finds_the_reserve_and_makes_it_as_large_as_it_should_be() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("reserve");
        for there in [0, PIECE, 3 * MAX_RESERVE] {
            // Of a copy only the length may be left.
            std::fs::write(&path, []).unwrap();
            File::options().write(true).open(&path).unwrap().set_len(there).unwrap();
            let data = SimDisk::new(vec![0; 9 << 20]);
            let reserve = SpaceReserve::open(Box::new(data), &path);
            if reserve.is_unsupported() {
                eprintln!("skipped: the file system of {} cannot allocate space", dir.path().display());
                return;
            }
            assert_eq!(reserve.held(), MIN_RESERVE + 2 * STEP);
            let used = File::open(&path).unwrap().used().unwrap();
            assert!(used >= reserve.held(), "{used}");
        }
    }
}
