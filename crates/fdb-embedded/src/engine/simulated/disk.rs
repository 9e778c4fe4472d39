//! The two files of a life on the simulated disk.

use std::io;
use std::time::Duration;

use checked_pages::Disk;
use checked_pages::sim::{Atomic, SimDisk, SplitMix};

/// The contents of the data file and the log.
pub(super) type Contents = [Vec<u8>; 2];

#[derive(Debug, Clone)]
pub(super) struct Files {
    pub(super) data: SimDisk,
    pub(super) log: SimDisk,
}

/// How a life ends.
#[derive(Debug, Clone, Copy)]
pub(super) enum End {
    /// The engine is closed, or has failed.
    Closed,
    Killed,
    PowerFailed,
}

impl Files {
    pub(super) fn new(contents: &Contents) -> Files {
        let [data, log] = SimDisk::several(contents);
        Files { data, log }
    }

    /// What the next life finds, if this one ends now.
    pub(super) fn after(&self, end: End, random: &mut SplitMix) -> Contents {
        let now = self.data.moments();
        match end {
            End::Closed => [self.data.bytes(), self.log.bytes()],
            End::Killed => [self.data.after_kill(now), self.log.after_kill(now)],
            End::PowerFailed => {
                let atomic = [Atomic::Sector, Atomic::Block, Atomic::Nothing][(random.next() % 3) as usize];
                // The log writes to no block that holds what was flushed.
                let of_log = if atomic == Atomic::Nothing { Atomic::Destroyed } else { atomic };
                [
                    self.data.after_power_failure(now, atomic, random),
                    self.log.after_power_failure(now, of_log, random),
                ]
            }
        }
    }
}

/// A log that is slow to write and to flush. The data file is not: redb holds locks of its own meanwhile, which the baton does not know.
#[derive(Debug)]
pub(super) struct SlowLog(pub(super) SimDisk);

/// The longest flush in microseconds.
const SLOWEST: u64 = 400;

impl Disk for SlowLog {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, out)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        baton::pass();
        self.0.write_at(offset, data)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        baton::thread::sleep(Duration::from_micros(1 + baton::draw(SLOWEST)));
        self.0.sync_data()
    }
}
