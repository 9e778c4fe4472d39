//! The value of (q, "schedule-log", name, n): what became of some occurrences of a schedule.
//!
//! Written with what it records, and never changed. The newest [`KEPT`] of a schedule are kept.

use std::time::UNIX_EPOCH;

use bytes::Bytes;

use crate::keys::fields::{each, number, put, take_number};
use crate::model::id::ItemId;
use crate::model::schedule::{MissReason, OccurrenceRecord, Outcome, SkipReason};
use crate::model::time::{from_millis, millis};

/// How many records of a schedule are kept.
pub(crate) const KEPT: u64 = 1_000;

const CODE: u8 = 1;
const AT: u8 = 2;
const SPAN: u8 = 3;
const COUNT: u8 = 4;
const OCCURRENCE: u8 = 5;
const ID: u8 = 6;

const FIRED: u8 = 1;
const FIRED_BY_HAND: u8 = 2;
const OVERLAP: u8 = 16;
const PAUSED: u8 = 17;
const REDEFINED: u8 = 18;
const RESTARTED: u8 = 19;
const BY_POLICY: u8 = 32;
const OUT_OF_WINDOW: u8 = 33;
const TOO_MANY: u8 = 34;

/// The value. The id of the item ends it, if there is one.
pub(crate) fn encode(record: &OccurrenceRecord) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, CODE, &[&[code(&record.outcome)]]);
    put(&mut out, AT, &[&millis(record.at).to_le_bytes()]);
    put(&mut out, SPAN, &[&millis(record.from).to_le_bytes(), &millis(record.to).to_le_bytes()]);
    put(&mut out, COUNT, &[&record.count.to_le_bytes(), &[u8::from(record.is_exact)]]);
    if let Outcome::Fired { id, occurrence } | Outcome::FiredByHand { id, occurrence } = &record.outcome {
        put(&mut out, OCCURRENCE, &[&occurrence.to_le_bytes()]);
        if let Some(id) = id {
            put(&mut out, ID, &[id.as_bytes()]);
        }
    }
    out
}

/// Reads a record; `None` if it is not one.
pub(crate) fn decode(record_number: u64, value: &[u8]) -> Option<OccurrenceRecord> {
    let (mut found, mut at, mut span, mut count) = (None, UNIX_EPOCH, (UNIX_EPOCH, UNIX_EPOCH), (1, true));
    let (mut occurrence, mut id) = (0, None);
    for field in each(value) {
        let (tag, content) = field?;
        match tag {
            CODE => found = content.first().copied(),
            AT => at = from_millis(number(content)?),
            SPAN => {
                let (from, to) = take_number(content)?;
                span = (from_millis(from), from_millis(number(to)?));
            }
            COUNT => {
                let (number, is_exact) = take_number(content)?;
                count = (number, is_exact != [0]);
            }
            OCCURRENCE => occurrence = number(content)?,
            ID => id = Some(ItemId::new(Bytes::copy_from_slice(content))),
            _ => {}
        }
    }
    let outcome = match found? {
        FIRED => Outcome::Fired { id, occurrence },
        FIRED_BY_HAND => Outcome::FiredByHand { id, occurrence },
        OVERLAP => Outcome::Skipped(SkipReason::Overlap),
        PAUSED => Outcome::Skipped(SkipReason::Paused),
        REDEFINED => Outcome::Skipped(SkipReason::Redefined),
        RESTARTED => Outcome::Skipped(SkipReason::Restarted),
        BY_POLICY => Outcome::Missed(MissReason::Policy),
        OUT_OF_WINDOW => Outcome::Missed(MissReason::Window),
        TOO_MANY => Outcome::Missed(MissReason::Maximum),
        code => Outcome::Unknown(code),
    };
    let ((from, to), (count, is_exact)) = (span, count);
    Some(OccurrenceRecord { number: record_number, at, from, to, count, is_exact, outcome })
}

fn code(outcome: &Outcome) -> u8 {
    match outcome {
        Outcome::Fired { .. } => FIRED,
        Outcome::FiredByHand { .. } => FIRED_BY_HAND,
        Outcome::Skipped(SkipReason::Overlap) => OVERLAP,
        Outcome::Skipped(SkipReason::Paused) => PAUSED,
        Outcome::Skipped(SkipReason::Redefined) => REDEFINED,
        Outcome::Skipped(SkipReason::Restarted) => RESTARTED,
        Outcome::Missed(MissReason::Policy) => BY_POLICY,
        Outcome::Missed(MissReason::Window) => OUT_OF_WINDOW,
        Outcome::Missed(MissReason::Maximum) => TOO_MANY,
        Outcome::Unknown(code) => *code,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn outcome() -> impl Strategy<Value = Outcome> {
        let id = |id: Option<[u8; 13]>| id.map(|id| ItemId::new(id.to_vec().into()));
        prop_oneof![
            any::<(Option<[u8; 13]>, u64)>()
                .prop_map(move |(of, occurrence)| Outcome::Fired { id: id(of), occurrence }),
            any::<(Option<[u8; 13]>, u64)>()
                .prop_map(move |(of, occurrence)| Outcome::FiredByHand { id: id(of), occurrence }),
            Just(Outcome::Skipped(SkipReason::Overlap)),
            Just(Outcome::Skipped(SkipReason::Paused)),
            Just(Outcome::Skipped(SkipReason::Redefined)),
            Just(Outcome::Skipped(SkipReason::Restarted)),
            Just(Outcome::Missed(MissReason::Policy)),
            Just(Outcome::Missed(MissReason::Window)),
            Just(Outcome::Missed(MissReason::Maximum)),
            (100_u8..).prop_map(Outcome::Unknown),
        ]
    }

    proptest! {
        #[test]
        fn records_round_trip(
            number: u64, at: u64, from: u64, to: u64, count: u64, is_exact: bool, outcome in outcome(),
        ) {
            let [at, from, to] = [at, from, to].map(from_millis);
            let record = OccurrenceRecord { number, at, from, to, count, is_exact, outcome };
            prop_assert_eq!(decode(number, &encode(&record)), Some(record));
        }

        #[test]
        fn any_bytes_are_read_without_panic(value: Vec<u8>) {
            let _ = decode(0, &value);
        }
    }
}
