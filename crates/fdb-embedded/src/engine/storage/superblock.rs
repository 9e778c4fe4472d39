//! The first page of the file: what it is, redb's header, and whether the header's last change was flushed.
//!
//! ```text
//!    0  magic, format, their checksum
//!  512  redb's header, length of the file, number of the write, checksum      writes with an even number
//! 1024  the same                                                            writes with an odd number
//! 1536  number of the last write that was flushed, checksum
//! ```
//! redb overwrites its header in place and checks only parts of it. Here each write goes to the other of two sectors,
//! so that one that was torn by a power failure leaves the one before it, and the number that was flushed tells a torn
//! write from a sector that was damaged later: nothing that was flushed may be unreadable. The length tells a file that was
//! cut off.

use twox_hash::XxHash3_64;

use super::layout::PAGE;

const MAGIC: [u8; 8] = *b"\xfdfdb-emb";
/// The first bytes of format 1: a plain redb file.
const REDB_MAGIC: [u8; 4] = *b"redb";
/// The layout of the directory: 1 was a plain redb file, without checksums that reads look at; 2 had no log beside it; in the
/// log of 3 no batch was written before the one before it was flushed.
pub const FORMAT: u32 = 4;
/// The oldest one that is brought up to date when it is opened.
pub const OLDEST: u32 = 2;

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
pub enum Unusable {
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
    /// How often it has been written.
    written: u64,
    /// The last of those writes that was flushed.
    flushed: u64,
}

/// A piece of the file to be written.
pub type Piece<'a> = (u64, &'a [u8]);

fn hash(bytes: &[u8], seed: usize) -> [u8; 8] {
    XxHash3_64::oneshot_with_seed(seed as u64, bytes).to_le_bytes()
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"))
}

/// What the file is.
fn prefix() -> [u8; PREFIX] {
    let mut prefix = [0; PREFIX];
    prefix[..8].copy_from_slice(&MAGIC);
    prefix[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    let check = hash(&prefix[..16], 0);
    prefix[16..].copy_from_slice(&check);
    prefix
}

impl Superblock {
    /// Of a file that holds nothing yet.
    pub fn new() -> Superblock {
        Superblock { format: FORMAT, header: [0; HEADER], len: 0, written: 0, flushed: 0 }
    }

    /// Reads the first page of a file.
    pub fn parse(page: &PageBytes) -> Result<Superblock, Unusable> {
        if page.starts_with(&REDB_MAGIC) {
            return Err(Unusable::Format(1));
        }
        if !page.starts_with(&MAGIC) {
            return Err(Unusable::Foreign);
        }
        if page[16..24] != hash(&page[..16], 0) {
            return Err(Unusable::Damaged("its format number does not match its checksum"));
        }
        let format = u32::from_le_bytes(page[8..12].try_into().expect("four bytes"));
        if !(OLDEST..=FORMAT).contains(&format) {
            return Err(Unusable::Format(format));
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
                Some(flushed) if flushed <= one.0 => one,
                _ => return Err(Unusable::Damaged("a header that was flushed does not match its checksum")),
            },
            (None, None) => return Err(Unusable::Damaged("neither header matches its checksum")),
        };
        // Without the mark the last write counts as one that a crash may have cut off, which is always safe.
        let flushed = flushed.unwrap_or(written.saturating_sub(1));
        if flushed > written {
            return Err(Unusable::Damaged("its newest header is gone"));
        }
        let header = sector[..HEADER].try_into().expect("a sector has room");
        Ok(Superblock { format, header, len: number(&sector[LEN..]), written, flushed })
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
        is_old.then(prefix)
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
        mut write: impl FnMut(Piece<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.written == 0 {
            let mut page: PageBytes = [0; PAGE as usize];
            page[..PREFIX].copy_from_slice(&prefix());
            write((0, &page))?;
        }
        self.header[..header.len()].copy_from_slice(header);
        self.len = len;
        self.written += 1;
        let slot = if self.written.is_multiple_of(2) { 1 } else { 2 };
        let mut sector = [0; SECTOR];
        sector[..HEADER].copy_from_slice(&self.header);
        sector[LEN..NUMBER].copy_from_slice(&self.len.to_le_bytes());
        sector[NUMBER..CHECK].copy_from_slice(&self.written.to_le_bytes());
        let check = hash(&sector[..CHECK], slot);
        sector[CHECK..].copy_from_slice(&check);
        write(((slot * SECTOR) as u64, &sector))
    }

    /// How often the header has been written: what [`Superblock::flushed`] is to be told after a flush.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// All writes up to number `written` are on the disk; gives the mark that says so, if it is news.
    pub fn flushed(&mut self, written: u64) -> Option<(u64, [u8; 16])> {
        if written <= self.flushed {
            return None;
        }
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
            let mut put = |(at, bytes): Piece<'_>| {
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
        assert!(matches!(Superblock::parse(&damaged), Err(Unusable::Damaged(_))));
    }

    #[test]
    fn other_files_and_formats_are_told_apart() {
        let mut plain = [0; PAGE as usize];
        plain[..4].copy_from_slice(b"redb");
        assert_eq!(Superblock::parse(&plain).unwrap_err(), Unusable::Format(1));
        assert_eq!(Superblock::parse(&[b' '; PAGE as usize]).unwrap_err(), Unusable::Foreign);
        let mut newer = page(3, 0);
        set_format(&mut newer, FORMAT + 1);
        assert_eq!(Superblock::parse(&newer).unwrap_err(), Unusable::Format(FORMAT + 1));
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
