//! (q, "clocks"): what the clocks of processes that sweep the queue said, at which versions.
//!
//! Written by a sweeper together with its [duty](crate::keys::duty), and by sweepers whose clocks differ; read by every sweeper that looks. It is how a
//! sweeper finds out that its clock is wrong.

use crate::model::session_id::SessionId;
use crate::model::time::Millis;

/// Second element of the record's key.
pub(crate) const CLOCKS: &[u8] = b"clocks";

/// The first byte of a value.
const FORMAT: u8 = 1;
const LEN: usize = 16 + 4 * 8;

/// The most readings of a record.
const MOST: usize = 16;

/// What the clock of a sweeper's process said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) sweeper: SessionId,
    /// Since this version it has gone on as versions have.
    pub(crate) since: u64,
    /// The version at which it was read.
    pub(crate) version: u64,
    pub(crate) time: Millis,
    /// The version of the last question that the sweeper has asked or answered; 0: of none.
    pub(crate) asked: u64,
}

impl Reading {
    /// What this clock says at a later version, if it goes on as versions do.
    pub(crate) fn at(&self, version: u64) -> Millis {
        self.time.saturating_add(version.saturating_sub(self.version) / 1_000)
    }
}

/// The readings of a queue, one of each sweeper.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Readings(Vec<Reading>);

impl Readings {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Reading> {
        self.0.iter()
    }

    /// Adds a reading in the place of the sweeper's last one, and drops those from before `from`, and the oldest of too many.
    pub(crate) fn add(&mut self, reading: Reading, from: u64) {
        self.0.retain(|it| it.sweeper != reading.sweeper && it.version >= from);
        self.0.push(reading);
        self.0.sort_by_key(|it| it.version);
        self.0.drain(..self.0.len().saturating_sub(MOST));
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![FORMAT];
        for Reading { sweeper, since, version, time, asked } in &self.0 {
            out.extend_from_slice(&sweeper.0);
            [since, version, time, asked]
                .iter()
                .for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
        }
        out
    }

    /// Reads a value; `None` if it is of another layout.
    pub(crate) fn decode(value: &[u8]) -> Option<Readings> {
        let (&FORMAT, rest) = value.split_first()? else { return None };
        let (rows, []) = rest.as_chunks::<LEN>() else { return None };
        let reading = |row: &[u8; LEN]| {
            let (sweeper, rest) = row.split_first_chunk::<16>()?;
            let ([since, version, time, asked], []) = rest.as_chunks::<8>() else { return None };
            Some(Reading {
                sweeper: SessionId(*sweeper),
                since: u64::from_le_bytes(*since),
                version: u64::from_le_bytes(*version),
                time: u64::from_le_bytes(*time),
                asked: u64::from_le_bytes(*asked),
            })
        };
        rows.iter().map(reading).collect::<Option<_>>().map(Readings)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn readings_round_trip(rows: Vec<([u8; 16], u64, u64, u64, u64)>) {
            let mut readings = Readings::default();
            for (sweeper, since, version, time, asked) in rows {
                readings.add(Reading { sweeper: SessionId(sweeper), since, version, time, asked }, 0);
            }
            prop_assert!(readings.0.len() <= MOST);
            prop_assert_eq!(Readings::decode(&readings.encode()), Some(readings));
        }

        #[test]
        fn any_bytes_are_read_without_panic(value: Vec<u8>) {
            let _ = Readings::decode(&value);
            let _ = Readings::decode(&[&[FORMAT], &value[..]].concat());
        }
    }

    #[test]
    fn a_new_reading_takes_the_place_of_the_last_one_and_old_ones_go() {
        let of = |n, version| Reading { sweeper: SessionId([n; 16]), since: 0, version, time: 0, asked: 0 };
        let mut readings = Readings::default();
        for (n, version) in [(1, 10), (2, 20), (1, 30)] {
            readings.add(of(n, version), 0);
        }
        assert_eq!(readings, Readings(vec![of(2, 20), of(1, 30)]));
        readings.add(of(3, 40), 21);
        assert_eq!(readings, Readings(vec![of(1, 30), of(3, 40)]));
    }
}
