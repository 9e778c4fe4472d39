//! The records of a queue's schedules: keys, and one value in each file.
//!
//! | key, behind (q) | value | file |
//! |---|---|---|
//! | "nsched" | u64, atomic ADD: how often an operator or a configuration has changed a schedule | |
//! | "schedule", name | what is pushed, and when | `definition` |
//! | "schedstate", name | how far the schedule has come | `state` |
//! | "schedule-due", time, name | empty: the time of the next look at the schedule | |
//! | "schedule-gap", end, name | u64: the time of the next look at a gap that ends with this nominal time | |
//! | "schedule-log", name, n | what became of some occurrences | `log` |

pub(crate) mod definition;
pub(crate) mod log;
pub(crate) mod state;

use crate::keys::element::{append_number, split_number};
use crate::keys::{append_bytes, range, split_bytes};
use crate::meta::Millis;

const NSCHED: &[u8] = b"nsched";
const SCHEDULE: &[u8] = b"schedule";
const STATE: &[u8] = b"schedstate";
const DUE: &[u8] = b"schedule-due";
const GAP: &[u8] = b"schedule-gap";
const LOG: &[u8] = b"schedule-log";

/// What unique keys of schedules' items begin with. Pushes with such unique keys are refused.
pub(crate) const UNIQUE: &[u8] = b"\xff\x00schedule\x00";

/// The packed keys of a queue's schedules. They are packed when an operation on schedules begins, so that a queue without schedules
/// does not pay for them.
#[derive(Debug, Clone)]
pub(crate) struct ScheduleSpace {
    /// (q, "nsched").
    pub(crate) changes: Vec<u8>,
    /// (q, "schedule").
    pub(crate) definitions: Vec<u8>,
    states: Vec<u8>,
    due: Vec<u8>,
    gaps: Vec<u8>,
    logs: Vec<u8>,
}

impl ScheduleSpace {
    /// The keys of the queue whose packed (q) this is.
    pub(crate) fn new(queue: &[u8]) -> ScheduleSpace {
        let record = |kind| with_bytes(queue, kind);
        ScheduleSpace {
            changes: changes_key(queue),
            definitions: record(SCHEDULE),
            states: record(STATE),
            due: record(DUE),
            gaps: record(GAP),
            logs: record(LOG),
        }
    }

    pub(crate) fn definition_key(&self, name: &str) -> Vec<u8> {
        with_bytes(&self.definitions, name.as_bytes())
    }

    /// The name of the schedule whose definition has this key.
    pub(crate) fn definition_name(&self, key: &[u8]) -> Option<String> {
        name_of(key.strip_prefix(self.definitions.as_slice())?)
    }

    pub(crate) fn state_key(&self, name: &str) -> Vec<u8> {
        with_bytes(&self.states, name.as_bytes())
    }

    pub(crate) fn due_key(&self, time: Millis, name: &str) -> Vec<u8> {
        with_bytes(&with_number(&self.due, time), name.as_bytes())
    }

    /// Time and name of a key among those of schedules that are due at a time.
    pub(crate) fn decode_due(&self, key: &[u8]) -> Option<(Millis, String)> {
        let (time, name) = split_number(key.strip_prefix(self.due.as_slice())?)?;
        Some((time, name_of(name)?))
    }

    /// All schedules that are due by `time`.
    pub(crate) fn due_by(&self, time: Millis) -> (Vec<u8>, Vec<u8>) {
        let (begin, end) = range(&self.due);
        (begin, time.checked_add(1).map_or(end, |next| with_number(&self.due, next)))
    }

    /// All schedules that are due after `time`.
    pub(crate) fn due_after(&self, time: Millis) -> (Vec<u8>, Vec<u8>) {
        let (_, begin) = self.due_by(time);
        (begin, range(&self.due).1)
    }

    pub(crate) fn gap_key(&self, end: Millis, name: &str) -> Vec<u8> {
        with_bytes(&with_number(&self.gaps, end), name.as_bytes())
    }

    /// End and name of a gap's key.
    pub(crate) fn decode_gap(&self, key: &[u8]) -> Option<(Millis, String)> {
        let (end, name) = split_number(key.strip_prefix(self.gaps.as_slice())?)?;
        Some((end, name_of(name)?))
    }

    /// All gaps that end after `time`.
    pub(crate) fn gaps_after(&self, time: Millis) -> (Vec<u8>, Vec<u8>) {
        let (begin, end) = range(&self.gaps);
        (time.checked_add(1).map_or(begin, |next| with_number(&self.gaps, next)), end)
    }

    pub(crate) fn log_key(&self, name: &str, number: u64) -> Vec<u8> {
        with_number(&with_bytes(&self.logs, name.as_bytes()), number)
    }

    /// The number of a record of the log of `name`.
    pub(crate) fn log_number(&self, name: &str, key: &[u8]) -> Option<u64> {
        let (number, rest) =
            split_number(key.strip_prefix(with_bytes(&self.logs, name.as_bytes()).as_slice())?)?;
        rest.is_empty().then_some(number)
    }

    /// The records of a schedule's log before this number; `None`: all.
    pub(crate) fn log_before(&self, name: &str, number: Option<u64>) -> (Vec<u8>, Vec<u8>) {
        let (begin, end) = range(&with_bytes(&self.logs, name.as_bytes()));
        (begin, number.map_or(end, |number| self.log_key(name, number)))
    }
}

/// (q, "nsched").
pub(crate) fn changes_key(queue: &[u8]) -> Vec<u8> {
    with_bytes(queue, NSCHED)
}

/// Whether a key is (q, "nsched") of the queue whose packed (q) this is.
pub(crate) fn is_changes_key(queue: &[u8], key: &[u8]) -> bool {
    let name = key.strip_prefix(queue).and_then(split_bytes);
    name.is_some_and(|(name, rest)| name == NSCHED && rest.is_empty())
}

/// The unique key of the items of a schedule that looks at overlaps.
pub(crate) fn unique_key(name: &str) -> Vec<u8> {
    [UNIQUE, name.as_bytes()].concat()
}

/// A key that ends with a name.
fn name_of(rest: &[u8]) -> Option<String> {
    let (name, rest) = split_bytes(rest)?;
    rest.is_empty().then(|| String::from_utf8(name).ok()).flatten()
}

fn with_bytes(subspace: &[u8], element: &[u8]) -> Vec<u8> {
    let mut key = subspace.to_vec();
    append_bytes(&mut key, element);
    key
}

fn with_number(subspace: &[u8], number: u64) -> Vec<u8> {
    let mut key = subspace.to_vec();
    append_number(&mut key, number);
    key
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn keys_round_trip_and_sort_by_time(a: (u64, String), b: (u64, String)) {
            let space = ScheduleSpace::new(b"\x01q\x00");
            prop_assert_eq!(space.decode_due(&space.due_key(a.0, &a.1)), Some(a.clone()));
            prop_assert_eq!(space.decode_gap(&space.gap_key(a.0, &a.1)), Some(a.clone()));
            prop_assert_eq!(space.definition_name(&space.definition_key(&a.1)), Some(a.1.clone()));
            prop_assert_eq!(space.log_number(&a.1, &space.log_key(&a.1, a.0)), Some(a.0));
            if a.0 != b.0 {
                prop_assert_eq!(space.due_key(a.0, &a.1) < space.due_key(b.0, &b.1), a.0 < b.0);
            }
        }

        #[test]
        fn ranges_by_time_hold_what_is_due(time: u64, at: u64, name: String) {
            let space = ScheduleSpace::new(b"\x01q\x00");
            let holds = |(begin, end): (Vec<u8>, Vec<u8>), key: Vec<u8>| (begin..end).contains(&key);
            prop_assert_eq!(holds(space.due_by(time), space.due_key(at, &name)), at <= time);
            prop_assert_eq!(holds(space.due_after(time), space.due_key(at, &name)), at > time);
            if time < u64::MAX {
                prop_assert_eq!(holds(space.gaps_after(time), space.gap_key(at, &name)), at > time);
            }
        }

        #[test]
        fn any_bytes_are_read_without_panic(key: Vec<u8>) {
            let space = ScheduleSpace::new(b"");
            let key = [space.due.as_slice(), &key].concat();
            let _ = space.decode_due(&key);
        }
    }
}
