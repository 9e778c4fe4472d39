//! A machine in memory whose disk remembers what was done to its files, in order, so that tests can look at every moment of
//! it: after a kill, when all writes so far are there, and after a power failure, when those to each file since that file's
//! last flush are there in part.

#![expect(clippy::unwrap_used, reason = "a test that is wrong ends here")]

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::disk::Disk;
pub use crate::split_mix::SplitMix;
pub use crate::superblock::set_format;

/// The unit of a file system's writes, and the unit that a device may have to read and write whole.
const BLOCK: usize = 4096;

/// How much of the unflushed writes a power failure leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Atomic {
    /// Each sector of 512 bytes of each write is there, or not.
    Sector,
    /// Each block of 4 KiB is as it was at some moment since the last flush.
    Block,
    /// Any bytes of each write are there.
    Nothing,
    /// The same, and a block of 4 KiB that was being written may hold anything, also where nobody wrote.
    Destroyed,
}

/// The number of "input/output error".
const EIO: i32 = 5;

/// How the system treats the pages that a failed flush should have written. Either way the next flush succeeds and does not write them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FailedFlush {
    /// It keeps them, as if they were on the disk.
    KeepsPages,
    /// It drops them: the file is as the last flush left it.
    DropsPages,
}

#[derive(Debug, Clone, Hash)]
enum DiskWrite {
    Write(u64, Vec<u8>),
    SetLen(u64),
    Sync,
    FailedSync(FailedFlush),
}

impl DiskWrite {
    /// Does it leave no page that is to be written?
    fn ends_writes(&self) -> bool {
        matches!(self, DiskWrite::Sync | DiskWrite::FailedSync(_))
    }
}

/// A file: what the system has of it in memory, and what is on the disk.
#[derive(Debug, Clone, Default)]
struct Image {
    cache: Vec<u8>,
    disk: Vec<u8>,
    /// The pages that the next flush writes.
    dirty: BTreeSet<usize>,
    /// A flush has failed: the disk may lack what is in memory and not to be written.
    has_failed: bool,
}

impl Image {
    fn new(bytes: &[u8]) -> Image {
        Image { cache: bytes.to_vec(), disk: bytes.to_vec(), ..Image::default() }
    }

    fn run(&mut self, op: &DiskWrite) {
        match op {
            DiskWrite::Write(offset, data) => {
                let start = usize::try_from(*offset).unwrap();
                self.cache[start..start + data.len()].copy_from_slice(data);
                self.dirty.extend(blocks(start..start + data.len()));
            }
            DiskWrite::SetLen(len) => {
                let (before, after) = (self.cache.len(), usize::try_from(*len).unwrap());
                self.cache.resize(after, 0);
                self.dirty.extend(blocks(before.min(after)..before.max(after)));
            }
            DiskWrite::Sync => {
                self.disk.resize(self.cache.len(), 0);
                for block in std::mem::take(&mut self.dirty) {
                    let range = range_of(block, self.cache.len());
                    self.disk[range.clone()].copy_from_slice(&self.cache[range]);
                }
            }
            DiskWrite::FailedSync(how) => {
                self.has_failed = true;
                // Lengths are in the file system's journal.
                self.disk.resize(self.cache.len(), 0);
                for block in std::mem::take(&mut self.dirty) {
                    let range = range_of(block, self.cache.len());
                    if *how == FailedFlush::DropsPages {
                        self.cache[range.clone()].copy_from_slice(&self.disk[range]);
                    }
                }
            }
        }
    }
}

/// The blocks that hold `bytes`.
fn blocks(bytes: Range<usize>) -> Range<usize> {
    bytes.start / BLOCK..bytes.end.div_ceil(BLOCK)
}

/// The bytes of a block, of a file of `len` bytes.
fn range_of(block: usize, len: usize) -> Range<usize> {
    (block * BLOCK).min(len)..((block + 1) * BLOCK).min(len)
}

#[derive(Debug, Default)]
struct SimState {
    /// The files' content, now and at first.
    files: Vec<Image>,
    first: Vec<Vec<u8>>,
    /// The operations on the files.
    ops: Vec<(usize, DiskWrite)>,
    /// Operations that still succeed.
    healthy: Option<usize>,
    /// Then one fails with EIO, a flush in this way, and those after it succeed again.
    fails_once: Option<FailedFlush>,
    /// Reads that still succeed. Then one fails with EIO, and those after it succeed again.
    healthy_reads: Option<usize>,
}

/// A file in memory; clones are the same file.
#[derive(Debug, Clone)]
pub struct SimDisk {
    state: Arc<Mutex<SimState>>,
    file: usize,
}

impl Default for SimDisk {
    fn default() -> SimDisk {
        SimDisk::new(Vec::new())
    }
}

impl SimDisk {
    /// A file that holds `bytes`.
    pub fn new(bytes: Vec<u8>) -> SimDisk {
        let [file] = SimDisk::several(&[bytes]);
        file
    }

    /// Files of one machine.
    pub fn several<const N: usize>(bytes: &[Vec<u8>; N]) -> [SimDisk; N] {
        let files = bytes.iter().map(|bytes| Image::new(bytes)).collect();
        let state = Arc::new(Mutex::new(SimState { first: bytes.to_vec(), files, ..SimState::default() }));
        std::array::from_fn(|file| SimDisk { state: Arc::clone(&state), file })
    }

    /// Every write, resize and flush of any file after the next `operations` fails, as on a full disk.
    pub fn fail_after(&self, operations: usize) {
        self.state.lock().healthy = Some(operations);
    }

    /// The write, resize or flush of any file after the next `operations` fails with EIO, and those after it succeed.
    pub fn fail_once_after(&self, operations: usize, how: FailedFlush) {
        let mut state = self.state.lock();
        (state.healthy, state.fails_once) = (Some(operations), Some(how));
    }

    /// The read of any file after the next `reads` fails with EIO, and those after it succeed.
    pub fn fail_read_after(&self, reads: usize) {
        self.state.lock().healthy_reads = Some(reads);
    }

    /// From now on nothing fails. Was something still to fail?
    pub fn heal(&self) -> bool {
        let mut state = self.state.lock();
        state.fails_once = None;
        state.healthy.take().is_some() | state.healthy_reads.take().is_some()
    }

    /// Its content.
    pub fn bytes(&self) -> Vec<u8> {
        self.state.lock().files[self.file].cache.clone()
    }

    /// Has a flush of it failed?
    pub fn has_failed_flush(&self) -> bool {
        self.state.lock().files[self.file].has_failed
    }

    /// How many operations were done to all files.
    pub fn moments(&self) -> usize {
        self.state.lock().ops.len()
    }

    /// A checksum of all operations that were done to all files, in order.
    pub fn trace(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.state.lock().ops.hash(&mut hasher);
        hasher.finish()
    }

    /// Its content after `moment` operations.
    pub fn after_kill(&self, moment: usize) -> Vec<u8> {
        let state = self.state.lock();
        let mut image = Image::new(&state.first[self.file]);
        state.ops_of(self.file, moment).for_each(|op| image.run(op));
        image.cache
    }

    /// Its possible content if the power failed after `moment` operations: any state of the writes since its last flush, as
    /// `atomic` allows, and of growths since then the first few.
    pub fn after_power_failure(&self, moment: usize, atomic: Atomic, random: &mut SplitMix) -> Vec<u8> {
        let state = self.state.lock();
        let ops: Vec<_> = state.ops_of(self.file, moment).collect();
        let flushed = ops.iter().rposition(|op| op.ends_writes()).map_or(0, |at| at + 1);
        let mut image = Image::new(&state.first[self.file]);
        ops[..flushed].iter().for_each(|op| image.run(op));
        let mut bytes = image.disk.clone();
        // Between "nothing since" and "nearly everything since".
        let mut lost = LostUnit { odds: random.unit(), atomic, random, blocks: BTreeMap::new() };
        let mut grows = true;
        for op in &ops[flushed..] {
            image.run(op);
            match op {
                DiskWrite::Write(offset, data) if image.has_failed => {
                    // The page is written whole, and takes along what a failed flush left in it.
                    let start = usize::try_from(*offset).unwrap();
                    for block in blocks(start..start + data.len()) {
                        let range = range_of(block, image.cache.len());
                        lost.write(&mut bytes, range.start as u64, &image.cache[range]);
                    }
                }
                DiskWrite::Write(offset, data) => lost.write(&mut bytes, *offset, data),
                DiskWrite::SetLen(len) => {
                    let len = usize::try_from(*len).unwrap();
                    if len > bytes.len() {
                        grows &= lost.happens();
                    }
                    if len <= bytes.len() || grows {
                        bytes.resize(len, 0);
                    }
                }
                DiskWrite::Sync | DiskWrite::FailedSync(_) => unreachable!("these come after the last one"),
            }
        }
        lost.destroy_blocks(&mut bytes);
        bytes
    }

    fn run(&self, op: DiskWrite) -> io::Result<()> {
        let mut state = self.state.lock();
        match (state.healthy, state.fails_once) {
            (None, _) => {}
            (Some(0), None) => return Err(io::ErrorKind::StorageFull.into()),
            (Some(0), Some(how)) => {
                state.healthy = None;
                if matches!(op, DiskWrite::Sync) {
                    state.run(self.file, DiskWrite::FailedSync(how));
                }
                return Err(io::Error::from_raw_os_error(EIO));
            }
            (Some(healthy), _) => state.healthy = Some(healthy - 1),
        }
        state.run(self.file, op);
        Ok(())
    }
}

impl SimState {
    fn run(&mut self, file: usize, op: DiskWrite) {
        self.files[file].run(&op);
        self.ops.push((file, op));
    }

    fn ops_of(&self, file: usize, moment: usize) -> impl Iterator<Item = &DiskWrite> {
        self.ops[..moment].iter().filter(move |(of, _)| *of == file).map(|(_, op)| op)
    }
}

/// Which of the writes that were not flushed are there.
struct LostUnit<'r> {
    /// How likely one is.
    odds: f64,
    atomic: Atomic,
    random: &'r mut SplitMix,
    /// The blocks that were written: whether more of it goes into the block.
    blocks: BTreeMap<usize, bool>,
}

impl LostUnit<'_> {
    fn happens(&mut self) -> bool {
        self.random.unit() < self.odds
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.random.next() >> 8).unwrap() % end
    }

    /// Puts a write there, or a part of it.
    fn write(&mut self, bytes: &mut [u8], offset: u64, data: &[u8]) {
        let offset = usize::try_from(offset).unwrap();
        let unit = if self.atomic == Atomic::Sector { 512 } else { BLOCK };
        let mut at = offset;
        while at < (offset + data.len()).min(bytes.len()) {
            let end = (at / unit * unit + unit).min(offset + data.len()).min(bytes.len());
            let piece = &data[at - offset..end - offset];
            let range = match self.atomic {
                Atomic::Sector => 0..if self.happens() { piece.len() } else { 0 },
                Atomic::Block => {
                    let goes_on =
                        self.blocks.get(&(at / BLOCK)).is_none_or(|goes_on| *goes_on) && self.happens();
                    self.blocks.insert(at / BLOCK, goes_on);
                    0..if goes_on { piece.len() } else { 0 }
                }
                Atomic::Nothing | Atomic::Destroyed => {
                    self.blocks.insert(at / BLOCK, true);
                    self.part(piece.len())
                }
            };
            bytes[at..end][range.clone()].copy_from_slice(&piece[range]);
            at = end;
        }
    }

    /// All of a piece, nothing, or a part.
    fn part(&mut self, len: usize) -> Range<usize> {
        match self.below(3) {
            0 if self.happens() => 0..len,
            0 => 0..0,
            1 => 0..self.below(len + 1),
            _ => {
                let (a, b) = (self.below(len + 1), self.below(len + 1));
                a.min(b)..a.max(b)
            }
        }
    }

    fn destroy_blocks(&mut self, bytes: &mut [u8]) {
        if self.atomic != Atomic::Destroyed {
            return;
        }
        for block in std::mem::take(&mut self.blocks).into_keys() {
            if !self.happens() {
                let end = bytes.len().min((block + 1) * BLOCK);
                bytes[block * BLOCK..end].iter_mut().for_each(|byte| *byte = self.random.next() as u8);
            }
        }
    }
}

impl Disk for SimDisk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state.lock().files[self.file].cache.len() as u64)
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut state = self.state.lock();
        match state.healthy_reads {
            None => {}
            Some(0) => {
                state.healthy_reads = None;
                return Err(io::Error::from_raw_os_error(EIO));
            }
            Some(healthy) => state.healthy_reads = Some(healthy - 1),
        }
        let start = usize::try_from(offset).unwrap();
        let found =
            state.files[self.file].cache.get(start..start + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(found);
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.run(DiskWrite::Write(offset, data.to_vec()))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.run(DiskWrite::SetLen(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.run(DiskWrite::Sync)
    }
}
