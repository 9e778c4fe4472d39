//! (q, "sweep"): which sweeper is at work, so that others leave it alone for a while.
//!
//! Written by a sweeper with what it moves, in the same transaction; read by all sweepers. A claim that ran out means nothing.

use crate::model::session_id::SessionId;

/// Second element of the claim's key.
pub(crate) const SWEEP: &[u8] = b"sweep";

/// Who sweeps, and until which database version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) sweeper: SessionId,
    pub(crate) until: u64,
}

impl Claim {
    pub(crate) fn encode(&self) -> [u8; 24] {
        let mut value = [0; 24];
        value[..16].copy_from_slice(&self.sweeper.0);
        value[16..].copy_from_slice(&self.until.to_le_bytes());
        value
    }

    /// Reads a claim; `None` if it is of another layout.
    pub(crate) fn decode(value: &[u8]) -> Option<Claim> {
        let (sweeper, until) = value.split_first_chunk::<16>()?;
        Some(Claim { sweeper: SessionId(*sweeper), until: u64::from_le_bytes(until.try_into().ok()?) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn claims_round_trip(sweeper: [u8; 16], until: u64) {
            let claim = Claim { sweeper: SessionId(sweeper), until };
            prop_assert_eq!(Claim::decode(&claim.encode()), Some(claim));
        }

        #[test]
        fn any_bytes_are_read_without_panic(value: Vec<u8>) {
            let _ = Claim::decode(&value);
        }
    }
}
