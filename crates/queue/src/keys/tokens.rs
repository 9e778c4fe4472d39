//! (q, "token", session): which attempt of a session committed last.
//!
//! Written by every attempt of a session that pushes or removes items, in its transaction, and read only when
//! a commit's outcome is unknown: the slot then tells whether that attempt committed. One slot per session, of
//! constant size. The Erlang program neither reads nor writes it.

use crate::model::element::{UUID_LEN, append_uuid};
use crate::model::session_id::SessionId;

/// Second element of a token slot's key.
pub(crate) const TOKEN: &[u8] = b"token";
/// Length of a slot's value: the attempt's number and the stamp of its commit.
const LEN: usize = 8 + 10;

/// The content of a token slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token {
    /// The attempt that committed last; attempts of a session count up from 1.
    pub(crate) attempt: u64,
    /// The first 10 bytes of the versionstamp it committed with.
    pub(crate) stamp: [u8; 10],
}

impl Token {
    /// The database version at which the slot was written.
    pub(crate) fn version(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.stamp;
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }
}

/// The key of a session's slot: as a UUID the session id is its 16 bytes, whatever they are. `subspace` is the packed (q, "token").
pub(crate) fn key(subspace: &[u8], session: SessionId) -> Vec<u8> {
    let mut key = Vec::with_capacity(subspace.len() + UUID_LEN);
    key.extend_from_slice(subspace);
    append_uuid(&mut key, session.0);
    key
}

/// The parameter of SET_VERSIONSTAMPED_VALUE for an attempt: its number, little endian, room for the stamp, and
/// the stamp's position in the value, 4 bytes little endian.
pub(crate) fn pending(attempt: u64) -> [u8; LEN + 4] {
    let mut value = [0; LEN + 4];
    value[..8].copy_from_slice(&attempt.to_le_bytes());
    value[8..LEN].fill(0xff);
    value[LEN..].copy_from_slice(&8_u32.to_le_bytes());
    value
}

/// Reads a slot's value; `None` if it is of another layout.
pub(crate) fn decode(value: &[u8]) -> Option<Token> {
    let (attempt, stamp) = value.split_first_chunk::<8>()?;
    Some(Token { attempt: u64::from_le_bytes(*attempt), stamp: stamp.try_into().ok()? })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_token_of_another_length_is_refused() {
        assert!(decode(&[0; LEN]).is_some());
        assert_eq!(decode(&[0; LEN - 1]), None);
        assert_eq!(decode(&[0; LEN + 1]), None);
        assert_eq!(decode(&[]), None);
    }

    proptest! {
        #[test]
        fn stamped_values_round_trip(attempt: u64, stamp: [u8; 10]) {
            let parameter = pending(attempt);
            // As the database does at commit.
            let (value, position) = parameter.split_at(LEN);
            let position = u32::from_le_bytes(position.try_into().unwrap()) as usize;
            let mut value = value.to_vec();
            value[position..position + 10].copy_from_slice(&stamp);
            prop_assert_eq!(decode(&value), Some(Token { attempt, stamp }));
        }
    }
}
