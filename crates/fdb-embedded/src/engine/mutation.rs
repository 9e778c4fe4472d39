//! Mutations: the changes of a transaction, and how a versionstamp gets into them.

use super::atomic::AtomicOp;
use crate::limits::MAX_ADVANCE;
use crate::range_set::{KeyRange, key_after};

/// Bytes of a versionstamp: an 8-byte commit version and a 2-byte order within it, both big-endian.
pub const STAMP_LEN: usize = 10;

/// A versionstamp: ten bytes that the commit fills in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp(pub [u8; STAMP_LEN]);

impl Stamp {
    /// The stamp of the `order`-th transaction committed at `version`.
    #[must_use]
    pub fn new(version: i64, order: u16) -> Stamp {
        let mut bytes = [0; STAMP_LEN];
        bytes[..8].copy_from_slice(&version.to_be_bytes());
        bytes[8..].copy_from_slice(&order.to_be_bytes());
        Stamp(bytes)
    }

    /// Writes the stamp over the ten bytes at `offset`, which must lie inside `bytes`.
    pub fn place(self, bytes: &mut [u8], offset: usize) {
        bytes[offset..offset + STAMP_LEN].copy_from_slice(&self.0);
    }
}

/// One change of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are what their names say")]
pub enum Mutation {
    /// Sets a key.
    Set { key: Vec<u8>, value: Vec<u8> },
    /// Clears `[begin, end)`.
    ClearRange { begin: Vec<u8>, end: Vec<u8> },
    /// Applies an atomic operation.
    Atomic { op: AtomicOp, key: Vec<u8>, operand: Vec<u8> },
    /// Sets a key that gets the commit's versionstamp at `offset`.
    StampedKey { key: Vec<u8>, offset: usize, value: Vec<u8> },
    /// Sets a key to a value that gets the commit's versionstamp at `offset`.
    StampedValue { key: Vec<u8>, value: Vec<u8>, offset: usize },
}

/// What a mutation does to the stored keys.
#[derive(Debug, PartialEq, Eq)]
pub enum Effect {
    /// The key has this value, or is cleared.
    Write {
        /// The key.
        key: Vec<u8>,
        /// Its new value; `None` if it is cleared.
        value: Option<Vec<u8>>,
    },
    /// The keys of `[begin, end)` are cleared.
    Clear {
        /// The first key of the range.
        begin: Vec<u8>,
        /// The first key behind the range.
        end: Vec<u8>,
    },
}

/// Setting this key to a version, eight bytes little-endian, advances versions to it, as on a
/// cluster, which recovers then.
pub const MIN_COMMIT_VERSION: &[u8] = b"\xff/minRequiredCommitVersion";

impl Mutation {
    /// The version to which the mutation advances versions.
    pub fn min_commit_version(&self) -> Option<i64> {
        match self {
            Self::Set { key, value } if key == MIN_COMMIT_VERSION => {
                let version = value.as_slice().try_into().map(i64::from_le_bytes);
                version.ok().filter(|version| *version <= MAX_ADVANCE + 1)
            }
            _ => None,
        }
    }

    /// The mutation with the stamp filled in: a plain `Set` if it had a place for one.
    #[must_use]
    pub fn stamped(self, stamp: Stamp) -> Mutation {
        match self {
            Self::StampedKey { mut key, offset, value } => {
                stamp.place(&mut key, offset);
                Self::Set { key, value }
            }
            Self::StampedValue { key, mut value, offset } => {
                stamp.place(&mut value, offset);
                Self::Set { key, value }
            }
            other => other,
        }
    }

    /// What the mutation does to the stored keys. `value_after` computes an atomic operation's new value from
    /// the operation, the key and the operand.
    pub fn effect<E>(
        self,
        value_after: impl FnOnce(AtomicOp, &[u8], &[u8]) -> Result<Option<Vec<u8>>, E>,
    ) -> Result<Effect, E> {
        Ok(match self {
            Self::Set { key, value } => Effect::Write { key, value: Some(value) },
            Self::ClearRange { begin, end } if end.strip_prefix(begin.as_slice()) == Some(&[0]) => {
                Effect::Write { key: begin, value: None }
            }
            Self::ClearRange { begin, end } => Effect::Clear { begin, end },
            Self::Atomic { op, key, operand } => {
                let value = value_after(op, &key, &operand)?;
                Effect::Write { key, value }
            }
            Self::StampedKey { .. } | Self::StampedValue { .. } => {
                unreachable!("the committer stamps mutations before it applies them")
            }
        })
    }

    /// The range of keys that the mutation writes. It must not need a stamp for its key.
    #[must_use]
    pub fn write_range(&self) -> KeyRange {
        match self {
            Self::ClearRange { begin, end } => (begin.clone(), end.clone()),
            Self::Set { key, .. }
            | Self::Atomic { key, .. }
            | Self::StampedKey { key, .. }
            | Self::StampedValue { key, .. } => (key.clone(), key_after(key)),
        }
    }

    /// Bytes of the mutation's keys and values.
    #[must_use]
    pub fn payload_len(&self) -> usize {
        let (a, b) = match self {
            Self::Set { key, value }
            | Self::StampedKey { key, value, .. }
            | Self::StampedValue { key, value, .. } => (key, value),
            Self::ClearRange { begin, end } => (begin, end),
            Self::Atomic { key, operand, .. } => (key, operand),
        };
        a.len() + b.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_version_then_order_big_endian() {
        let mutation = Mutation::StampedKey { key: vec![0xff; 13], offset: 2, value: vec![9] };
        let expected = [0xff, 0xff, 0, 0, 0, 0, 0, 0, 1, 2, 0, 3, 0xff];
        let stamped = mutation.stamped(Stamp::new(0x0102, 3));
        assert_eq!(stamped, Mutation::Set { key: expected.to_vec(), value: vec![9] });
    }
}
