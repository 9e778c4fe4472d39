//! The checksums of all pages, loaded when they are first needed: 2 MiB of memory for 1 GiB of
//! file.

use std::io;
use std::ops::RangeInclusive;

use parking_lot::RwLock;
use twox_hash::XxHash3_64;

use crate::disk::Disk;
use crate::layout::{GROUP, PAGE, checksum_group_of, checksums_offset};

/// A page's checksum; [`UNWRITTEN`] for a page that was never written.
pub type Checksum = u64;
/// Stands for a page that was never written.
pub const UNWRITTEN: Checksum = 0;

/// The checksum of a page's bytes and its number, which also detects a page at the wrong place.
pub fn checksum_of(page: u64, bytes: &[u8]) -> Checksum {
    XxHash3_64::oneshot_with_seed(page, bytes).max(UNWRITTEN + 1)
}

#[derive(Debug, Clone)]
struct ChecksumGroup {
    sums: [Checksum; GROUP as usize],
    /// The first and last checksum that differ from the file.
    changed: Option<(usize, usize)>,
}

impl ChecksumGroup {
    fn set(&mut self, index: usize, sum: Checksum) {
        self.sums[index] = sum;
        let (first, last) = self.changed.unwrap_or((index, index));
        self.changed = Some((first.min(index), last.max(index)));
    }

    /// The bytes of a part of group `number`, and their offset in the file.
    fn piece(&self, number: usize, part: RangeInclusive<usize>) -> (u64, Vec<u8>) {
        let place = checksums_offset(number) + 8 * *part.start() as u64;
        (place, self.sums[part].iter().flat_map(|sum| sum.to_le_bytes()).collect())
    }
}

#[derive(Debug, Default)]
struct ChecksumTable {
    groups: Vec<Option<Box<ChecksumGroup>>>,
    /// Groups that differ from the file.
    changed: Vec<usize>,
}

/// The checksums of a file.
#[derive(Debug, Default)]
pub struct PageChecksums {
    table: RwLock<ChecksumTable>,
}

impl PageChecksums {
    /// Calls `check` with the checksums of `pages`, which belong to one group.
    pub fn with<T>(
        &self,
        disk: &dyn Disk,
        pages: std::ops::Range<u64>,
        check: impl FnOnce(&[Checksum]) -> T,
    ) -> io::Result<T> {
        let (group, first) = checksum_group_of(pages.start);
        let last = checksum_group_of(pages.end - 1).1;
        let table = self.table.read();
        if let Some(Some(group)) = table.groups.get(group) {
            return Ok(check(&group.sums[first..=last]));
        }
        drop(table);
        let mut table = self.table.write();
        Ok(check(&table.load(disk, group)?.sums[first..=last]))
    }

    /// Sets the checksums of the pages from `first` on, which belong to one group.
    pub fn set(&self, disk: &dyn Disk, first: u64, sums: &[Checksum]) -> io::Result<()> {
        let (group, mut index) = checksum_group_of(first);
        let mut table = self.table.write();
        let loaded = table.load(disk, group)?;
        let was_changed = loaded.changed.is_some();
        for sum in sums {
            loaded.set(index, *sum);
            index += 1;
        }
        if !was_changed {
            table.changed.push(group);
        }
        Ok(())
    }

    /// Writes changed checksums to the file without a flush. Only the thread that writes pages may
    /// call this, or an older write could overtake a newer one. Reads are not blocked.
    pub fn write(&self, disk: &dyn Disk) -> io::Result<()> {
        self.take_changed().into_iter().try_for_each(|(place, bytes)| disk.write_at(place, &bytes))
    }

    fn take_changed(&self) -> Vec<(u64, Vec<u8>)> {
        let mut table = self.table.write();
        let ChecksumTable { groups, changed } = &mut *table;
        let mut pieces = Vec::with_capacity(changed.len());
        for number in changed.drain(..) {
            let Some(Some(group)) = groups.get_mut(number) else { continue };
            if let Some((first, last)) = group.changed.take() {
                pieces.push(group.piece(number, first..=last));
            }
        }
        pieces
    }

    /// Forgets the pages from `end` on, and clears their checksums in the file, so that they count
    /// as unwritten if the file grows again.
    pub fn cut(&self, disk: &dyn Disk, end: u64) -> io::Result<()> {
        let mut table = self.table.write();
        let (group, index) = checksum_group_of(end.max(1));
        table.groups.truncate(group + 1);
        table.changed.retain(|changed| *changed <= group);
        if index == 0 {
            table.groups.truncate(group);
            table.changed.retain(|changed| *changed < group);
            return Ok(());
        }
        let cut = table.load(disk, group)?;
        cut.sums[index..].fill(UNWRITTEN);
        let (place, bytes) = cut.piece(group, index..=GROUP as usize - 1);
        drop(table);
        disk.write_at(place, &bytes)
    }
}

impl ChecksumTable {
    fn load(&mut self, disk: &dyn Disk, group: usize) -> io::Result<&mut ChecksumGroup> {
        if self.groups.len() <= group {
            self.groups.resize(group + 1, None);
        }
        let slot = &mut self.groups[group];
        if slot.is_none() {
            let mut bytes = vec![0; usize::try_from(PAGE).expect("a page fits")];
            disk.read_at(checksums_offset(group), &mut bytes)?;
            let mut sums = [UNWRITTEN; GROUP as usize];
            for (sum, bytes) in sums.iter_mut().zip(bytes.as_chunks().0) {
                *sum = Checksum::from_le_bytes(*bytes);
            }
            *slot = Some(Box::new(ChecksumGroup { sums, changed: None }));
        }
        Ok(slot.as_mut().expect("it has just been loaded"))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::sim::SimDisk;

    /// A disk that asserts on each write that reads are not blocked.
    #[derive(Debug)]
    struct Looking(Arc<PageChecksums>, SimDisk);

    impl Disk for Looking {
        fn len(&self) -> io::Result<u64> {
            self.1.len()
        }

        fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            self.1.read_at(offset, out)
        }

        fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            assert!(self.0.table.try_read().is_some(), "a read would wait for this write");
            self.1.write_at(offset, data)
        }

        fn set_len(&self, len: u64) -> io::Result<()> {
            self.1.set_len(len)
        }

        fn sync_data(&self) -> io::Result<()> {
            self.1.sync_data()
        }
    }

    #[test]
    fn checksums_are_written_during_reads_and_read_back() {
        let sums = Arc::new(PageChecksums::default());
        let file = SimDisk::new(vec![0; 600 * 4096]);
        let disk = Looking(Arc::clone(&sums), file.clone());
        sums.set(&disk, 3, &[31, 32, 33]).unwrap();
        sums.set(&disk, 513, &[41, 42]).unwrap();
        sums.write(&disk).unwrap();
        let moments = file.moments();
        sums.write(&disk).unwrap();
        assert_eq!(file.moments(), moments, "nothing has changed");
        sums.cut(&disk, 514).unwrap();
        let again = PageChecksums::default();
        let read = |pages| again.with(&disk, pages, <[Checksum]>::to_vec).unwrap();
        assert_eq!(read(2..7), [0, 31, 32, 33, 0]);
        assert_eq!(read(513..515), [41, 0]);
    }

    #[test]
    fn the_same_bytes_have_another_checksum_in_another_place() {
        let bytes = [7; 4096];
        assert_eq!(checksum_of(1, &bytes), checksum_of(1, &bytes));
        assert_ne!(checksum_of(1, &bytes), checksum_of(2, &bytes));
    }
}
