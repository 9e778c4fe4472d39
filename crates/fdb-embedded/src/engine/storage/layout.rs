//! Where a page of redb's lies in the file.
//!
//! ```text
//! page 0        pages 1..=512                pages 513..=1024
//! [superblock]  [checksums][512 pages]       [checksums][512 pages]   ...
//! ```
//! redb sees pages 0, 1, 2, ... without the checksums between them. Its page 0 is its header, which the superblock
//! keeps ([`super::superblock`]). Powers of two that redb writes as one piece do not straddle a group until they are
//! larger than one.

use std::ops::Range;

/// Bytes of a page, redb's and ours.
pub const PAGE: u64 = 4096;
/// Pages that share one page of checksums, eight bytes each.
pub const GROUP: u64 = 512;

/// The group of a page other than page 0, and its place in the group.
pub fn checksum_group_of(page: u64) -> (usize, usize) {
    let index = page - 1;
    let narrow = |n| usize::try_from(n).expect("a file holds fewer groups than a usize counts");
    (narrow(index / GROUP), narrow(index % GROUP))
}

/// Offset in the file of a page other than page 0.
pub fn page_offset(page: u64) -> u64 {
    let index = page - 1;
    (1 + index / GROUP * (GROUP + 1) + 1 + index % GROUP) * PAGE
}

/// Offset in the file of a group's checksums.
pub fn checksums_offset(group: usize) -> u64 {
    (1 + group as u64 * (GROUP + 1)) * PAGE
}

/// The parts of `pages`, none of which straddles a group, so that each is one piece of the file.
pub fn contiguous_runs(pages: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let mut next = pages.start;
    std::iter::from_fn(move || {
        let start = next;
        next = pages.end.min(1 + ((start - 1) / GROUP + 1) * GROUP);
        (start < pages.end).then_some(start..next)
    })
}

/// Length of the file for what redb takes to be `logical` bytes.
pub fn physical_len(logical: u64) -> u64 {
    let pages = logical.div_ceil(PAGE);
    match pages.checked_sub(1) {
        None => 0,
        Some(data) => (1 + data + data.div_ceil(GROUP)) * PAGE,
    }
}

/// What redb takes a file of `physical` bytes to be; `None` for a length that this engine never gives a file.
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
    fn lengths_go_there_and_back_and_no_two_pages_share_a_place() {
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
    fn runs_end_where_groups_do() {
        let all: Vec<_> = contiguous_runs(510..1030).collect();
        assert_eq!(all, [510..513, 513..1025, 1025..1030]);
        assert_eq!(contiguous_runs(1..513).map(|run| run.end).collect::<Vec<_>>(), [513]);
        assert_eq!(contiguous_runs(7..7).count(), 0);
    }
}
