//! Whether pages that do not match their checksums are damage, or what a crash left of a commit.

use std::sync::atomic::{AtomicU8, Ordering};

const STRICT: u8 = 0;
const IN_FLIGHT: u8 = 1;
const REPAIRING: u8 = 2;

/// Where a file is between a crash and the end of redb's repair.
#[derive(Debug)]
pub struct RecoveryPolicy(AtomicU8);

impl RecoveryPolicy {
    /// Of a file whose last commit was in flight, or was flushed.
    pub fn new(is_in_flight: bool) -> RecoveryPolicy {
        RecoveryPolicy(AtomicU8::new(if is_in_flight { IN_FLIGHT } else { STRICT }))
    }

    /// redb's repair begins.
    pub fn start_repair(&self) {
        let _ = self.0.compare_exchange(IN_FLIGHT, REPAIRING, Ordering::AcqRel, Ordering::Acquire);
    }

    /// redb has opened the file: from now on every page has to match.
    pub fn finish_open(&self) {
        self.0.store(STRICT, Ordering::Release);
    }

    /// True if redb is verifying what it reads by its own checksums.
    pub fn is_redb_verifying(&self) -> bool {
        self.0.load(Ordering::Acquire) == REPAIRING
    }

    /// True if what is flushed now may be called flushed. Not before the end of a repair: redb rewrites and flushes its
    /// header before it looks at any page.
    pub fn may_mark_flushed(&self) -> bool {
        self.0.load(Ordering::Acquire) == STRICT
    }
}
