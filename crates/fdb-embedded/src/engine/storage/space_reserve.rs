//! Disk space for the data file, and a reserve for when the disk is full.
//!
//! redb treats any failed write as fatal: its outcome is unknown, so no further commit is accepted.
//! redb must therefore never meet a full disk. `DIR/reserve` is a file of allocated space without
//! data. When a write finds the disk full, [`SpaceReserve`] truncates the reserve, which returns
//! space to the disk, and repeats the write. The space cannot be set aside inside redb's file,
//! because only redb knows which page it will write next.
//!
//! The committer refuses transactions that add data before the reserve is needed. The reserve
//! serves transactions that free space, checkpoints, recovery after a kill, and times when another
//! program fills the disk.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use checked_pages::Disk;
// Not the baton's: redb writes here while it holds locks of its own, which a simulation does not know.
use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use crate::files::{is_full, open_or_create};
use crate::fork::CloseOnFork;

/// The reserve of an empty database in bytes.
pub const MIN_RESERVE: u64 = 4 << 20;
/// The largest reserve in bytes.
const MAX_RESERVE: u64 = 16 << 20;
/// The reserve grows with the data file in steps of this many bytes.
const STEP: u64 = 1 << 20;
/// The fewest bytes that are cut off the reserve at a time.
const PIECE: u64 = 256 << 10;

/// A data file and its reserve.
#[derive(Debug)]
pub struct SpaceReserve {
    data: Box<dyn Disk>,
    reserve: Option<CloseOnFork<File>>,
    /// Bytes in the reserve. `changing` is locked to change them.
    held: AtomicU64,
    changing: Mutex<()>,
    /// The file system cannot allocate space ahead of need.
    is_unsupported: AtomicBool,
}

impl SpaceReserve {
    /// Opens the reserve at this path for a data file, or creates it, and fills it as far as the
    /// disk allows.
    pub fn open(data: Box<dyn Disk>, reserve: &Path) -> Arc<SpaceReserve> {
        // Without a reserve, as much space of the disk is left free.
        let reserve = CloseOnFork::open(|| open_or_create(reserve)).ok();
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

    /// Takes over the reserve of an earlier process, and fills it as far as the disk allows.
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

    /// The size that the reserve should have when the data file uses `used` bytes of the disk.
    pub fn wanted(&self, used: u64) -> u64 {
        MAX_RESERVE.min(MIN_RESERVE + used / 4 / STEP * STEP)
    }

    /// Bytes of the disk that the data file uses.
    pub fn used(&self) -> u64 {
        self.data.used().unwrap_or(0)
    }

    /// Bytes in the reserve.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// True on a file system that cannot allocate space ahead of need.
    pub fn is_unsupported(&self) -> bool {
        self.is_unsupported.load(Ordering::Relaxed)
    }

    /// Fills the reserve up to `wanted` bytes. `false` if the disk has too little space, or cannot
    /// allocate any.
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
                // Some file systems keep the part that they could allocate.
                let _ = Disk::set_len(file, held);
                return false;
            }
        }
        true
    }

    /// Returns `bytes` bytes of the reserve to the disk, or what is left. `false` if the reserve is
    /// empty.
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

    /// Runs `work`, which needs up to `bytes` bytes of the disk. Repeats it with space of the
    /// reserve while the disk is full.
    fn with_space(&self, bytes: u64, work: impl Fn() -> io::Result<()>) -> io::Result<()> {
        loop {
            match work() {
                Err(error) if is_full(&error) && self.release(bytes) => {}
                other => return other,
            }
        }
    }
}

impl Disk for SpaceReserve {
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
    use super::*;
    use checked_pages::sim::SimDisk;

    /// A disk of limited size, shared with the reserve.
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
    fn opening_brings_the_reserve_to_its_configured_size() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("reserve");
        for there in [0, PIECE, 3 * MAX_RESERVE] {
            // In a copy of a directory the reserve may be sparse.
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
