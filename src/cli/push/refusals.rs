//! Items that are refused, by name.

use crate::{cli::output::note, exit::Exit};

/// The most that are named one by one.
const NAMED: u64 = 20;

/// Counts refused items, and says which they are.
#[derive(Debug)]
pub(super) struct Refusals {
    /// The longest item in bytes.
    limit: usize,
    count: u64,
}

impl Refusals {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, count: 0 }
    }

    /// Refuses an item.
    pub(super) fn refuse(&mut self, what: &str, bytes: u64) {
        self.count += 1;
        if self.count <= NAMED {
            let limit = self.limit;
            note(format_args!("kvqueue: {what} not pushed: it has {bytes} bytes, an item at most {limit}"));
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Sums up; the exit code of a push that otherwise went well.
    pub(super) fn exit(&self, rest: &str) -> Exit {
        if self.count == 0 {
            return Exit::Done;
        }
        note(format_args!("kvqueue: items refused: {}; {rest}", self.count));
        Exit::Data
    }
}
