//! The records of a queue's schedules: keys, and one value in each file.
//!
//! | key, behind (q) | value | file |
//! |---|---|---|
//! | "schedule", name | what is pushed, and when | `definition` |
//! | "schedule-state", name | how far the schedule has come | `state` |
//! | "schedule-due", time, name | empty: when a sweeper looks at the schedule next | [`agenda`](crate::keys::agenda) |
//! | "schedule-log", name, n | what became of some occurrences | `log` |

pub(crate) mod definition;
pub(crate) mod log;
pub(crate) mod state;

use crate::keys::agenda::{Agenda, Event, split_name};
use crate::keys::{append_bytes, range};
use crate::model::element::{append_number, split_number};
use crate::model::time::Millis;

const SCHEDULE: &[u8] = b"schedule";
const STATE: &[u8] = b"schedule-state";
const LOG: &[u8] = b"schedule-log";

/// The packed keys of a queue's schedules. They are packed when an operation on schedules begins, so that a queue without schedules
/// does not pay for them.
#[derive(Debug, Clone)]
pub(crate) struct ScheduleSpace {
    /// (q, "schedule").
    pub(crate) definitions: Vec<u8>,
    states: Vec<u8>,
    /// When schedules are looked at.
    pub(crate) due: Agenda,
    logs: Vec<u8>,
}

impl ScheduleSpace {
    /// The keys of the queue whose packed (q) this is.
    pub(crate) fn new(queue: &[u8]) -> ScheduleSpace {
        let record = |kind| with_bytes(queue, kind);
        ScheduleSpace {
            definitions: record(SCHEDULE),
            states: record(STATE),
            due: Agenda::new(queue, Event::Schedule),
            logs: record(LOG),
        }
    }

    pub(crate) fn definition_key(&self, name: &str) -> Vec<u8> {
        with_bytes(&self.definitions, name.as_bytes())
    }

    /// The name of the schedule whose definition has this key.
    pub(crate) fn definition_name(&self, key: &[u8]) -> Option<String> {
        split_name(key.strip_prefix(self.definitions.as_slice())?)
    }

    pub(crate) fn state_key(&self, name: &str) -> Vec<u8> {
        with_bytes(&self.states, name.as_bytes())
    }

    /// The key of the row of a schedule's time.
    pub(crate) fn due_key(&self, time: Millis, name: &str) -> Vec<u8> {
        with_bytes(&self.due.at(time), name.as_bytes())
    }

    /// Time and name of such a row; `None` if it is of another layout.
    pub(crate) fn decode_due(&self, key: &[u8]) -> Option<(Millis, String)> {
        self.due.split(key).and_then(|(time, name)| Some((time, split_name(name)?)))
    }

    /// The keys of all states.
    pub(crate) fn all_states(&self) -> (Vec<u8>, Vec<u8>) {
        range(&self.states)
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
            prop_assert_eq!(space.definition_name(&space.definition_key(&a.1)), Some(a.1.clone()));
            prop_assert_eq!(space.log_number(&a.1, &space.log_key(&a.1, a.0)), Some(a.0));
            if a.0 != b.0 {
                prop_assert_eq!(space.due_key(a.0, &a.1) < space.due_key(b.0, &b.1), a.0 < b.0);
            }
        }
    }
}
