//! The batches that running items have joined, in the header of their lease.
//!
//! The holder of a lease knows its items as they were when they were fetched, and reads the header with whatever it does. So it finds in there what
//! items joined meanwhile. Encoded: how many there are (u32), and of each the item's index in the lease (u32), a length (u32) and the batch.

use bytes::Bytes;

use super::meta;
use crate::model::item_batch::BatchId;

/// The batches that items of a lease have joined, each with the item's index.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Joined(Vec<(u32, BatchId)>);

impl Joined {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them.
    pub(crate) fn batches(&self) -> impl Iterator<Item = &BatchId> {
        self.0.iter().map(|(_, batch)| batch)
    }

    /// Adds a batch to an item.
    pub(crate) fn insert(&mut self, index: u32, batch: &BatchId) {
        self.0.push((index, batch.clone()));
    }

    /// The side record of an item, with the batches that it has joined. The record may have some of them already.
    pub(crate) fn record_of(&self, index: usize, record: &Bytes) -> Bytes {
        let mut joined = self.0.iter().filter(|(of, _)| *of as usize == index).peekable();
        if joined.peek().is_none() {
            return record.clone();
        }
        let mut record = record.to_vec();
        joined.for_each(|(_, batch)| meta::add_batch(&mut record, batch));
        record.into()
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let number =
            |n: usize| u32::try_from(n).expect("headers are bounded far below 2^32 bytes").to_le_bytes();
        out.extend_from_slice(&number(self.0.len()));
        for (index, batch) in &self.0 {
            out.extend_from_slice(&index.to_le_bytes());
            out.extend_from_slice(&number(batch.as_bytes().len()));
            out.extend_from_slice(batch.as_bytes());
        }
    }

    /// What a header begins with, and the rest of it; `None` if it is of another layout.
    pub(super) fn split(value: &[u8]) -> Option<(Joined, &[u8])> {
        let (count, mut rest) = split_number(value)?;
        let mut joined = Joined::default();
        for _ in 0..count {
            let (index, behind) = split_number(rest)?;
            let (len, behind) = split_number(behind)?;
            let (batch, behind) = behind.split_at_checked(len as usize)?;
            joined.0.push((index, BatchId::from_bytes(batch)?));
            rest = behind;
        }
        Some((joined, rest))
    }
}

fn split_number(value: &[u8]) -> Option<(u32, &[u8])> {
    let (number, rest) = value.split_first_chunk::<4>()?;
    Some((u32::from_le_bytes(*number), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_has_the_batches_that_it_joined_once() {
        let (one, two) = (BatchId::with_unique(b"q", [1; 16]), BatchId::with_unique(b"q", [2; 16]));
        let mut joined = Joined::default();
        joined.insert(3, &one);
        joined.insert(3, &two);
        joined.insert(4, &two);
        let batches = |record: &[u8]| meta::decode(record).expect("it is a record").batches;
        let record = joined.record_of(3, &Bytes::new());
        assert_eq!(batches(&record), [one.clone(), two.clone()]);
        assert_eq!(joined.record_of(3, &record), record);
        assert_eq!(batches(&joined.record_of(4, &Bytes::new())), [two]);
        assert_eq!(joined.record_of(5, &Bytes::new()), Bytes::new());
    }
}
