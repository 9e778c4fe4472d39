//! Maps redb's pages to offsets in the file.
//!
//! ```text
//! page 0        pages 1..=512                pages 513..=1024
//! [superblock]  [checksums][512 pages]       [checksums][512 pages]   ...
//! ```
//! redb sees pages 0, 1, 2, ... without the checksums between them. Page 0 is redb's header, which
//! the superblock stores ([`crate::superblock`]). redb writes runs of 2^n pages; none crosses a
//! group unless it is larger than one.

use std::ops::Range;

/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// Pages whose checksums share one page, eight bytes each.
pub const GROUP: u64 = 512;

/// The group of a page, and its index in the group. Not for page 0.
pub fn checksum_group_of(page: u64) -> (usize, usize) {
    let index = page - 1;
    let narrow = |n| usize::try_from(n).expect("a file holds fewer groups than a usize counts");
    (narrow(index / GROUP), narrow(index % GROUP))
}

/// The offset of a page in the file. Not for page 0.
pub fn page_offset(page: u64) -> u64 {
    let index = page - 1;
    (1 + index / GROUP * (GROUP + 1) + 1 + index % GROUP) * PAGE
}

/// The offset of a group's checksums in the file.
pub fn checksums_offset(group: usize) -> u64 {
    (1 + group as u64 * (GROUP + 1)) * PAGE
}

/// Splits `pages` at group boundaries, so that each part is contiguous in the file.
pub fn contiguous_runs(pages: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let mut next = pages.start;
    std::iter::from_fn(move || {
        let start = next;
        next = pages.end.min(1 + ((start - 1) / GROUP + 1) * GROUP);
        (start < pages.end).then_some(start..next)
    })
}

/// The length of the file that shows redb `logical` bytes.
pub fn physical_len(logical: u64) -> u64 {
    let pages = logical.div_ceil(PAGE);
    match pages.checked_sub(1) {
        None => 0,
        Some(data) => (1 + data + data.div_ceil(GROUP)) * PAGE,
    }
}

/// The length that redb sees of a file of `physical` bytes; `None` for a length that the engine
/// never sets.
pub fn logical_len(physical: u64) -> Option<u64> {
    let pages = physical / PAGE;
    let logical = match pages.checked_sub(1) {
        None => 0,
        Some(rest) => (1 + rest - rest.div_ceil(GROUP + 1)) * PAGE,
    };
    (physical_len(logical) == physical).then_some(logical)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logical_and_physical_lengths_round_trip_without_overlapping_pages() {
        let mut last = 0;
        for pages in 1..3_000_u64 {
            let logical = pages * PAGE;
            let physical = physical_len(logical);
            assert_eq!(logical_len(physical), Some(logical));
            assert_eq!(logical_len(physical + 1), None);
            if pages > 1 {
                let place = page_offset(pages - 1);
                assert_eq!(place + PAGE, physical, "the last page ends the file");
                assert!(place > last && place > checksums_offset(checksum_group_of(pages - 1).0));
                last = place;
            }
        }
        assert_eq!((logical_len(0), physical_len(0)), (Some(0), 0));
        assert_eq!(logical_len(2 * PAGE), None, "checksums of nothing");
    }

    #[test]
    fn contiguous_runs_end_at_group_boundaries() {
        let all: Vec<_> = contiguous_runs(510..1030).collect();
        assert_eq!(all, [510..513, 513..1025, 1025..1030]);
        assert_eq!(contiguous_runs(1..513).map(|run| run.end).collect::<Vec<_>>(), [513]);
        assert_eq!(contiguous_runs(7..7).count(), 0);
    }
}
