//! A machine in memory whose disk remembers what was done to its files, in order, so that tests can look at every moment of
//! it: after a kill, when all writes so far are there, and after a power failure, when those to each file since that file's
//! last flush are there in part.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use super::disk::Disk;
use crate::engine::faults::SplitMix;

/// What a disk writes whole or not at all.
const SECTOR: usize = 512;

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

    /// What may be left of it if the power failed after `moment` operations: of each sector any state since its last flush,
    /// and of growths since then the first few.
    pub fn after_power_failure(&self, moment: usize, random: &mut SplitMix) -> Vec<u8> {
        let state = self.state.lock();
        let ops: Vec<_> = state.ops_of(self.file, moment).collect();
        let flushed = ops.iter().rposition(|op| matches!(op, Op::Sync)).map_or(0, |at| at + 1);
        let mut bytes = state.first[self.file].clone();
        ops[..flushed].iter().for_each(|op| apply(&mut bytes, op));
        // Between "nothing since" and "nearly everything since".
        let odds = random.unit();
        let mut grows = true;
        for op in &ops[flushed..] {
            match op {
                Op::Write(offset, data) => {
                    for (i, sector) in data.chunks(SECTOR).enumerate() {
                        let at = *offset + (i * SECTOR) as u64;
                        if at + sector.len() as u64 <= bytes.len() as u64 && random.unit() < odds {
                            apply(&mut bytes, &Op::Write(at, sector.to_vec()));
                        }
                    }
                }
                Op::SetLen(len) if *len > bytes.len() as u64 => {
                    grows &= random.unit() < odds;
                    if grows {
                        apply(&mut bytes, op);
                    }
                }
                other => apply(&mut bytes, other),
            }
        }
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

    fn sync_data(&self) -> io::Result<()> {
        self.run(Op::Sync)
    }
}
