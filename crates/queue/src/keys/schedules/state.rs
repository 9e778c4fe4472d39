//! The value of (q, "schedule-state", name): how far a schedule has come.
//!
//! Every transaction that fires or changes the schedule reads it with a conflict, and writes it.

use bytes::Bytes;

use crate::keys::fields::{each, number, put, take_number};
use crate::model::id::ItemId;
use crate::model::time::Millis;

const MARK: u8 = 1;
const NEXT: u8 = 2;
const ROW: u8 = 3;
const OCCURRENCES: u8 = 4;
const RECORDS: u8 = 5;
const PAUSED: u8 = 6;
const WAITING: u8 = 7;
const LAST: u8 = 8;

/// How far a schedule has come.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// Every nominal time up to this one is accounted for. It never goes back, but for a resumption by an operator.
    pub(crate) mark: Millis,
    /// The next nominal time; `None` if the expression has no more.
    pub(crate) next: Option<Millis>,
    /// The time in the key of the schedule's row under (q, "schedule-due"), if it has one.
    pub(crate) row: Option<Millis>,
    /// How many items it has pushed.
    pub(crate) occurrences: u64,
    /// The number of the next record of its log.
    pub(crate) records: u64,
    /// Since when it is paused.
    pub(crate) paused: Option<Millis>,
    /// The occurrence that waits for the end of the last item.
    pub(crate) waiting: Option<Waiting>,
    /// What it pushed last.
    pub(crate) last: Option<Last>,
    /// Fields of later versions.
    pub(crate) unknown: Vec<(u8, Vec<u8>)>,
}

/// An occurrence that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) nominal: Millis,
    /// When to look whether the last item has ended.
    pub(crate) look_again: Millis,
}

/// The last item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Last {
    pub(crate) nominal: Millis,
    pub(crate) id: ItemId,
}

/// The value. The id of the last item ends it.
pub(crate) fn encode(state: &State) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, MARK, &[&state.mark.to_le_bytes()]);
    let optional = [(NEXT, state.next), (ROW, state.row), (PAUSED, state.paused)];
    for (tag, time) in optional {
        if let Some(time) = time {
            put(&mut out, tag, &[&time.to_le_bytes()]);
        }
    }
    put(&mut out, OCCURRENCES, &[&state.occurrences.to_le_bytes()]);
    put(&mut out, RECORDS, &[&state.records.to_le_bytes()]);
    if let Some(Waiting { nominal, look_again }) = state.waiting {
        put(&mut out, WAITING, &[&nominal.to_le_bytes(), &look_again.to_le_bytes()]);
    }
    for (tag, content) in &state.unknown {
        put(&mut out, *tag, &[content]);
    }
    if let Some(Last { nominal, id }) = &state.last {
        put(&mut out, LAST, &[&nominal.to_le_bytes(), id.as_bytes()]);
    }
    out
}

/// Reads a state; `None` if it is not one.
pub(crate) fn decode(value: &[u8]) -> Option<State> {
    let mut state = State::default();
    for field in each(value) {
        let (tag, content) = field?;
        match tag {
            MARK => state.mark = number(content)?,
            NEXT => state.next = Some(number(content)?),
            ROW => state.row = Some(number(content)?),
            OCCURRENCES => state.occurrences = number(content)?,
            RECORDS => state.records = number(content)?,
            PAUSED => state.paused = Some(number(content)?),
            WAITING => {
                let (nominal, look_again) = take_number(content)?;
                state.waiting = Some(Waiting { nominal, look_again: number(look_again)? });
            }
            LAST => {
                let (nominal, id) = take_number(content)?;
                state.last = Some(Last { nominal, id: ItemId::new(Bytes::copy_from_slice(id)) });
            }
            _ => state.unknown.push((tag, content.to_vec())),
        }
    }
    Some(state)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    prop_compose! {
        fn state()(
            (mark, next, row) in any::<(u64, Option<u64>, Option<u64>)>(),
            (occurrences, records, paused) in any::<(u64, u64, Option<u64>)>(),
            waiting: Option<(u64, u64)>,
            last: Option<(u64, [u8; 13])>,
            unknown in prop::collection::vec((10_u8.., any::<Vec<u8>>()), 0..3),
        ) -> State {
            State {
                mark, next, row, occurrences, records, paused, unknown,
                waiting: waiting.map(|(nominal, look_again)| Waiting { nominal, look_again }),
                last: last.map(|(nominal, id)| Last { nominal, id: ItemId::new(id.to_vec().into()) }),
            }
        }
    }

    proptest! {
        #[test]
        fn states_round_trip(state in state()) {
            prop_assert_eq!(decode(&encode(&state)), Some(state));
        }

        #[test]
        fn any_bytes_are_read_without_panic(value: Vec<u8>) {
            let _ = decode(&value);
        }
    }
}
