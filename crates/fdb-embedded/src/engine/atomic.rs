//! FoundationDB's atomic operations as functions of bytes.
//!
//! Numbers are little-endian and unsigned. Source: the FoundationDB documentation, "Atomic operations",
//! at the behaviour of API version 510 and later.

use crate::limits::MAX_VALUE;

/// An operation that the storage applies without the client reading the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtomicOp {
    /// Adds modulo 2^(8 * operand length).
    Add,
    /// Bitwise and; an absent key becomes the operand.
    And,
    /// Bitwise or.
    Or,
    /// Bitwise exclusive or.
    Xor,
    /// Appends unless the value would grow over the value limit.
    AppendIfFits,
    /// The larger number.
    Max,
    /// The smaller number.
    Min,
    /// The lexicographically smaller string.
    ByteMin,
    /// The lexicographically larger string.
    ByteMax,
    /// Clears the key when its value equals the operand.
    CompareAndClear,
}

impl AtomicOp {
    /// The operation of a mutation type code of the C API, if it is one of these.
    #[must_use]
    pub fn from_code(code: i32) -> Option<AtomicOp> {
        Some(match code {
            2 => Self::Add,
            6 | 19 => Self::And,
            7 => Self::Or,
            8 => Self::Xor,
            9 => Self::AppendIfFits,
            12 => Self::Max,
            13 | 18 => Self::Min,
            16 => Self::ByteMin,
            17 => Self::ByteMax,
            20 => Self::CompareAndClear,
            _ => return None,
        })
    }

    /// True if this operation with `first` and then with `second` equals one operation with the two
    /// combined by it. FoundationDB's client combines such operations.
    #[must_use]
    pub fn is_chain(self, first: &[u8], second: &[u8]) -> bool {
        match self {
            Self::CompareAndClear => false,
            Self::And | Self::AppendIfFits | Self::ByteMin | Self::ByteMax => true,
            Self::Add | Self::Or | Self::Xor | Self::Max | Self::Min => first.len() == second.len(),
        }
    }

    /// The mutation type code of the C API.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Add => 2,
            Self::And => 6,
            Self::Or => 7,
            Self::Xor => 8,
            Self::AppendIfFits => 9,
            Self::Max => 12,
            Self::Min => 13,
            Self::ByteMin => 16,
            Self::ByteMax => 17,
            Self::CompareAndClear => 20,
        }
    }

    /// The value after the operation; `None` is an absent key, before and after.
    #[must_use]
    pub fn apply(self, old: Option<&[u8]>, operand: &[u8]) -> Option<Vec<u8>> {
        if self == Self::CompareAndClear {
            return old.filter(|old| *old != operand).map(<[u8]>::to_vec);
        }
        let Some(old) = old else { return Some(operand.to_vec()) };
        Some(match self {
            Self::Add => add(old, operand),
            Self::And => zip(old, operand, |old, new| old & new),
            Self::Or => zip(old, operand, |old, new| old | new),
            Self::Xor => zip(old, operand, |old, new| old ^ new),
            Self::AppendIfFits if old.len() + operand.len() <= MAX_VALUE => [old, operand].concat(),
            Self::AppendIfFits => old.to_vec(),
            Self::Max => pick(old, operand, std::cmp::Ordering::Greater),
            Self::Min => pick(old, operand, std::cmp::Ordering::Less),
            Self::ByteMin => old.min(operand).to_vec(),
            Self::ByteMax => old.max(operand).to_vec(),
            Self::CompareAndClear => unreachable!("handled above"),
        })
    }
}

/// Combines byte by byte. `old` is cut off or extended with zeros to the operand's length.
fn zip(old: &[u8], operand: &[u8], combine: impl Fn(u8, u8) -> u8) -> Vec<u8> {
    let old = old.iter().copied().chain(std::iter::repeat(0));
    operand.iter().zip(old).map(|(new, old)| combine(old, *new)).collect()
}

fn add(old: &[u8], operand: &[u8]) -> Vec<u8> {
    let mut carry = 0u16;
    let old = old.iter().copied().chain(std::iter::repeat(0));
    let sum = operand.iter().zip(old).map(|(new, old)| {
        let digit = u16::from(*new) + u16::from(old) + carry;
        carry = digit >> 8;
        digit.to_le_bytes()[0]
    });
    sum.collect()
}

/// Compares as numbers of the operand's length. The operand wins if it compares as `wanted`.
fn pick(old: &[u8], operand: &[u8], wanted: std::cmp::Ordering) -> Vec<u8> {
    let old = zip(old, operand, |old, _| old);
    if operand.iter().rev().cmp(old.iter().rev()) == wanted { operand.to_vec() } else { old }
}

#[cfg(test)]
mod tests {
    use super::*;
    use AtomicOp::*;

    #[test]
    fn each_atomic_operation_gives_the_expected_values() {
        type Case = (AtomicOp, Option<&'static [u8]>, &'static [u8], Option<&'static [u8]>);
        let cases: &[Case] = &[
            (Add, None, &[1, 0], Some(&[1, 0])),
            (Add, Some(&[255, 0]), &[1, 0], Some(&[0, 1])),
            (Add, Some(&[255, 255]), &[1, 0], Some(&[0, 0])),
            (Add, Some(&[1, 2, 3]), &[1], Some(&[2])),
            (Add, Some(&[]), &[7], Some(&[7])),
            (Add, Some(&[7]), &[], Some(&[])),
            (And, None, &[6], Some(&[6])),
            (And, Some(&[3]), &[6, 255], Some(&[2, 0])),
            (Or, Some(&[1]), &[6, 4], Some(&[7, 4])),
            (Xor, Some(&[5, 9]), &[6], Some(&[3])),
            (AppendIfFits, Some(b"ab"), b"c", Some(b"abc")),
            (AppendIfFits, None, b"c", Some(b"c")),
            (Max, Some(&[1, 1]), &[2, 0], Some(&[1, 1])),
            (Max, Some(&[0, 0, 1]), &[2], Some(&[2])),
            (Min, None, &[9], Some(&[9])),
            (Min, Some(&[]), &[9], Some(&[0])),
            (Min, Some(&[1, 1]), &[2, 0], Some(&[2, 0])),
            (ByteMin, Some(b"b"), b"ab", Some(b"ab")),
            (ByteMax, Some(b"b"), b"ab", Some(b"b")),
            (CompareAndClear, Some(b"x"), b"x", None),
            (CompareAndClear, Some(b"x"), b"y", Some(b"x")),
            (CompareAndClear, None, b"y", None),
        ];
        for (op, old, operand, expected) in cases {
            assert_eq!(op.apply(*old, operand).as_deref(), *expected, "{op:?} {old:?} {operand:?}");
        }
    }

    #[test]
    fn append_stops_at_the_value_limit() {
        let old = vec![0; MAX_VALUE - 1];
        assert_eq!(AppendIfFits.apply(Some(&old), b"x").map(|v| v.len()), Some(MAX_VALUE));
        assert_eq!(AppendIfFits.apply(Some(&old), b"xy").map(|v| v.len()), Some(MAX_VALUE - 1));
    }
}
