//! Requests to be served.

use crate::model::lease_id::LeaseId;
use crate::ops::want::Line;
use mutant::bound;

/// How many requests of unknown outcome are remembered. None of them is forgotten, since each may still be registered: a session that has
/// so many does not ask again, but takes for itself. Once that has committed, none of them will be.
pub(super) fn max_asked() -> usize {
    bound("requests-of-a-session", 64)
}

/// The requests of a session.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// Requests that may have been registered, oldest first. At most one of them was.
    pub(super) ids: Vec<LeaseId>,
    /// The request that was seen first in the line, by its key, and since which version.
    pub(super) first: Option<(Vec<u8>, u64)>,
}

impl Asked {
    /// Whether one more can be remembered.
    pub(super) fn has_room(&self) -> bool {
        self.ids.len() < max_asked()
    }

    /// It is this one, so it is no other.
    pub(super) fn is_only(&mut self, id: LeaseId) {
        self.ids.clear();
        self.ids.push(id);
    }

    /// They are served, or cannot be served any more.
    pub(super) fn clear(&mut self) {
        *self = Asked::default();
    }

    /// For how long, in versions, the same request has been seen first in the line.
    pub(super) fn waited(&mut self, line: &Line, now: u64) -> u64 {
        let first = line.first.first().map(|waiting| waiting.key.as_slice());
        match &self.first {
            Some((key, since)) if first == Some(key) => now.saturating_sub(*since),
            _ => {
                self.first = first.map(|key| (key.to_vec(), now));
                0
            }
        }
    }
}
