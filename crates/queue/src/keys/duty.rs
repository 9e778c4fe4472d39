//! (q, "duty"): which sweeper looks after the queue, and when it looks again.
//!
//! Written by a sweeper after it has looked at everything; read first by every sweeper that looks. It is a hint that saves reads: only
//! the [claim](crate::keys::claims) decides which sweeper may move something.

use crate::model::session_id::SessionId;

/// Second element of the record's key.
pub(crate) const DUTY: &[u8] = b"duty";

/// The first byte of a value.
const FORMAT: u8 = 1;

/// The sweeper on duty. All but its id are database versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Duty {
    pub(crate) sweeper: SessionId,
    /// When it looked at everything.
    pub(crate) looked: u64,
    /// When it looks again, at the latest.
    pub(crate) until: u64,
    /// The queue was idle, and this was `npop`: without leases and requests, and without work for a sweeper.
    pub(crate) idle: Option<u64>,
}

impl Duty {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut value = vec![FORMAT];
        value.extend_from_slice(&self.sweeper.0);
        let numbers = [Some(self.looked), Some(self.until), self.idle];
        numbers.into_iter().flatten().for_each(|number| value.extend_from_slice(&number.to_le_bytes()));
        value
    }

    /// Reads a record; `None` if it is of another layout.
    pub(crate) fn decode(value: &[u8]) -> Option<Duty> {
        let (&FORMAT, rest) = value.split_first()? else { return None };
        let (sweeper, rest) = rest.split_first_chunk::<16>()?;
        let (numbers, []) = rest.as_chunks::<8>() else { return None };
        let (&[looked, until], idle) = numbers.split_first_chunk::<2>()?;
        let idle = match idle {
            [] => None,
            [npop] => Some(u64::from_le_bytes(*npop)),
            _ => return None,
        };
        let (looked, until) = (u64::from_le_bytes(looked), u64::from_le_bytes(until));
        Some(Duty { sweeper: SessionId(*sweeper), looked, until, idle })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn duty_records_round_trip(sweeper: [u8; 16], looked: u64, until: u64, idle: Option<u64>) {
            let duty = Duty { sweeper: SessionId(sweeper), looked, until, idle };
            prop_assert_eq!(Duty::decode(&duty.encode()), Some(duty));
        }

        #[test]
        fn any_bytes_are_read_without_panic(value: Vec<u8>) {
            let _ = Duty::decode(&value);
            let _ = Duty::decode(&[&[FORMAT], &value[..]].concat());
        }
    }
}
