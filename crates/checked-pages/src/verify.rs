//! Compares all pages of a file with their checksums, without changing it.

use std::io;

use crate::disk::Disk;
use crate::layout::{PAGE, contiguous_runs, logical_len, page_offset};
use crate::page_checksums::{PageChecksums, UNWRITTEN, checksum_of};

/// The most damaged pages to list.
const MAX_LISTED_PAGES: usize = 10;

/// The result of comparing all pages with their checksums.
#[derive(Debug, Default)]
pub struct ChecksumReport {
    /// Pages that match their checksum.
    pub right: u64,
    /// Pages that were never written.
    pub unwritten: u64,
    /// Pages that do not match their checksum.
    pub wrong: u64,
    /// The first damaged pages: number, and offset in the file.
    pub first_wrong: Vec<(u64, u64)>,
}

/// Compares every page of a file with its checksum.
pub fn verify_checksums(file: &dyn Disk) -> io::Result<ChecksumReport> {
    let mut report = ChecksumReport::default();
    let Some(len) = logical_len(file.len()?) else { return Ok(report) };
    let sums = PageChecksums::default();
    let mut buffer = Vec::new();
    for run in contiguous_runs(1..len / PAGE) {
        buffer.resize(usize::try_from((run.end - run.start) * PAGE).expect("a group is 2 MiB"), 0);
        file.read_at(page_offset(run.start), &mut buffer)?;
        sums.with(file, run.clone(), |sums| {
            for ((page, bytes), expected) in run.zip(buffer.chunks_exact(PAGE as usize)).zip(sums) {
                if *expected == UNWRITTEN {
                    report.unwritten += 1;
                } else if *expected == checksum_of(page, bytes) {
                    report.right += 1;
                } else {
                    report.wrong += 1;
                    if report.first_wrong.len() < MAX_LISTED_PAGES {
                        report.first_wrong.push((page, page_offset(page)));
                    }
                }
            }
        })?;
    }
    Ok(report)
}
