//! The superblock: the file's first page, with the format, redb's header, and whether the last
//! header was flushed.
//!
//! ```text
//!    0  magic, format, their checksum
//!  512  redb's header, length of the file, number of the write, checksum      for even numbers
//! 1024  the same                                                            for odd numbers
//! 1536  number of the last flushed write, checksum
//! ```
//! redb overwrites its header in place and protects only parts of it with checksums. Here a new
//! header goes to the sector that does not hold the last flushed one, so that a torn write cannot
//! destroy that. redb writes its header several times between two flushes; those writes share a
//! sector and a number. The flushed number tells a torn write from later damage: a header that was
//! flushed must be readable. The length detects a truncated file.
//!
//! A power failure may leave any bytes of an unflushed write, so each checksum here may fail. Every
//! part can be read without the others.

use twox_hash::XxHash3_64;

use crate::layout::PAGE;
use mutant::mutant;

const MAGIC: [u8; 8] = *b"\xfdfdb-emb";
/// The first bytes of format 1: a plain redb file.
const REDB_MAGIC: [u8; 4] = *b"redb";
/// The format of the directory. 1: a plain redb file. 2: page checksums, no log. 3: a log in which
/// each batch was flushed before the next was written. 4: a log in which a batch could share a
/// block with a flushed one. 5: this one.
pub const FORMAT: u32 = 5;
/// The oldest format that is upgraded when it is opened.
pub const OLDEST_FORMAT: u32 = 2;

/// Bytes of magic, format and checksum.
const PREFIX: usize = 24;
const SECTOR: usize = 512;
const MARK: usize = 3 * SECTOR;
const LEN: usize = 488;
const NUMBER: usize = 496;
const CHECK: usize = 504;
/// Bytes that a sector has for redb's header. redb 4 uses 320.
pub const HEADER: usize = 480;

/// One page of bytes.
pub type PageBytes = [u8; PAGE as usize];

/// Why a first page cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub enum SuperblockError {
    /// The file is not a database of this engine.
    Foreign,
    /// The file has this unsupported format.
    Format(u32),
    /// The file is damaged at the named part.
    Damaged(&'static str),
}

/// The superblock in memory.
#[derive(Debug)]
pub struct Superblock {
    format: u32,
    /// redb's header.
    header: [u8; HEADER],
    /// Length of the file in bytes at the last write of the header.
    len: u64,
    /// The number of the last write of the header. It counts flushes, and one more for an unflushed
    /// write.
    written: u64,
    /// The last write that is known to be on the disk.
    durable: u64,
    /// The last write that the file itself records as flushed.
    flushed: u64,
}

/// An offset in the file, and the bytes to write there.
pub type FileWrite<'a> = (u64, &'a [u8]);

fn hash(bytes: &[u8], seed: usize) -> [u8; 8] {
    XxHash3_64::oneshot_with_seed(seed as u64, bytes).to_le_bytes()
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"))
}

/// The first bytes of a file of this format.
fn prefix(format: u32) -> [u8; PREFIX] {
    let mut prefix = [0; PREFIX];
    prefix[..8].copy_from_slice(&MAGIC);
    prefix[8..12].copy_from_slice(&format.to_le_bytes());
    let check = hash(&prefix[..16], 0);
    prefix[16..].copy_from_slice(&check);
    prefix
}

/// True if a power failure interrupted a format upgrade: each byte belongs to some known format.
fn is_between_formats(page: &PageBytes) -> bool {
    let known: Vec<_> = (OLDEST_FORMAT..=FORMAT).map(prefix).collect();
    (0..PREFIX).all(|at| known.iter().any(|prefix| prefix[at] == page[at]))
}

impl Superblock {
    /// The superblock of a new file.
    pub fn new() -> Superblock {
        Superblock { format: FORMAT, header: [0; HEADER], len: 0, written: 0, durable: 0, flushed: 0 }
    }

    /// Parses the first page of a file.
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
            // Such a file has only what the oldest format has. The upgrade is repeated.
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
                // The write that tore the other header may also have torn the mark.
                _ => one,
            },
            (None, None) => return Err(SuperblockError::Damaged("neither header matches its checksum")),
        };
        // Without the mark, the last write is assumed to be in flight, which is always safe.
        let flushed = flushed.unwrap_or(written.saturating_sub(1));
        if flushed > written {
            return Err(SuperblockError::Damaged("its newest header is gone"));
        }
        let header = sector[..HEADER].try_into().expect("a sector has room");
        let len = number(&sector[LEN..]);
        Ok(Superblock { format, header, len, written, durable: flushed, flushed })
    }

    /// The file's format.
    pub fn format(&self) -> u32 {
        self.format
    }

    /// The first bytes of the newest format, if the file has an older one. They have to be flushed
    /// before anything is written that the older format does not know.
    pub fn upgrade(&mut self) -> Option<[u8; PREFIX]> {
        let is_old = self.format < FORMAT;
        self.format = FORMAT;
        is_old.then(|| prefix(FORMAT))
    }

    /// True if the commit of the last header may not have reached the disk.
    pub fn is_in_flight(&self) -> bool {
        self.flushed < self.written
    }

    /// The minimum length of the file in bytes.
    pub fn least_len(&self) -> u64 {
        // A commit in flight may or may not have grown the file.
        if self.is_in_flight() { 0 } else { self.len }
    }

    /// redb's header.
    pub fn header(&self) -> &[u8; HEADER] {
        &self.header
    }

    /// Sets a new header for a file of `len` bytes, and calls `write` for each part of the file to
    /// write. The first call of a new file writes the whole page.
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
        // The other sector holds the last flushed header. It stays unchanged until this one is
        // flushed.
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

    /// The number of the last write of the header, to be passed to [`Superblock::durable`] and
    /// [`Superblock::flushed`] after a flush.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Records that all writes up to number `written` are on the disk.
    pub fn durable(&mut self, written: u64) {
        self.durable = self.durable.max(written);
    }

    /// Records that all writes up to number `written` are on the disk and their data is sound.
    /// Returns the mark to write to the file, if it is new.
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

/// The format of a file, by its first page.
pub fn format_of(page: &PageBytes) -> Result<u32, SuperblockError> {
    Superblock::parse(page).map(|superblock| superblock.format())
}

/// Changes the format of a first page.
#[cfg(any(test, feature = "sim"))]
pub fn set_format(page: &mut [u8], format: u32) {
    page[8..12].copy_from_slice(&format.to_le_bytes());
    let check = hash(&page[..16], 0);
    page[16..PREFIX].copy_from_slice(&check);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page after `n` writes of the header. The last `unflushed` of them were not flushed.
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
    fn a_flipped_bit_never_yields_a_wrong_header() {
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
    fn a_torn_header_leaves_the_one_before() {
        let mut torn = page(6, 1);
        torn[SECTOR..SECTOR + 100].fill(9);
        assert_eq!(Superblock::parse(&torn).unwrap().header()[..320], [5; 320]);
        let mut damaged = page(6, 0);
        damaged[SECTOR..SECTOR + 100].fill(9);
        assert!(matches!(Superblock::parse(&damaged), Err(SuperblockError::Damaged(_))));
    }

    #[test]
    fn of_headers_written_without_flush_the_flushed_one_remains() {
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
    fn a_torn_mark_and_header_leave_the_header_before() {
        let mut torn = page(6, 1);
        torn[SECTOR..SECTOR + 100].fill(9);
        torn[MARK + 3..MARK + 11].fill(9);
        let read = Superblock::parse(&torn).unwrap();
        assert_eq!(read.header()[..320], [5; 320]);
        assert!(read.is_in_flight());
    }

    #[test]
    fn a_torn_format_upgrade_is_repeated() {
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
    fn foreign_files_and_other_formats_have_different_errors() {
        let mut plain = [0; PAGE as usize];
        plain[..4].copy_from_slice(b"redb");
        assert_eq!(Superblock::parse(&plain).unwrap_err(), SuperblockError::Format(1));
        assert_eq!(Superblock::parse(&[b' '; PAGE as usize]).unwrap_err(), SuperblockError::Foreign);
        let mut newer = page(3, 0);
        set_format(&mut newer, FORMAT + 1);
        assert_eq!(Superblock::parse(&newer).unwrap_err(), SuperblockError::Format(FORMAT + 1));
    }

    #[test]
    fn previous_format_is_read_and_upgraded() {
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
