//! What limited scopes have left for a fetch.

use std::collections::BTreeMap;

use crate::keys::keyed::{Cause, scopes};
use crate::ops::keyed::gates::Slots;

/// What one scope has left.
#[derive(Debug, Clone, Copy)]
pub(super) struct Left {
    /// `None`: any number of items may run.
    pub(super) slots: Option<Slots>,
    /// Items that may start. `None`: any number.
    pub(super) starts: Option<u64>,
}

impl Left {
    pub(super) fn is_limited(&self) -> bool {
        self.slots.is_some() || self.starts.is_some()
    }

    fn lacks(&self) -> Option<Cause> {
        match self {
            Left { slots: Some(slots), .. } if slots.free() == 0 => Some(Cause::Slot),
            Left { starts: Some(0), .. } => Some(Cause::Rate),
            _ => None,
        }
    }

    /// Whether it has a limit of running items, and free slots.
    pub(super) fn has_slots(&self) -> bool {
        self.slots.is_some_and(|slots| slots.free() > 0)
    }
}

/// The first scope of a key that has nothing left, and what it lacks.
pub(super) fn blocked(left: &BTreeMap<Vec<u8>, Left>, key: &[u8]) -> Option<(Cause, Vec<u8>)> {
    scopes(key).find_map(|scope| Some((left.get(scope)?.lacks()?, scope.to_vec())))
}

/// Takes `n` slots and starts from the scopes of a key.
pub(super) fn take(left: &mut BTreeMap<Vec<u8>, Left>, key: &[u8], n: u64) {
    for scope in scopes(key) {
        if let Some(left) = left.get_mut(scope) {
            left.slots = left.slots.map(|slots| Slots { taken: slots.taken.saturating_add(n), ..slots });
            left.starts = left.starts.map(|starts| starts.saturating_sub(n));
        }
    }
}
