//! (q, "rules-pending"): where holds and parked keys are to be looked at again, after a change of the rules.
//!
//! | bytes | |
//! |---|---|
//! | 1 | format, 1 |
//! | 16 | the session that has looked at the page before; 0 if none has |
//! | 8 | the version at which it did; 0 |
//! | rest | the row at which the next page begins, without the packed (q) |

use crate::model::session_id::SessionId;

/// Second element of the record's key.
pub(crate) const RULES_PENDING: &[u8] = b"rules-pending";

/// The first byte of a value.
const FORMAT: u8 = 1;

/// Holds and parked keys that are to be looked at again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RulesPending {
    /// Which session has looked at the page before, and at which version. With zeros none has.
    pub(crate) session: SessionId,
    pub(crate) version: u64,
    /// The row at which the next page begins, without the packed (q).
    pub(crate) next: Vec<u8>,
}

impl RulesPending {
    pub(crate) fn encode(&self) -> Vec<u8> {
        [&[FORMAT][..], &self.session.0, &self.version.to_le_bytes(), &self.next].concat()
    }

    /// Reads a record; `None` if it is of another layout.
    pub(crate) fn decode(value: &[u8]) -> Option<RulesPending> {
        let (&FORMAT, rest) = value.split_first()? else { return None };
        let (session, rest) = rest.split_first_chunk()?;
        let (version, next) = rest.split_first_chunk()?;
        let (session, version) = (SessionId(*session), u64::from_le_bytes(*version));
        Some(RulesPending { session, version, next: next.to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn records_of_pending_looks_round_trip(session: [u8; 16], version: u64, next: Vec<u8>) {
            let pending = RulesPending { session: SessionId(session), version, next };
            prop_assert_eq!(RulesPending::decode(&pending.encode()), Some(pending));
        }

        #[test]
        fn any_bytes_are_read_without_panic(value: Vec<u8>) {
            let _ = RulesPending::decode(&value);
        }
    }
}
