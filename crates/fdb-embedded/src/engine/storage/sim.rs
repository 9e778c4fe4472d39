//! A machine in memory whose disk remembers what was done to its files, in order, so that tests can look at every moment of
//! it: after a kill, when all writes so far are there, and after a power failure, when those to each file since that file's
//! last flush are there in part.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use super::disk::Disk;
use crate::engine::faults::SplitMix;

/// What a file system writes at a time, and what a device may have to read and write whole.
const BLOCK: usize = 4096;

/// What a power failure leaves of writes that were not flushed.
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

#[derive(Debug, Clone)]
enum Op {
    Write(u64, Vec<u8>),
    SetLen(u64),
    Sync,
}

#[derive(Debug, Default)]
struct State {
    /// What the files hold, and what they held at first.
    files: Vec<Vec<u8>>,
    first: Vec<Vec<u8>>,
    /// What was done to which of them.
    ops: Vec<(usize, Op)>,
    /// Operations that still succeed.
    healthy: Option<usize>,
    /// Bytes that any file can have allocated; as many as wanted without it.
    space: Option<u64>,
}

/// A file in memory; clones are the same file.
#[derive(Debug, Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
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
        let files = bytes.to_vec();
        let state = Arc::new(Mutex::new(State { first: files.clone(), files, ..State::default() }));
        std::array::from_fn(|file| SimDisk { state: Arc::clone(&state), file })
    }

    /// Every write, resize and flush of any file after the next `operations` fails, as on a full disk.
    pub fn fail_after(&self, operations: usize) {
        self.state.lock().healthy = Some(operations);
    }

    /// From now on no file can have more bytes allocated than this.
    pub fn set_space(&self, space: Option<u64>) {
        self.state.lock().space = space;
    }

    /// What it holds.
    pub fn bytes(&self) -> Vec<u8> {
        self.state.lock().files[self.file].clone()
    }

    /// How many operations were done to all files.
    pub fn moments(&self) -> usize {
        self.state.lock().ops.len()
    }

    /// What it held after `moment` operations.
    pub fn after_kill(&self, moment: usize) -> Vec<u8> {
        let state = self.state.lock();
        let mut bytes = state.first[self.file].clone();
        state.ops_of(self.file, moment).for_each(|op| apply(&mut bytes, op));
        bytes
    }

    /// What may be left of it if the power failed after `moment` operations: any state of what was written since its last flush, as
    /// `atomic` allows, and of growths since then the first few.
    pub fn after_power_failure(&self, moment: usize, atomic: Atomic, random: &mut SplitMix) -> Vec<u8> {
        let state = self.state.lock();
        let ops: Vec<_> = state.ops_of(self.file, moment).collect();
        let flushed = ops.iter().rposition(|op| matches!(op, Op::Sync)).map_or(0, |at| at + 1);
        let mut bytes = state.first[self.file].clone();
        ops[..flushed].iter().for_each(|op| apply(&mut bytes, op));
        // Between "nothing since" and "nearly everything since".
        let mut lost = Lost { odds: random.unit(), atomic, random, blocks: BTreeMap::new() };
        let mut grows = true;
        for op in &ops[flushed..] {
            match op {
                Op::Write(offset, data) => lost.write(&mut bytes, *offset, data),
                Op::SetLen(len) if *len > bytes.len() as u64 => {
                    grows &= lost.happens();
                    if grows {
                        apply(&mut bytes, op);
                    }
                }
                other => apply(&mut bytes, other),
            }
        }
        lost.destroy_blocks(&mut bytes);
        bytes
    }

    fn run(&self, op: Op) -> io::Result<()> {
        let mut state = self.state.lock();
        if let Some(healthy) = &mut state.healthy {
            if *healthy == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            *healthy -= 1;
        }
        apply(&mut state.files[self.file], &op);
        state.ops.push((self.file, op));
        Ok(())
    }
}

impl State {
    fn ops_of(&self, file: usize, moment: usize) -> impl Iterator<Item = &Op> {
        self.ops[..moment].iter().filter(move |(of, _)| *of == file).map(|(_, op)| op)
    }
}

/// Which of the writes that were not flushed are there.
struct Lost<'r> {
    /// How likely one is.
    odds: f64,
    atomic: Atomic,
    random: &'r mut SplitMix,
    /// The blocks that were written: whether more of it goes into the block.
    blocks: BTreeMap<usize, bool>,
}

impl Lost<'_> {
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

fn apply(bytes: &mut Vec<u8>, op: &Op) {
    match op {
        Op::Write(offset, data) => {
            let start = usize::try_from(*offset).unwrap();
            bytes[start..start + data.len()].copy_from_slice(data);
        }
        Op::SetLen(len) => bytes.resize(usize::try_from(*len).unwrap(), 0),
        Op::Sync => {}
    }
}

impl Disk for SimDisk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state.lock().files[self.file].len() as u64)
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.state.lock();
        let start = usize::try_from(offset).unwrap();
        let found =
            state.files[self.file].get(start..start + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(found);
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.run(Op::Write(offset, data.to_vec()))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.run(Op::SetLen(len))
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        match self.state.lock().space {
            Some(space) if offset + len > space => Err(io::ErrorKind::StorageFull.into()),
            _ => Ok(()),
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        self.run(Op::Sync)
    }
}
