//! The first page of the file: what it is, redb's header, and whether the header's last change was flushed.
//!
//! ```text
//!    0  magic, format, their checksum
//!  512  redb's header, length of the file, number of the write, checksum      writes with an even number
//! 1024  the same                                                            writes with an odd number
//! 1536  number of the last write that was flushed, checksum
//! ```
//! redb overwrites its header in place and checks only parts of it. Here each write goes to the other of two sectors than the
//! last one that was flushed, so that a write that was torn by a power failure leaves that one. redb writes its header more than once
//! between two flushes: those writes go to the same sector and have the same number. The number that was flushed tells a
//! torn write from a sector that was damaged later: nothing that was flushed may be unreadable. The length tells a file that was cut off.
//!
//! A power failure may leave any bytes of a write that was not flushed, so every checksum here may fail to match, and each piece is
//! read without the others.

use twox_hash::XxHash3_64;

use super::layout::PAGE;
use crate::mutant::mutant;

const MAGIC: [u8; 8] = *b"\xfdfdb-emb";
/// The first bytes of format 1: a plain redb file.
const REDB_MAGIC: [u8; 4] = *b"redb";
/// The layout of the directory: 1 was a plain redb file, without checksums that reads look at; 2 had no log beside it; in the
/// log of 3 no batch was written before the one before it was flushed; in that of 4 a batch could lie in a block with one that was
/// flushed before.
pub const FORMAT: u32 = 5;
/// The oldest one that is brought up to date when it is opened.
pub const OLDEST_FORMAT: u32 = 2;

/// Bytes of magic, format and their checksum.
const PREFIX: usize = 24;
const SECTOR: usize = 512;
const MARK: usize = 3 * SECTOR;
const LEN: usize = 488;
const NUMBER: usize = 496;
const CHECK: usize = 504;
/// Bytes of redb's header that a sector has room for; redb 4 uses 320.
pub const HEADER: usize = 480;

/// One page of bytes.
pub type PageBytes = [u8; PAGE as usize];

/// What is wrong with a first page.
#[derive(Debug, PartialEq, Eq)]
pub enum SuperblockError {
    /// It is not this engine's.
    Foreign,
    /// It has another format.
    Format(u32),
    /// It is this engine's, and damaged: what.
    Damaged(&'static str),
}

/// The first page in memory.
#[derive(Debug)]
pub struct Superblock {
    format: u32,
    /// redb's header.
    header: [u8; HEADER],
    /// Bytes of the file when it was written.
    len: u64,
    /// How often it has been written and flushed, and once more if the last write was not flushed.
    written: u64,
    /// The last of those writes that is known to be on the disk.
    durable: u64,
    /// The last one of which the file itself says so.
    flushed: u64,
}

/// A piece of the file to be written.
pub type FileWrite<'a> = (u64, &'a [u8]);

fn hash(bytes: &[u8], seed: usize) -> [u8; 8] {
    XxHash3_64::oneshot_with_seed(seed as u64, bytes).to_le_bytes()
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"))
}

/// What a file of a format is.
fn prefix(format: u32) -> [u8; PREFIX] {
    let mut prefix = [0; PREFIX];
    prefix[..8].copy_from_slice(&MAGIC);
    prefix[8..12].copy_from_slice(&format.to_le_bytes());
    let check = hash(&prefix[..16], 0);
    prefix[16..].copy_from_slice(&check);
    prefix
}

/// True if the first bytes are those of one known format in part, and of another one for the rest: a power failure has cut off
/// the write that brings a file up to date.
fn is_between_formats(page: &PageBytes) -> bool {
    let known: Vec<_> = (OLDEST_FORMAT..=FORMAT).map(prefix).collect();
    (0..PREFIX).all(|at| known.iter().any(|prefix| prefix[at] == page[at]))
}

impl Superblock {
    /// Of a file that holds nothing yet.
    pub fn new() -> Superblock {
        Superblock { format: FORMAT, header: [0; HEADER], len: 0, written: 0, durable: 0, flushed: 0 }
    }

    /// Reads the first page of a file.
    pub fn parse(page: &PageBytes) -> Result<Superblock, SuperblockError> {
        if page.starts_with(&REDB_MAGIC) {
            return Err(SuperblockError::Format(1));
        }
        if !page.starts_with(&MAGIC) {
            return Err(SuperblockError::Foreign);
        }
        let format = if page[16..24] == hash(&page[..16], 0) {
            u32::from_le_bytes(page[8..12].try_into().expect("four bytes"))
        } else if is_between_formats(page) {
            // Nothing is known of it that the oldest format does not have, and it is brought up to date again.
            OLDEST_FORMAT
        } else {
            return Err(SuperblockError::Damaged("its format number does not match its checksum"));
        };
        if !(OLDEST_FORMAT..=FORMAT).contains(&format) {
            return Err(SuperblockError::Format(format));
        }
        let copy = |slot: usize| {
            let sector = &page[slot * SECTOR..][..SECTOR];
            let written = number(&sector[NUMBER..]);
            (sector[CHECK..] == hash(&sector[..CHECK], slot)).then_some((written, sector))
        };
        let mark = &page[MARK..MARK + 16];
        let flushed = (mark[8..] == hash(&mark[..8], MARK)).then(|| number(mark));
        let (written, sector) = match (copy(1), copy(2)) {
            (Some(a), Some(b)) => a.max(b),
            (Some(one), None) | (None, Some(one)) => match flushed {
                Some(flushed) if flushed > one.0 => {
                    return Err(SuperblockError::Damaged(
                        "a header that was flushed does not match its checksum",
                    ));
                }
                // The mark of the one may have been torn together with the write of the other.
                _ => one,
            },
            (None, None) => return Err(SuperblockError::Damaged("neither header matches its checksum")),
        };
        // Without the mark the last write counts as one that a crash may have cut off, which is always safe.
        let flushed = flushed.unwrap_or(written.saturating_sub(1));
        if flushed > written {
            return Err(SuperblockError::Damaged("its newest header is gone"));
        }
        let header = sector[..HEADER].try_into().expect("a sector has room");
        let len = number(&sector[LEN..]);
        Ok(Superblock { format, header, len, written, durable: flushed, flushed })
    }

    /// The format that the file has.
    pub fn format(&self) -> u32 {
        self.format
    }

    /// The first bytes of the file in the newest format, if they are not what it has: to be flushed before anything is
    /// written that an older version does not know.
    pub fn upgrade(&mut self) -> Option<[u8; PREFIX]> {
        let is_old = self.format < FORMAT;
        self.format = FORMAT;
        is_old.then(|| prefix(FORMAT))
    }

    /// True if nobody knows whether all that the header speaks of reached the disk.
    pub fn is_in_flight(&self) -> bool {
        self.flushed < self.written
    }

    /// The least length that the file may have, bytes.
    pub fn least_len(&self) -> u64 {
        // Whether a file grew for a commit that was cut off is not known.
        if self.is_in_flight() { 0 } else { self.len }
    }

    /// redb's header.
    pub fn header(&self) -> &[u8; HEADER] {
        &self.header
    }

    /// Takes a new header, for a file of `len` bytes, and gives `write` the pieces of the file to write. The first comes with the whole page.
    pub fn set_header<E>(
        &mut self,
        header: &[u8],
        len: u64,
        mut write: impl FnMut(FileWrite<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.written == 0 {
            let mut page: PageBytes = [0; PAGE as usize];
            page[..PREFIX].copy_from_slice(&prefix(FORMAT));
            write((0, &page))?;
        }
        self.header[..header.len()].copy_from_slice(header);
        self.len = len;
        // The other sector holds the last header that was flushed, and stays as it is until this one is.
        if self.written == self.durable || mutant("headers-take-turns-unflushed") {
            self.written += 1;
        }
        let slot = if self.written.is_multiple_of(2) { 1 } else { 2 };
        let mut sector = [0; SECTOR];
        sector[..HEADER].copy_from_slice(&self.header);
        sector[LEN..NUMBER].copy_from_slice(&self.len.to_le_bytes());
        sector[NUMBER..CHECK].copy_from_slice(&self.written.to_le_bytes());
        let check = hash(&sector[..CHECK], slot);
        sector[CHECK..].copy_from_slice(&check);
        write(((slot * SECTOR) as u64, &sector))
    }

    /// The number of the last write of the header: what [`Superblock::durable`] and [`Superblock::flushed`] take after a
    /// flush.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// All writes up to number `written` are on the disk.
    pub fn durable(&mut self, written: u64) {
        self.durable = self.durable.max(written);
    }

    /// All writes up to number `written` are on the disk, and what they speak of was found sound; gives the mark that says so, if it is
    /// news.
    pub fn flushed(&mut self, written: u64) -> Option<(u64, [u8; 16])> {
        if written <= self.flushed {
            return None;
        }
        self.durable(written);
        self.flushed = written;
        let mut mark = [0; 16];
        mark[..8].copy_from_slice(&written.to_le_bytes());
        let check = hash(&mark[..8], MARK);
        mark[8..].copy_from_slice(&check);
        Some((MARK as u64, mark))
    }
}

/// Makes a first page say that it has another format.
#[cfg(test)]
pub fn set_format(page: &mut [u8], format: u32) {
    page[8..12].copy_from_slice(&format.to_le_bytes());
    let check = hash(&page[..16], 0);
    page[16..PREFIX].copy_from_slice(&check);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page with `n` headers written, all but the last `unflushed` of them flushed.
    fn page(n: u8, unflushed: u8) -> PageBytes {
        let mut page = [0; PAGE as usize];
        let mut superblock = Superblock::new();
        for i in 1..=n {
            let mut put = |(at, bytes): FileWrite<'_>| {
                page[usize::try_from(at).unwrap()..][..bytes.len()].copy_from_slice(bytes);
                Ok::<_, ()>(())
            };
            superblock.set_header(&[i; 320], 4096, &mut put).unwrap();
            if i + unflushed <= n
                && let Some((at, mark)) = superblock.flushed(i.into())
            {
                put((at, &mark)).unwrap();
            }
        }
        page
    }

    #[test]
    fn the_newest_header_is_read_back() {
        for n in 2..6 {
            for unflushed in 0..2 {
                let read = Superblock::parse(&page(n, unflushed)).unwrap();
                assert_eq!(read.header()[..320], [n; 320]);
                assert_eq!(read.is_in_flight(), unflushed > 0);
            }
        }
    }

    #[test]
    fn no_flipped_bit_is_taken_for_the_truth() {
        for (n, unflushed) in [(5, 0), (6, 0), (6, 1)] {
            for bit in 0..2048 * 8 {
                let mut page = page(n, unflushed);
                page[bit / 8] ^= 1 << (bit % 8);
                if let Ok(read) = Superblock::parse(&page) {
                    let newest = read.header()[..320] == [n; 320];
                    let one_that_was_flushed_before = unflushed == 1 && read.header()[..320] == [n - 1; 320];
                    assert!(newest || one_that_was_flushed_before, "bit {bit}");
                }
            }
        }
    }

    #[test]
    fn a_header_that_was_torn_in_flight_leaves_the_one_before() {
        let mut torn = page(6, 1);
        torn[SECTOR..SECTOR + 100].fill(9);
        assert_eq!(Superblock::parse(&torn).unwrap().header()[..320], [5; 320]);
        let mut damaged = page(6, 0);
        damaged[SECTOR..SECTOR + 100].fill(9);
        assert!(matches!(Superblock::parse(&damaged), Err(SuperblockError::Damaged(_))));
    }

    #[test]
    fn headers_that_are_written_without_a_flush_between_leave_the_one_that_was_flushed() {
        let mut page = [0; PAGE as usize];
        let mut superblock = Superblock::new();
        for i in 1..=6 {
            let put = |(at, bytes): FileWrite<'_>| {
                page[usize::try_from(at).unwrap()..][..bytes.len()].copy_from_slice(bytes);
                Ok::<_, ()>(())
            };
            superblock.set_header(&[i; 320], 4096, put).unwrap();
            // The last two are not flushed.
            if i < 5 {
                superblock.durable(superblock.written());
            }
        }
        assert_eq!(Superblock::parse(&page).unwrap().header()[..320], [6; 320]);
        let slots = [SECTOR, 2 * SECTOR];
        let read = |torn: usize| {
            let mut page = page;
            page[torn..torn + 100].fill(9);
            Superblock::parse(&page).unwrap().header()[0]
        };
        let mut left = slots.map(read);
        left.sort_unstable();
        assert_eq!(left, [4, 6]);
    }

    #[test]
    fn a_mark_and_a_header_that_were_torn_together_leave_the_header_before() {
        let mut torn = page(6, 1);
        torn[SECTOR..SECTOR + 100].fill(9);
        torn[MARK + 3..MARK + 11].fill(9);
        let read = Superblock::parse(&torn).unwrap();
        assert_eq!(read.header()[..320], [5; 320]);
        assert!(read.is_in_flight());
    }

    #[test]
    fn a_format_whose_change_was_torn_is_brought_up_to_date_again() {
        let newest = page(3, 0);
        for old in OLDEST_FORMAT..FORMAT {
            for cut in 0..=PREFIX {
                for begins_new in [true, false] {
                    let mut torn = newest;
                    let (first, last) = if begins_new { (FORMAT, old) } else { (old, FORMAT) };
                    torn[..cut].copy_from_slice(&prefix(first)[..cut]);
                    torn[cut..PREFIX].copy_from_slice(&prefix(last)[cut..]);
                    let mut read = Superblock::parse(&torn).unwrap();
                    if let Some(prefix) = read.upgrade() {
                        torn[..PREFIX].copy_from_slice(&prefix);
                    }
                    assert!(torn == newest, "{old}, cut at {cut}");
                }
            }
        }
    }

    #[test]
    fn other_files_and_formats_are_told_apart() {
        let mut plain = [0; PAGE as usize];
        plain[..4].copy_from_slice(b"redb");
        assert_eq!(Superblock::parse(&plain).unwrap_err(), SuperblockError::Format(1));
        assert_eq!(Superblock::parse(&[b' '; PAGE as usize]).unwrap_err(), SuperblockError::Foreign);
        let mut newer = page(3, 0);
        set_format(&mut newer, FORMAT + 1);
        assert_eq!(Superblock::parse(&newer).unwrap_err(), SuperblockError::Format(FORMAT + 1));
    }

    #[test]
    fn the_format_before_is_read_and_brought_up_to_date() {
        let newest = page(3, 0);
        let mut older = newest;
        set_format(&mut older, 2);
        let mut read = Superblock::parse(&older).unwrap();
        let prefix = read.upgrade().unwrap();
        older[..PREFIX].copy_from_slice(&prefix);
        assert!(older == newest, "nothing else differs");
        assert!(read.upgrade().is_none() && Superblock::parse(&newest).unwrap().upgrade().is_none());
    }
}
