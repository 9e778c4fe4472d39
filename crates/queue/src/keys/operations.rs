//! (q, "op", id): a push that carried an operation id; (q, "oplog", stamp) = id: the same in the order of commits, for expiry.
//!
//! Written by the push, in its transaction, and read by the next push with that id. Both are cleared by the sweep, once old. The stamp
//! in the log has a number of its own: which operation of its transaction it was.

use crate::keys::partitions::Deal;
use crate::model::element::STAMP;
use crate::model::stamp::Stamp;

/// Second element of an operation's key.
pub(crate) const OP: &[u8] = b"op";
/// Second element of the key of the log of operations.
pub(crate) const OPLOG: &[u8] = b"oplog";

/// A digest of what an operation was to push.
pub(crate) type Digest = [u8; 16];

const ITEMS: usize = Stamp::LEN;
const DIGEST: usize = ITEMS + 4;
const LEN: usize = DIGEST + size_of::<Digest>();

/// The record of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Operation {
    /// In a FIFO queue, the stamp of the first item that it added; the others follow it. In a recipe's, its first 10 bytes are
    /// the stamp of its transaction.
    pub(crate) stamp: Stamp,
    /// How many items it added.
    pub(crate) items: u32,
    /// A digest of the items that it pushed. `None` if an earlier version pushed them.
    pub(crate) digest: Option<Digest>,
    /// The partitions of the items.
    pub(crate) deal: Deal,
    /// What became of each item, if it did not add them all.
    pub(crate) answers: Vec<u8>,
}

/// The parameter of SET_VERSIONSTAMPED_VALUE for an operation that adds this many items, the first of them as push number `user` of the
/// transaction. `answers` is empty if it adds all.
pub(crate) fn pending(user: u16, items: u32, digest: &Digest, deal: Deal, answers: &[u8]) -> Vec<u8> {
    let mut value = vec![0xff; LEN];
    value[10..ITEMS].copy_from_slice(&user.to_be_bytes());
    value[ITEMS..DIGEST].copy_from_slice(&items.to_le_bytes());
    value[DIGEST..].copy_from_slice(digest);
    if deal.count > 1 || !answers.is_empty() {
        value.extend_from_slice(&[deal.count, deal.first]);
    }
    value.extend_from_slice(answers);
    value.extend_from_slice(&0_u32.to_le_bytes());
    value
}

/// Reads an operation's value; `None` if it is of another layout.
pub(crate) fn decode(value: &[u8]) -> Option<Operation> {
    let (stamp, rest) = value.split_first_chunk::<{ Stamp::LEN }>()?;
    let (items, digest) = rest.split_first_chunk::<4>()?;
    let (digest, deal, answers): (_, _, &[u8]) = match digest.split_first_chunk() {
        None if digest.is_empty() => (None, Deal::PLAIN, &[]),
        None => return None,
        Some((digest, [])) => (Some(*digest), Deal::PLAIN, &[]),
        Some((digest, [count @ 1..=u8::MAX, first, answers @ ..])) => {
            (Some(*digest), Deal { count: *count, first: *first }, answers)
        }
        Some(_) => return None,
    };
    let (stamp, items) = (Stamp::from(*stamp), u32::from_le_bytes(*items));
    Some(Operation { stamp, items, digest, deal, answers: answers.to_vec() })
}

/// Where the log ends before operations of this version; `subspace` is the packed (q, "oplog").
pub(crate) fn log_before(subspace: &[u8], version: u64) -> Vec<u8> {
    [subspace, &[STAMP], &version.to_be_bytes()].concat()
}

/// The version at which an operation of the log was committed; `None` if the key is of another layout.
pub(crate) fn log_version(subspace: &[u8], key: &[u8]) -> Option<u64> {
    let (&STAMP, stamp) = key.strip_prefix(subspace)?.split_first()? else { return None };
    stamp.first_chunk().map(|version| u64::from_be_bytes(*version))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::id_layout::suffix;

    proptest! {
        #[test]
        fn values_round_trip(user: u16, items: u32, digest: Digest, transaction: [u8; 10], count in 2..64_u8, first: u8, answers: Vec<u8>) {
            let both = [Deal::PLAIN, Deal { count, first }];
            for (deal, answers) in both.into_iter().flat_map(|deal| [(deal, Vec::new()), (deal, answers.clone())]) {
                let parameter = pending(user, items, &digest, deal, &answers);
                let (value, position) = parameter.split_at(parameter.len() - 4);
                prop_assert_eq!(position, [0; 4]);
                // As the database does at commit.
                let mut value = value.to_vec();
                value[..10].copy_from_slice(&transaction);
                let stamp = Stamp::new(transaction, user);
                prop_assert_eq!(decode(&value), Some(Operation { stamp, items, digest: Some(digest), deal, answers }));
                // As earlier versions wrote it.
                let old = Operation { stamp, items, digest: None, deal: Deal::PLAIN, answers: Vec::new() };
                prop_assert_eq!(decode(&value[..DIGEST]), Some(old));
            }
        }

        #[test]
        fn operation_log_is_ordered_by_version(transaction: [u8; 10], version: u64, rest: Vec<u8>) {
            let stamp = Stamp::new(transaction, 0);
            let key = [b"oplog", suffix(stamp).as_slice(), &rest].concat();
            prop_assert_eq!(log_version(b"oplog", &key), Some(stamp.version()));
            prop_assert_eq!(key < log_before(b"oplog", version), stamp.version() < version);
        }

        #[test]
        fn any_bytes_are_read_without_panic(value: Vec<u8>) {
            let _ = decode(&value);
            let _ = log_version(&[], &value);
        }
    }
}
