//! Which item it is, whatever the kind of its queue.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;

use crate::model::id_layout::{in_partition, partition_of, split_id, split_partition};
use crate::model::stamp::Stamp;

/// An item's name in its queue, and its place in the order: what its key goes on with behind the queue's own part.
///
/// In a FIFO queue that is the stamp of its push, which prints as 24 hexadecimal digits; in a partition from 1 on, the partition's number and
/// the stamp, which prints as the stamp, a hyphen and the number. In the recipes' queues it is the
/// packed `(index, random)` or `(priority, count, random)`, in a keyed queue the packed `(key, stamp)`; these print as `x` and the
/// bytes in hexadecimal. Ids of one queue, or of one of its partitions, sort as its items do; in a keyed queue that is so for the ids of one key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemId(Bytes);

/// A text is not an item's id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "item id {text:?} is neither a stamp of 24 hexadecimal digits (with -N in partition N) nor an x and an even number of them"
)]
pub struct ParseIdError {
    text: String,
}

impl ItemId {
    /// The id whose bytes these are, as they stand in keys.
    pub(crate) fn new(suffix: Bytes) -> ItemId {
        ItemId(suffix)
    }

    /// The bytes by which the item's keys go on.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The id of an item in a partition.
    pub(crate) fn in_partition(partition: u8, stamp: Stamp) -> ItemId {
        ItemId(in_partition(partition, stamp).into())
    }

    /// The stamp, if it has one: in a FIFO queue, whatever the partition.
    pub fn stamp(&self) -> Option<Stamp> {
        split_partition(&self.0).map(|(_, stamp)| stamp)
    }

    /// The partition that the item belongs to; 0 in a queue without partitions.
    pub fn partition(&self) -> u8 {
        partition_of(&self.0)
    }

    /// The item's key, if it belongs to a keyed queue.
    pub fn key(&self) -> Option<Vec<u8>> {
        split_id(&self.0).map(|(key, _)| key)
    }

    /// The version at which the item was pushed, if the id tells.
    pub(crate) fn pushed_at(&self) -> Option<u64> {
        let stamp = self.stamp().or_else(|| split_id(&self.0).map(|(_, stamp)| stamp));
        stamp.map(|stamp| stamp.version())
    }

    /// Whether it ends with a stamp that no other item of the queue has.
    pub(crate) fn is_stamped(&self) -> bool {
        self.pushed_at().is_some()
    }
}

impl From<Stamp> for ItemId {
    fn from(stamp: Stamp) -> ItemId {
        ItemId::in_partition(0, stamp)
    }
}

impl fmt::Display for ItemId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match split_partition(&self.0) {
            Some((0, stamp)) => stamp.fmt(f),
            Some((partition, stamp)) => write!(f, "{stamp}-{partition}"),
            None => {
                f.write_str("x")?;
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}

impl fmt::Debug for ItemId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ItemId({self})")
    }
}

impl FromStr for ItemId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<ItemId, ParseIdError> {
        let refused = || ParseIdError { text: text.to_owned() };
        let Some(digits) = text.strip_prefix('x') else {
            let (stamp, partition) = text.split_once('-').unwrap_or((text, "0"));
            let stamp = stamp.parse::<Stamp>().map_err(|_| refused())?;
            let number: u8 = partition.parse().map_err(|_| refused())?;
            let id = ItemId::in_partition(number, stamp);
            // An item has one name.
            return if id.to_string().eq_ignore_ascii_case(text) { Ok(id) } else { Err(refused()) };
        };
        let plain = digits.bytes().all(|b| b.is_ascii_hexdigit());
        if digits.is_empty() || digits.len() % 2 != 0 || !plain {
            return Err(refused());
        }
        let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).map_err(|_| refused());
        let bytes: Result<Vec<u8>, _> = (0..digits.len()).step_by(2).map(byte).collect();
        Ok(ItemId(bytes?.into()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_malformed_item_id_is_refused() {
        let stamp = "000000000000010200030405";
        let parted = ["-", "-0", "-01", "-+1", "-256", "-1-1"].map(|end| format!("{stamp}{end}"));
        let others = ["", "x", "x1", "xzz", "x+1", "0000", "é", "-1"].map(String::from);
        for text in parted.into_iter().chain(others) {
            assert_eq!(text.parse::<ItemId>(), Err(ParseIdError { text }));
        }
    }

    proptest! {
        #[test]
        fn text_round_trips(bytes in prop::collection::vec(any::<u8>(), 1..40), stamp: [u8; Stamp::LEN], partition: u8) {
            let id = ItemId::new(bytes.into());
            prop_assert_eq!(id.to_string().parse(), Ok(id));
            let id = ItemId::in_partition(partition, Stamp::from(stamp));
            prop_assert_eq!(id.to_string().parse(), Ok(id));
            let id = ItemId::from(Stamp::from(stamp));
            prop_assert_eq!(id.to_string(), Stamp::from(stamp).to_string());
            prop_assert_eq!(id.to_string().parse(), Ok(id));
        }
    }
}
