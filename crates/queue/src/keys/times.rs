//! (q, "times"): versions of the database, each with a time at which it had been read.
//!
//! Written by sweepers now and then, as long as there is something whose age they need to know; read by sweepers: an operation, or a
//! session's slot, of a version below one of these is older than its time. Versions alone tell no age: they jump.

use crate::model::sightings::{Sighting, Sightings};

/// Second element of the record's key.
pub(crate) const TIMES: &[u8] = b"times";

/// The first byte of a value.
const FORMAT: u8 = 1;
const LEN: usize = 8 + 8;

pub(crate) fn encode(times: &Sightings) -> Vec<u8> {
    let mut out = vec![FORMAT];
    for sighting in times.iter() {
        out.extend_from_slice(&sighting.version.to_le_bytes());
        out.extend_from_slice(&sighting.at.to_le_bytes());
    }
    out
}

/// Reads a value; `None` if it is of another layout.
pub(crate) fn decode(value: &[u8]) -> Option<Sightings> {
    let (&FORMAT, rest) = value.split_first()? else { return None };
    let (pairs, []) = rest.as_chunks::<LEN>() else { return None };
    let pair = |pair: &[u8; LEN]| {
        let (version, at) = pair.split_first_chunk::<8>()?;
        Some(Sighting { version: u64::from_le_bytes(*version), at: u64::from_le_bytes(at.try_into().ok()?) })
    };
    Sightings::new(pairs.iter().map(pair).collect::<Option<_>>()?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn times_round_trip(steps in prop::collection::vec((1..u64::MAX / 200, 0..u64::MAX / 200), 0..100)) {
            let (mut version, mut at) = (0, 0);
            let list = steps.into_iter().map(|(by, time)| {
                (version, at) = (version + by, at + time);
                Sighting { version, at }
            });
            let times = Sightings::new(list.collect()).expect("they are in order");
            prop_assert_eq!(decode(&encode(&times)), Some(times));
        }

        #[test]
        fn any_bytes_are_read_without_panic(value: Vec<u8>) {
            let _ = decode(&value);
            let _ = decode(&[&[FORMAT], &value[..]].concat());
        }
    }

    #[test]
    fn times_out_of_order_are_refused() {
        let pair = |version: u64, at: u64| [version.to_le_bytes(), at.to_le_bytes()].concat();
        assert!(decode(&[vec![FORMAT], pair(1, 2), pair(2, 2)].concat()).is_some());
        assert_eq!(decode(&[vec![FORMAT], pair(2, 2), pair(2, 3)].concat()), None);
        assert_eq!(decode(&[vec![FORMAT], pair(1, 2), pair(2, 1)].concat()), None);
    }
}
