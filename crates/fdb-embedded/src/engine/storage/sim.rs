//! A disk in memory that remembers what was done to it, so that tests can look at every moment of it: after a kill, when
//! all writes so far are there, and after a power failure, when those since the last flush are there in part.

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
    bytes: Vec<u8>,
    first: Vec<u8>,
    ops: Vec<Op>,
    /// Operations that still succeed.
    healthy: Option<usize>,
}

/// A disk in memory; clones are the same disk.
#[derive(Debug, Clone, Default)]
pub struct SimDisk(Arc<Mutex<State>>);

impl SimDisk {
    /// A disk that holds `bytes`.
    pub fn new(bytes: Vec<u8>) -> SimDisk {
        SimDisk(Arc::new(Mutex::new(State { first: bytes.clone(), bytes, ..State::default() })))
    }

    /// Every write, resize and flush after the next `operations` fails, as on a full disk.
    pub fn fail_after(&self, operations: usize) {
        self.0.lock().healthy = Some(operations);
    }

    /// What it holds.
    pub fn bytes(&self) -> Vec<u8> {
        self.0.lock().bytes.clone()
    }

    /// How many operations were done to it.
    pub fn moments(&self) -> usize {
        self.0.lock().ops.len()
    }

    /// What it held after `moment` operations.
    pub fn after_kill(&self, moment: usize) -> Vec<u8> {
        let state = self.0.lock();
        let mut bytes = state.first.clone();
        state.ops[..moment].iter().for_each(|op| apply(&mut bytes, op));
        bytes
    }

    /// What may be left of it if the power failed after `moment` operations: of each sector any state since the last flush.
    pub fn after_power_failure(&self, moment: usize, random: &mut SplitMix) -> Vec<u8> {
        let state = self.0.lock();
        let flushed =
            state.ops[..moment].iter().rposition(|op| matches!(op, Op::Sync)).map_or(0, |at| at + 1);
        let mut bytes = state.first.clone();
        state.ops[..flushed].iter().for_each(|op| apply(&mut bytes, op));
        // Between "nothing since" and "nearly everything since".
        let odds = random.unit();
        for op in &state.ops[flushed..moment] {
            match op {
                Op::Write(offset, data) => {
                    for (i, sector) in data.chunks(SECTOR).enumerate() {
                        let at = *offset + (i * SECTOR) as u64;
                        if at + sector.len() as u64 <= bytes.len() as u64 && random.unit() < odds {
                            apply(&mut bytes, &Op::Write(at, sector.to_vec()));
                        }
                    }
                }
                other => apply(&mut bytes, other),
            }
        }
        bytes
    }

    fn run(&self, op: Op) -> io::Result<()> {
        let mut state = self.0.lock();
        if let Some(healthy) = &mut state.healthy {
            if *healthy == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            *healthy -= 1;
        }
        apply(&mut state.bytes, &op);
        state.ops.push(op);
        Ok(())
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
        Ok(self.0.lock().bytes.len() as u64)
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.0.lock();
        let start = usize::try_from(offset).unwrap();
        let found = state.bytes.get(start..start + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
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
