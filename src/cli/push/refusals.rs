//! Items that are refused, by name.

use kvqueue_queue::MAX_PAYLOAD;

use crate::{cli::output::note, exit::Exit};

/// The most that are named one by one.
const NAMED: u64 = 20;

/// Counts refused items, and says which they are.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    count: u64,
}

impl Refusals {
    /// Refuses an item.
    pub(super) fn refuse(&mut self, what: &str, bytes: u64) {
        self.count += 1;
        if self.count <= NAMED {
            note(format_args!(
                "kvqueue: {what} not pushed: it has {bytes} bytes, an item at most {MAX_PAYLOAD}"
            ));
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Sums up; the exit code of a push that otherwise went well.
    pub(super) fn exit(&self) -> Exit {
        if self.count == 0 {
            return Exit::Done;
        }
        note(format_args!("kvqueue: items refused: {}; everything else was pushed", self.count));
        Exit::Data
    }
}
