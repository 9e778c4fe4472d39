//! Whether pages that do not match their checksums are damage, or what a crash left of a commit.

use std::sync::atomic::{AtomicU8, Ordering};

const SOUND: u8 = 0;
const UNKNOWN: u8 = 1;
const JUDGED: u8 = 2;

/// Where a file is between a crash and the end of redb's repair.
#[derive(Debug)]
pub struct Trust(AtomicU8);

impl Trust {
    /// Of a file whose last commit was in flight, or was flushed.
    pub fn new(is_in_flight: bool) -> Trust {
        Trust(AtomicU8::new(if is_in_flight { UNKNOWN } else { SOUND }))
    }

    /// redb's repair begins.
    pub fn repair_begins(&self) {
        let _ = self.0.compare_exchange(UNKNOWN, JUDGED, Ordering::AcqRel, Ordering::Acquire);
    }

    /// redb has opened the file: from now on every page has to match.
    pub fn opened(&self) {
        self.0.store(SOUND, Ordering::Release);
    }

    /// True if redb is verifying what it reads by its own checksums.
    pub fn is_judged_by_redb(&self) -> bool {
        self.0.load(Ordering::Acquire) == JUDGED
    }

    /// True if what is flushed now may be called flushed. Not before the end of a repair: redb rewrites and flushes its
    /// header before it looks at any page.
    pub fn may_vouch(&self) -> bool {
        self.0.load(Ordering::Acquire) == SOUND
    }
}
