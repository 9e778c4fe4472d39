//! Recovery: finds the batches in the bytes of a log.

use super::anchor::LogAnchor;
use super::record::{BLOCK, Header, SECTOR, decode};
use crate::engine::storage::batch::WriteBatch;
use mutant::mutant;

/// A batch found in the log.
#[derive(Debug, PartialEq)]
pub struct LoggedBatch {
    /// The LSN of the batch.
    pub lsn: u64,
    /// Its mutations and ceiling.
    pub batch: WriteBatch,
}

/// Why a log does not belong to its data file, or is damaged.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScanError {
    /// The file is shorter than the data file records.
    #[error("it has {found} bytes, and had at least {len}; restore the directory from a copy")]
    Short {
        /// The length found.
        found: u64,
        /// The recorded length.
        len: u64,
    },
    /// The log belongs to another database.
    #[error("it belongs to another data file; put the two files of one copy of the directory back together")]
    Foreign,
    /// The log is newer than the data file.
    #[error(
        "it continues after batch {checkpoint_lsn}, which its data file lacks; put the two files of one copy of the \
         directory back together"
    )]
    Newer {
        /// The LSN of the checkpoint at which the log was restarted.
        checkpoint_lsn: u64,
    },
    /// A flushed batch is unreadable, although later ones are readable.
    #[error(
        "batch {lsn} (bytes {at}..{end}) is unreadable, and batch {later} after it is readable; restore the directory from a copy"
    )]
    Gap {
        /// The LSN of the first unreadable batch.
        lsn: u64,
        /// The offset where it should begin.
        at: u64,
        /// The offset of the next readable record.
        end: u64,
        /// The LSN of that record.
        later: u64,
    },
    /// A batch matches its checksum, but has an unknown format.
    #[error(
        "batch {lsn} (from byte {at}) matches its checksum but has an unknown format; open it with a newer version"
    )]
    Unintelligible {
        /// The LSN of the batch.
        lsn: u64,
        /// The offset of its record.
        at: u64,
    },
}

/// The batches in `bytes`, the log described by `anchor`, with LSNs above `applied`.
///
/// The log ends at the first incomplete record. Either that batch was never acknowledged, or it was
/// asynchronous. Each record tells how many batches before it were not flushed when it was written:
/// only those may be missing.
pub fn scan(bytes: &[u8], anchor: &LogAnchor, applied: u64) -> Result<Vec<LoggedBatch>, ScanError> {
    let len = usize::try_from(anchor.len).unwrap_or(usize::MAX);
    let Some(bytes) = bytes.get(..len) else {
        return Err(ScanError::Short { found: bytes.len() as u64, len: anchor.len });
    };
    if Header::parse(bytes, 0).is_some_and(|first| first.id != anchor.id) {
        return Err(ScanError::Foreign);
    }
    let (mut found, mut at, mut next) = (Vec::new(), 0, anchor.checkpoint_lsn + 1);
    loop {
        if let Some((start, header, body)) = next_record(bytes, anchor, at, next) {
            at = start;
            if next > applied {
                let none = ScanError::Unintelligible { lsn: next, at: at as u64 };
                let (ceiling, mutations) = decode(body).ok_or(none)?;
                found.push(LoggedBatch {
                    lsn: header.lsn,
                    batch: WriteBatch { version: 0, ceiling, mutations },
                });
            }
            at += (super::record::HEADER + body.len()).next_multiple_of(SECTOR);
            next += 1;
        } else if next <= applied && !mutant("scan-drops-flushed-batch") {
            // The data file has this batch, so damage to its record must not hide the batches after
            // `applied`.
            next = applied + 1;
            let Some(later) = find_record(bytes, anchor, at, next) else { break };
            at = later;
        } else {
            break;
        }
    }
    check_remainder(bytes, anchor, at, next.max(applied + 1))?;
    Ok(found)
}

/// The record of batch `lsn`, if it is complete. It lies right after the previous record, which
/// ends at `end`, or at the next block if that record was flushed.
fn next_record<'a>(
    bytes: &'a [u8],
    anchor: &LogAnchor,
    end: usize,
    lsn: u64,
) -> Option<(usize, Header, &'a [u8])> {
    let mut places = [end, end.next_multiple_of(BLOCK)].into_iter();
    places.find_map(|at| {
        let (header, body) = read_record(bytes, at).filter(|(header, _)| anchor.matches(header, lsn))?;
        Some((at, header, body))
    })
}

fn read_record(bytes: &[u8], at: usize) -> Option<(Header, &[u8])> {
    let header = Header::parse(bytes, at)?;
    Some((header, header.body(bytes, at)?))
}

/// The offset of the record of batch `lsn`, at or after `from`.
fn find_record(bytes: &[u8], anchor: &LogAnchor, from: usize, lsn: u64) -> Option<usize> {
    let is_it = |at: &usize| Header::parse(bytes, *at).is_some_and(|header| anchor.matches(&header, lsn));
    (from..bytes.len()).step_by(SECTOR).find(is_it)
}

/// Checks that no record after `end` proves that the batch `missing`, which was not found, had been
/// flushed.
fn check_remainder(bytes: &[u8], anchor: &LogAnchor, end: usize, missing: u64) -> Result<(), ScanError> {
    for at in (end..bytes.len()).step_by(SECTOR) {
        let Some(header) = Header::parse(bytes, at).filter(|header| header.id == anchor.id) else { continue };
        if header.checkpoint_lsn > anchor.checkpoint_lsn {
            return Err(ScanError::Newer { checkpoint_lsn: header.checkpoint_lsn });
        }
        let flushed = header.lsn.saturating_sub(1 + u64::from(header.unflushed));
        if header.checkpoint_lsn == anchor.checkpoint_lsn && header.lsn > missing && flushed >= missing {
            let (lsn, later) = (missing, header.lsn);
            return Err(ScanError::Gap { lsn, at: end as u64, end: at as u64, later });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::record::{RecordPosition, encode};
    use super::*;
    use crate::engine::mutation::Mutation;

    const NONE: [u64; 0] = [];
    const ANCHOR: LogAnchor = LogAnchor { id: 5, checkpoint_lsn: 10, len: 16 * SECTOR as u64 };

    fn batch(n: u64) -> WriteBatch {
        let value = vec![7; if n.is_multiple_of(2) { 10 } else { 900 }];
        let mutations = vec![Mutation::Set { key: n.to_le_bytes().to_vec(), value }];
        WriteBatch { version: 0, ceiling: None, mutations }
    }

    /// Writes records with these LSNs one after the other, and returns their offsets.
    fn write(log: &mut [u8], anchor: LogAnchor, numbers: std::ops::RangeInclusive<u64>) -> Vec<usize> {
        write_some(log, anchor, numbers, &[])
    }

    /// The same, but without a flush after each batch of `unflushed`.
    fn write_some(
        log: &mut [u8],
        anchor: LogAnchor,
        numbers: std::ops::RangeInclusive<u64>,
        unflushed: &[u64],
    ) -> Vec<usize> {
        let (mut at, mut record, mut places, mut waiting) = (0, Vec::new(), Vec::new(), 0);
        for lsn in numbers {
            let LogAnchor { id, checkpoint_lsn, .. } = anchor;
            let place = RecordPosition { id, checkpoint_lsn, lsn, unflushed: waiting, offset: at as u64 };
            waiting = if unflushed.contains(&lsn) { waiting + 1 } else { 0 };
            encode(place, &batch(lsn), &mut record);
            log[at..at + record.len()].copy_from_slice(&record);
            places.push(at);
            at += record.len();
        }
        places
    }

    fn empty() -> Vec<u8> {
        vec![0; usize::try_from(ANCHOR.len).unwrap()]
    }

    fn numbers(found: Result<Vec<LoggedBatch>, ScanError>) -> Vec<u64> {
        let found = found.unwrap();
        assert!(found.iter().all(|found| found.batch == batch(found.lsn)));
        found.iter().map(|found| found.lsn).collect()
    }

    #[test]
    fn a_scan_reads_batches_in_order_from_the_first_unapplied_one() {
        let mut log = empty();
        assert_eq!(numbers(scan(&log, &ANCHOR, 10)), NONE);
        write(&mut log, ANCHOR, 11..=14);
        assert_eq!(numbers(scan(&log, &ANCHOR, 10)), [11, 12, 13, 14]);
        assert_eq!(numbers(scan(&log, &ANCHOR, 12)), [13, 14]);
        assert_eq!(numbers(scan(&log, &ANCHOR, 20)), NONE);
    }

    #[test]
    fn flushed_batches_are_read_despite_damage_in_the_next_block() {
        let anchor = LogAnchor { len: 8 * BLOCK as u64, ..ANCHOR };
        let mut log = vec![0; 8 * BLOCK];
        let mut record = Vec::new();
        // 11 was flushed on its own, 12 and 13 together; 14 was being written.
        let places = [0, BLOCK, BLOCK + SECTOR, 2 * BLOCK];
        for (lsn, (at, unflushed)) in (11..).zip(places.into_iter().zip([0, 0, 1, 0])) {
            let LogAnchor { id, checkpoint_lsn, .. } = anchor;
            encode(
                RecordPosition { id, checkpoint_lsn, lsn, unflushed, offset: at as u64 },
                &batch(lsn),
                &mut record,
            );
            log[at..at + record.len()].copy_from_slice(&record);
        }
        assert_eq!(numbers(scan(&log, &anchor, 10)), [11, 12, 13, 14]);
        log[2 * BLOCK..3 * BLOCK].fill(0xa5);
        assert_eq!(numbers(scan(&log, &anchor, 10)), [11, 12, 13]);
        log[BLOCK..2 * BLOCK].fill(0xa5);
        assert_eq!(numbers(scan(&log, &anchor, 10)), [11]);
    }

    #[test]
    fn records_of_earlier_generations_are_ignored() {
        let mut log = empty();
        let before = LogAnchor { checkpoint_lsn: 5, ..ANCHOR };
        let places = write(&mut log, before, 6..=10);
        assert_eq!(numbers(scan(&log, &ANCHOR, 10)), NONE);
        write(&mut log, ANCHOR, 11..=11);
        assert!(places.iter().skip(2).all(|at| Header::parse(&log, *at).is_some()), "they are still there");
        assert_eq!(numbers(scan(&log, &ANCHOR, 10)), [11]);
    }

    #[test]
    fn a_damaged_applied_batch_hides_no_later_batch() {
        let mut log = empty();
        let places = write(&mut log, ANCHOR, 11..=14);
        let ends = [places[1], places[2], places[3]];
        for applied in 11..=13 {
            for damaged in 11..=applied {
                let index = usize::try_from(damaged - 11).unwrap();
                for at in (places[index]..ends[index]).step_by(SECTOR) {
                    for last in applied + 1..=14 {
                        let mut torn = log.clone();
                        torn[at..at + SECTOR].fill(0);
                        // The log ends after batch `last`.
                        if last < 14 {
                            torn[places[usize::try_from(last - 10).unwrap()]..].fill(0);
                        }
                        let expected: Vec<u64> = (applied + 1..=last).collect();
                        let what = format!("{damaged} damaged, {applied} applied, {last} written");
                        assert_eq!(scan(&torn, &ANCHOR, applied).map(|_| ()), Ok(()), "{what}");
                        assert_eq!(numbers(scan(&torn, &ANCHOR, applied)), expected, "{what}");
                    }
                }
            }
        }
    }

    #[test]
    fn only_the_last_batch_may_lack_sectors() {
        let mut log = empty();
        let places = write(&mut log, ANCHOR, 11..=13);
        let end = places[2] + 2 * SECTOR;
        for at in (0..end).step_by(SECTOR) {
            let mut torn = log.clone();
            torn[at..at + SECTOR].fill(0);
            let found = scan(&torn, &ANCHOR, 10);
            if at >= places[2] {
                assert_eq!(numbers(found), [11, 12]);
                continue;
            }
            let lsn = 11 + u64::from(at >= places[1]);
            let Err(ScanError::Gap { lsn: first, at: begin, .. }) = found else { panic!("{at}: {found:?}") };
            assert_eq!((first, begin), (lsn, places[usize::try_from(lsn - 11).unwrap()] as u64));
            assert_eq!(numbers(scan(&torn, &ANCHOR, 13)), NONE, "they are all in the file");
        }
    }

    #[test]
    fn unflushed_batches_may_be_missing_up_to_the_next_flush() {
        let mut log = empty();
        // 12 and 13 were written without a flush, 14 with one, 15 without.
        let places = write_some(&mut log, ANCHOR, 11..=15, &[12, 13, 15]);
        assert_eq!(numbers(scan(&log, &ANCHOR, 10)), [11, 12, 13, 14, 15]);
        let without = |missing: &[usize]| {
            let mut torn = log.clone();
            missing.iter().for_each(|n| torn[places[*n]..][..SECTOR].fill(0));
            scan(&torn, &ANCHOR, 10)
        };
        // Without 15, nothing tells whether the flush for 14 took place.
        assert_eq!(numbers(without(&[1, 4])), [11]);
        assert_eq!(numbers(without(&[1, 3, 4])), [11]);
        assert_eq!(numbers(without(&[2, 4])), [11, 12]);
        assert_eq!(numbers(without(&[4])), [11, 12, 13, 14]);
        // 15 was written after the flush of 14, and 12 after the flush of 11.
        for (missing, first) in [(&[1][..], 12), (&[1, 2], 12), (&[1, 2, 3], 12), (&[3], 14), (&[0, 4], 11)] {
            let found = without(missing);
            assert!(
                matches!(found, Err(ScanError::Gap { lsn, .. }) if lsn == first),
                "{missing:?}: {found:?}"
            );
        }
    }

    #[test]
    fn a_flipped_bit_never_changes_the_batches_read() {
        let mut log = empty();
        write(&mut log, ANCHOR, 11..=13);
        for bit in 0..log.len() * 8 {
            let mut flipped = log.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            match scan(&flipped, &ANCHOR, 10) {
                // Only the last batch may be taken for one that was never completed.
                Ok(found) => assert!([&[11, 12][..], &[11, 12, 13]].contains(&&*numbers(Ok(found)))),
                Err(wrong) => assert!(matches!(wrong, ScanError::Gap { .. }), "{wrong}"),
            }
        }
    }

    #[test]
    fn logs_of_other_files_are_refused() {
        let mut log = empty();
        write(&mut log, LogAnchor { id: 6, ..ANCHOR }, 11..=12);
        assert_eq!(scan(&log, &ANCHOR, 10), Err(ScanError::Foreign));
        write(&mut log, LogAnchor { checkpoint_lsn: 30, ..ANCHOR }, 31..=31);
        assert_eq!(scan(&log, &ANCHOR, 10), Err(ScanError::Newer { checkpoint_lsn: 30 }));
        assert_eq!(scan(&log[..600], &ANCHOR, 10), Err(ScanError::Short { found: 600, len: ANCHOR.len }));
    }

    #[test]
    fn a_batch_of_no_format_is_refused() {
        let mut log = empty();
        let mut record = Vec::new();
        let LogAnchor { id, checkpoint_lsn, .. } = ANCHOR;
        encode(
            RecordPosition { id, checkpoint_lsn, lsn: 11, unflushed: 0, offset: 0 },
            &batch(11),
            &mut record,
        );
        let header = Header::parse(&record, 0).unwrap();
        record[64] = b'?';
        let sum = twox_hash::XxHash3_64::oneshot(&record[64..][..usize::try_from(header.len).unwrap()]);
        record[40..48].copy_from_slice(&sum.to_le_bytes());
        let check = twox_hash::XxHash3_64::oneshot_with_seed(0, &record[..48]);
        record[48..56].copy_from_slice(&check.to_le_bytes());
        log[..record.len()].copy_from_slice(&record);
        assert_eq!(scan(&log, &ANCHOR, 10), Err(ScanError::Unintelligible { lsn: 11, at: 0 }));
    }
}
