//! Disk space that the data file owns before it needs it.
//!
//! redb takes any failed write for the end: the outcome of the write is unknown, so no further commit is accepted. A full
//! disk must therefore be met before redb writes. The committer asks [`Room`] for space before each batch, and `Room`
//! allocates it in steps, beyond the end of the pages that were written and, where necessary, beyond the end of the file.
//! If the disk refuses, nothing has happened: the committer then refuses transactions that need more space, and the
//! space that is already allocated, the reserve, is left to those that free some.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::disk::Disk;
use super::layout::{GROUP, PAGE, group_of, logical_len, place, sums_place};
use super::log::is_full;
use crate::engine::storage::sums::UNWRITTEN;

/// The smallest reserve, bytes: that of an empty database.
const LEAST: u64 = 1 << 20;
/// The largest reserve, bytes.
const MOST: u64 = 16 << 20;
/// Space is allocated in pieces of at least so many bytes, where the disk has them.
const STEP: u64 = 1 << 20;
/// The largest of these pieces, bytes. It is an eighth of the file where that is less.
const LARGEST_STEP: u64 = 32 << 20;
/// A disk that was full is asked again after this time.
const PAUSE: Duration = Duration::from_secs(1);

/// How much of the file is allocated, and how much of that has been written.
#[derive(Debug)]
pub struct Room {
    disk: Arc<dyn Disk>,
    /// The end of the last page that was written, bytes.
    high: AtomicU64,
    /// Up to here the file system has given space to the file, bytes.
    allocated: AtomicU64,
    /// The file system does not allocate space ahead of need.
    is_unsupported: AtomicBool,
    /// When the disk last had no space.
    full: Mutex<Option<Instant>>,
}

impl Room {
    /// Of a file with pages up to `high`. What is allocated beyond is not known yet.
    pub fn new(disk: Arc<dyn Disk>, high: u64) -> Room {
        Room {
            disk,
            high: AtomicU64::new(high),
            allocated: AtomicU64::new(0),
            is_unsupported: AtomicBool::new(false),
            full: Mutex::new(None),
        }
    }

    /// A page that ends at byte `end` was written.
    pub fn wrote(&self, end: u64) {
        self.high.fetch_max(end, Ordering::Relaxed);
    }

    /// The file was cut off at byte `len`, and its allocated space with it.
    pub fn cut(&self, len: u64) {
        self.high.fetch_min(len, Ordering::Relaxed);
        self.allocated.fetch_min(len, Ordering::Relaxed);
    }

    /// The end of the last page that was written, bytes.
    pub fn high(&self) -> u64 {
        self.high.load(Ordering::Relaxed)
    }

    /// Bytes that can be written without asking the disk.
    pub fn ahead(&self) -> u64 {
        self.allocated.load(Ordering::Relaxed).saturating_sub(self.high.load(Ordering::Relaxed))
    }

    /// The space that is kept for a checkpoint, a recovery, and transactions that free space, bytes.
    pub fn reserve(&self) -> u64 {
        MOST.min(LEAST + self.high.load(Ordering::Relaxed) / 4)
    }

    /// True if space cannot be allocated ahead of need here. Then `ahead` means nothing.
    pub fn is_unsupported(&self) -> bool {
        self.is_unsupported.load(Ordering::Relaxed)
    }

    /// Whether `wanted` bytes can be written without asking the disk. It is asked for them now if they are missing; a full
    /// disk is not asked more than once a second.
    pub fn ensure(&self, wanted: u64) -> bool {
        self.ahead() >= wanted || self.is_unsupported() || self.extend(wanted)
    }

    #[cold]
    fn extend(&self, wanted: u64) -> bool {
        let mut full = self.full.lock();
        if full.is_some_and(|since| since.elapsed() < PAUSE) {
            return false;
        }
        let high = self.high.load(Ordering::Relaxed);
        let from = self.allocated.load(Ordering::Relaxed);
        let step = LARGEST_STEP.min(high / 8).max(STEP);
        let given = self.allocate(from, high + wanted + step) || self.allocate(from, high + wanted);
        *full = (!given).then(Instant::now);
        given
    }

    /// At an opening it is not known what an earlier process has allocated. Allocates the reserve, as far as there is space.
    pub fn find(&self) {
        let high = self.high.load(Ordering::Relaxed);
        let mut ahead = self.reserve();
        // From the start, so that no page is missing below either.
        while ahead >= PAGE && !self.is_unsupported() && !self.allocate(0, high + ahead) {
            ahead /= 2;
        }
    }

    fn allocate(&self, from: u64, end: u64) -> bool {
        match self.disk.allocate(from, end.saturating_sub(from)) {
            Ok(()) => {
                self.allocated.fetch_max(end, Ordering::Relaxed);
                true
            }
            Err(error) if is_full(&error) => false,
            // A file system that cannot do it, or a disk that fails: a write will tell.
            Err(_) => {
                self.is_unsupported.store(true, Ordering::Relaxed);
                true
            }
        }
    }
}

/// The end of the last page of a file that was ever written, by the checksums of its pages.
pub fn high_water(disk: &dyn Disk) -> io::Result<u64> {
    let Some(logical) = logical_len(disk.len()?) else { return Ok(0) };
    if logical <= PAGE {
        return Ok(logical);
    }
    let pages = logical / PAGE;
    let (last, _) = group_of(pages - 1);
    let mut bytes = vec![0; usize::try_from(PAGE).expect("a page fits")];
    for group in (0..=last).rev() {
        disk.read_at(sums_place(group), &mut bytes)?;
        let sums = bytes.as_chunks().0.iter().map(|sum| u64::from_le_bytes(*sum));
        if let Some(index) = sums.collect::<Vec<_>>().iter().rposition(|sum| *sum != UNWRITTEN) {
            let page = 1 + group as u64 * GROUP + index as u64;
            return Ok(place(page.min(pages - 1)) + PAGE);
        }
    }
    Ok(PAGE)
}

#[cfg(test)]
mod tests {
    use super::super::sim::SimDisk;
    use super::*;

    #[test]
    fn space_is_allocated_in_steps_and_a_full_disk_leaves_what_there_is() {
        let disk = SimDisk::default();
        disk.set_space(Some(10 << 20));
        let room = Room::new(Arc::new(disk.clone()), 0);
        room.find();
        assert_eq!(room.ahead(), LEAST);
        assert!(room.ensure(LEAST), "it is there already");
        room.wrote(4 << 20);
        assert!(room.ensure(LEAST) && room.ahead() >= LEAST + STEP, "a step more than was asked for");
        room.wrote(9 << 20);
        assert!(!room.ensure(3 << 20));
        let left = room.ahead();
        disk.set_space(None);
        assert!(!room.ensure(3 << 20), "the disk is not asked again at once");
        assert_eq!(room.ahead(), left);
        *room.full.lock() = None;
        assert!(room.ensure(3 << 20));
        room.cut(2 << 20);
        assert_eq!(room.ahead(), 0, "what was cut off is the disk's again");
    }

    #[test]
    fn an_opening_finds_as_much_as_there_is() {
        let disk = SimDisk::default();
        disk.set_space(Some(700 << 10));
        let room = Room::new(Arc::new(disk), 64 << 10);
        room.find();
        assert!(room.ahead() >= LEAST / 4 && room.ahead() <= LEAST, "{}", room.ahead());
    }
}
