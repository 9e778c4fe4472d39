//! (q, "want", stamp): a take that lost against others and asks to be served, in the order of commits.
//!
//! Written by the session that asks, with a versionstamped key. Any session that asks too may serve it: it gives the request what it
//! asks for, as a lease under the id that the request names, and clears the request in the same transaction. So that id tells the one
//! who asked what became of it, whatever it knows of its own commits. A request that nobody served until its deadline is cleared
//! by any process that sees it.

use std::num::NonZeroUsize;

use crate::model::lease_id::LeaseId;
use crate::model::session_id::SessionId;

/// Second element of a request's key.
pub(crate) const WANT: &[u8] = b"want";

/// The first byte of a value.
const FORMAT: u8 = 1;

/// A request to be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Want {
    /// The lease to write.
    pub(crate) lease: LeaseId,
    /// The most items.
    pub(crate) k: NonZeroUsize,
    /// The lease's length in versions; 0: the items are taken for good, and the lease lasts until the taker has found out.
    pub(crate) length: u64,
    /// The database version after which the request means nothing.
    pub(crate) deadline: u64,
    /// Whether items are taken from the end of the key range.
    pub(crate) last: bool,
}

impl Want {
    /// The value: format, session, number, `k` as u32, length, deadline, and 1 for the end or 0; numbers are little endian.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let k = u32::try_from(self.k.get()).unwrap_or(u32::MAX);
        let mut out = Vec::with_capacity(1 + 16 + 8 + 4 + 8 + 8 + 1);
        out.push(FORMAT);
        out.extend_from_slice(&self.lease.session.0);
        out.extend_from_slice(&self.lease.number.to_le_bytes());
        out.extend_from_slice(&k.to_le_bytes());
        out.extend_from_slice(&self.length.to_le_bytes());
        out.extend_from_slice(&self.deadline.to_le_bytes());
        out.push(u8::from(self.last));
        out
    }

    /// Reads a value; `None` if it is of another layout.
    pub(crate) fn decode(value: &[u8]) -> Option<Want> {
        let (&FORMAT, rest) = value.split_first()? else { return None };
        let (session, rest) = rest.split_first_chunk::<16>()?;
        let (number, rest) = rest.split_first_chunk::<8>()?;
        let (k, rest) = rest.split_first_chunk::<4>()?;
        let (length, rest) = rest.split_first_chunk::<8>()?;
        let (deadline, rest) = rest.split_first_chunk::<8>()?;
        let &[last @ 0..=1] = rest else { return None };
        Some(Want {
            lease: LeaseId { session: SessionId(*session), number: u64::from_le_bytes(*number) },
            k: NonZeroUsize::new(usize::try_from(u32::from_le_bytes(*k)).ok()?)?,
            length: u64::from_le_bytes(*length),
            deadline: u64::from_le_bytes(*deadline),
            last: last == 1,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn requests_round_trip(
            (session, number) in any::<([u8; 16], u64)>(),
            k in 1..=u32::MAX,
            (length, deadline, last) in any::<(u64, u64, bool)>(),
            cut in 0..46_usize,
        ) {
            let lease = LeaseId { session: SessionId(session), number };
            let want = Want { lease, k: NonZeroUsize::new(k as usize).unwrap(), length, deadline, last };
            let value = want.encode();
            prop_assert_eq!(Want::decode(&value), Some(want));
            prop_assert_eq!(Want::decode(&value[..cut]), None);
        }

        #[test]
        fn any_bytes_are_read_without_panic(value: Vec<u8>) {
            let _ = Want::decode(&value);
        }
    }
}
