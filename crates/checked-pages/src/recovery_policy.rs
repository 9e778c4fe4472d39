//! The recovery policy: whether a page that does not match its checksum is damage, or an unfinished
//! write.

use std::sync::atomic::{AtomicU8, Ordering};

const STRICT: u8 = 0;
const IN_FLIGHT: u8 = 1;
const REPAIRING: u8 = 2;

/// The stage of a file between a crash and the end of redb's repair.
#[derive(Debug)]
pub struct RecoveryPolicy(AtomicU8);

impl RecoveryPolicy {
    /// The policy for a file whose last commit was in flight, or was flushed.
    pub fn new(is_in_flight: bool) -> RecoveryPolicy {
        RecoveryPolicy(AtomicU8::new(if is_in_flight { IN_FLIGHT } else { STRICT }))
    }

    /// redb starts its repair.
    pub fn start_repair(&self) {
        let _ = self.0.compare_exchange(IN_FLIGHT, REPAIRING, Ordering::AcqRel, Ordering::Acquire);
    }

    /// redb has opened the file. From now on every page has to match.
    pub fn finish_open(&self) {
        self.0.store(STRICT, Ordering::Release);
    }

    /// True while redb repairs the file and verifies pages with its own checksums.
    pub fn is_redb_verifying(&self) -> bool {
        self.0.load(Ordering::Acquire) == REPAIRING
    }

    /// True if a successful flush may be recorded in the file. Not before the end of a repair,
    /// because redb rewrites and flushes its header before it verifies any page.
    pub fn may_mark_flushed(&self) -> bool {
        self.0.load(Ordering::Acquire) == STRICT
    }
}
