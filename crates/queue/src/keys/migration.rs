//! (q, "migrate"): how far a migration of the queue has come, at both of its ends.
//!
//! Written by the migration in every transaction that moves it on, and read in it: so a migration that was broken off goes on where it was,
//! and two of them do not work on a queue at the same time. The record's last state stays until the queue is deleted.

use crate::keys::Counter;

/// How many counters a migration compares.
pub(crate) const COUNTERS: usize = Counter::COMPARED.len();

/// The first byte of a value.
const FORMAT: u8 = 1;
const DIGEST: usize = 16;

/// Which migration it is: 16 bytes that no other has or had.
pub type RunId = [u8; 16];

/// How far a migration has come, at the end where the record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// At the source: the queue is being copied.
    Leaving,
    /// At the source: what was in hand there is no longer, and the copy at the target has all that there is.
    Fenced,
    /// At the source: the queue lives on at the target.
    Left,
    /// At the target: rows are being copied.
    Copying,
    /// At the target: all rows have been copied once, and are being compared.
    Comparing,
    /// At the target: source and target were the same when the source had come as far as the record's marks say.
    Equal,
    /// At the target: the queue lives here.
    Arrived,
}

/// A fingerprint of a queue's state: its counters, in the order of the keys, and a digest of its leases and of the ends of its line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Marks {
    /// The counters, modulo 2^64.
    pub counters: [u64; COUNTERS],
    /// The digest.
    pub digest: [u8; DIGEST],
}

/// The record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Which migration.
    pub run: RunId,
    /// How far it has come.
    pub phase: Phase,
    /// Rows copied so far, or in all. Of the target's record; so are the fields that follow, but for the last.
    pub rows: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// With [`Phase::Equal`]: what the source's marks were before the two were found to be the same.
    pub marks: Marks,
    /// With [`Phase::Copying`]: rows up to this key have been copied.
    pub through: Vec<u8>,
    /// Of the source's record: the pause that there was before, as it is stored.
    pub pause: Option<Vec<u8>>,
}

impl Phase {
    const ALL: [(u8, Phase); 7] = [
        (1, Phase::Leaving),
        (2, Phase::Fenced),
        (3, Phase::Left),
        (17, Phase::Copying),
        (18, Phase::Comparing),
        (19, Phase::Equal),
        (20, Phase::Arrived),
    ];

    /// Whether it is one of the record at the source.
    pub fn is_of_source(self) -> bool {
        matches!(self, Phase::Leaving | Phase::Fenced | Phase::Left)
    }

    fn code(self) -> u8 {
        let found = Self::ALL.iter().find(|(_, phase)| *phase == self);
        found.map(|(code, _)| *code).expect("all phases are in the table")
    }

    fn of_code(code: u8) -> Option<Phase> {
        Self::ALL.iter().find(|(known, _)| *known == code).map(|(_, phase)| *phase)
    }
}

impl Record {
    /// That of a migration that has just come to this phase.
    pub fn new(run: RunId, phase: Phase) -> Record {
        let (rows, bytes, marks, through, pause) = Default::default();
        Record { run, phase, rows, bytes, marks, through, pause }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![FORMAT];
        out.extend_from_slice(&self.run);
        out.push(self.phase.code());
        for number in [self.rows, self.bytes].iter().chain(&self.marks.counters) {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.marks.digest);
        let len = u32::try_from(self.through.len()).expect("keys are bounded far below 2^32 bytes");
        out.extend_from_slice(&len.to_le_bytes());
        out.extend_from_slice(&self.through);
        out.extend_from_slice(self.pause.as_deref().unwrap_or_default());
        out
    }

    /// Reads a record; `None` if it is of another layout.
    pub(crate) fn decode(value: &[u8]) -> Option<Record> {
        let (&FORMAT, rest) = value.split_first()? else { return None };
        let (run, rest) = rest.split_first_chunk::<16>()?;
        let (&phase, mut rest) = rest.split_first()?;
        let mut number = || {
            let (number, after) = rest.split_first_chunk::<8>()?;
            rest = after;
            Some(u64::from_le_bytes(*number))
        };
        let (rows, bytes) = (number()?, number()?);
        let mut counters = [0; COUNTERS];
        for counter in &mut counters {
            *counter = number()?;
        }
        let (digest, rest) = rest.split_first_chunk::<DIGEST>()?;
        let (len, rest) = rest.split_first_chunk::<4>()?;
        let (through, pause) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        Some(Record {
            run: *run,
            phase: Phase::of_code(phase)?,
            rows,
            bytes,
            marks: Marks { counters, digest: *digest },
            through: through.to_vec(),
            pause: (!pause.is_empty()).then(|| pause.to_vec()),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    prop_compose! {
        fn record()(
            run: RunId, at in 0..Phase::ALL.len(), rows: u64, bytes: u64, counters: [u64; COUNTERS],
            digest: [u8; DIGEST], through: Vec<u8>, pause in prop::option::of(prop::collection::vec(any::<u8>(), 1..20)),
        ) -> Record {
            let marks = Marks { counters, digest };
            Record { run, phase: Phase::ALL[at].1, rows, bytes, marks, through, pause }
        }
    }

    proptest! {
        #[test]
        fn records_round_trip(record in record()) {
            prop_assert_eq!(Record::decode(&record.encode()), Some(record));
        }

        #[test]
        fn any_bytes_are_read_without_panic(value: Vec<u8>) {
            let _ = Record::decode(&value);
            let _ = Record::decode(&[&[FORMAT], &value[..]].concat());
        }
    }
}
