//! The checksum of every page, in memory as far as it has been needed: eight bytes for 4,096, so 2 MiB for 1 GiB.

use std::io;
use std::ops::RangeInclusive;

use parking_lot::RwLock;
use twox_hash::XxHash3_64;

use super::disk::Disk;
use super::layout::{GROUP, PAGE, group_of, sums_place};

/// A checksum; [`UNWRITTEN`] for a page that was never written.
pub type Sum = u64;
/// The checksum of no page.
pub const UNWRITTEN: Sum = 0;

/// Of a page's bytes and its number, so that a page in another's place is found too.
pub fn sum(page: u64, bytes: &[u8]) -> Sum {
    XxHash3_64::oneshot_with_seed(page, bytes).max(UNWRITTEN + 1)
}

#[derive(Debug, Clone)]
struct Group {
    sums: [Sum; GROUP as usize],
    /// Those that differ from the file lie in here.
    changed: Option<(usize, usize)>,
}

impl Group {
    fn set(&mut self, index: usize, sum: Sum) {
        self.sums[index] = sum;
        let (first, last) = self.changed.unwrap_or((index, index));
        self.changed = Some((first.min(index), last.max(index)));
    }
}

#[derive(Debug, Default)]
struct Table {
    groups: Vec<Option<Box<Group>>>,
    /// Groups that differ from the file.
    changed: Vec<usize>,
}

/// The checksums of a file.
#[derive(Debug, Default)]
pub struct Sums {
    table: RwLock<Table>,
}

impl Sums {
    /// Calls `check` with the checksums of `pages`, which are of one group.
    pub fn with<T>(
        &self,
        disk: &dyn Disk,
        pages: std::ops::Range<u64>,
        check: impl FnOnce(&[Sum]) -> T,
    ) -> io::Result<T> {
        let (group, first) = group_of(pages.start);
        let last = group_of(pages.end - 1).1;
        let table = self.table.read();
        if let Some(Some(group)) = table.groups.get(group) {
            return Ok(check(&group.sums[first..=last]));
        }
        drop(table);
        let mut table = self.table.write();
        Ok(check(&table.load(disk, group)?.sums[first..=last]))
    }

    /// Notes the checksums of the pages from `first` on, which are of one group.
    pub fn set(&self, disk: &dyn Disk, first: u64, sums: impl Iterator<Item = Sum>) -> io::Result<()> {
        let (group, mut index) = group_of(first);
        let mut table = self.table.write();
        let loaded = table.load(disk, group)?;
        let was_changed = loaded.changed.is_some();
        for sum in sums {
            loaded.set(index, sum);
            index += 1;
        }
        if !was_changed {
            table.changed.push(group);
        }
        Ok(())
    }

    /// Writes what has changed to the file.
    pub fn write(&self, disk: &dyn Disk) -> io::Result<()> {
        let mut table = self.table.write();
        let Table { groups, changed } = &mut *table;
        for number in changed.drain(..) {
            let Some(Some(group)) = groups.get_mut(number) else { continue };
            if let Some((first, last)) = group.changed.take() {
                write_group(disk, number, group, first..=last)?;
            }
        }
        Ok(())
    }

    /// Forgets the pages from `end` on. What is left in their group is cleared in the file: if it grows again, the
    /// pages are new ones.
    pub fn cut(&self, disk: &dyn Disk, end: u64) -> io::Result<()> {
        let mut table = self.table.write();
        let (group, index) = group_of(end.max(1));
        table.groups.truncate(group + 1);
        table.changed.retain(|changed| *changed <= group);
        if index == 0 {
            table.groups.truncate(group);
            table.changed.retain(|changed| *changed < group);
            return Ok(());
        }
        let cut = table.load(disk, group)?;
        cut.sums[index..].fill(UNWRITTEN);
        write_group(disk, group, cut, index..=GROUP as usize - 1)
    }
}

impl Table {
    fn load(&mut self, disk: &dyn Disk, group: usize) -> io::Result<&mut Group> {
        if self.groups.len() <= group {
            self.groups.resize(group + 1, None);
        }
        let slot = &mut self.groups[group];
        if slot.is_none() {
            let mut bytes = vec![0; usize::try_from(PAGE).expect("a page fits")];
            disk.read_at(sums_place(group), &mut bytes)?;
            let mut sums = [UNWRITTEN; GROUP as usize];
            for (sum, bytes) in sums.iter_mut().zip(bytes.as_chunks().0) {
                *sum = Sum::from_le_bytes(*bytes);
            }
            *slot = Some(Box::new(Group { sums, changed: None }));
        }
        Ok(slot.as_mut().expect("it has just been loaded"))
    }
}

fn write_group(disk: &dyn Disk, number: usize, group: &Group, part: RangeInclusive<usize>) -> io::Result<()> {
    let place = sums_place(number) + 8 * *part.start() as u64;
    let bytes: Vec<u8> = group.sums[part].iter().flat_map(|sum| sum.to_le_bytes()).collect();
    disk.write_at(place, &bytes)
}

#[cfg(test)]
mod tests {
    use super::sum;

    #[test]
    fn the_same_bytes_have_another_checksum_in_another_place() {
        let bytes = [7; 4096];
        assert_eq!(sum(1, &bytes), sum(1, &bytes));
        assert_ne!(sum(1, &bytes), sum(2, &bytes));
    }
}
