//! The format of a record in the log, which holds one batch.
//!
//! ```text
//!  0  magic                                 all numbers are little endian
//!  8  the log's id, the checkpoint's LSN, the batch's LSN
//! 32  length of the body (48 bits), and the number of batches right before this one that were not flushed when it
//!     was written (16 bits); checksum of the body
//! 48  checksum of the bytes before it and of the record's offset in the file
//! 64  the body: entries, one after the other
//! ```
//! An entry is a letter and its strings of bytes, each preceded by its length in four bytes. A
//! record begins at a multiple of [`SECTOR`], and at a multiple of [`BLOCK`] if all records before
//! it are flushed. So a block with a flushed record is never written again, and a block that a
//! power failure destroys held none.

use twox_hash::XxHash3_64;

use crate::engine::atomic::AtomicOp;
use crate::engine::mutation::Mutation;
use crate::engine::storage::batch::WriteBatch;

/// Records begin at multiples of this.
pub const SECTOR: usize = 512;
/// The unit in which the operating system writes. A power failure during a write may destroy all of
/// it.
pub const BLOCK: usize = 4096;
/// Bytes before the body.
pub const HEADER: usize = 64;
const MAGIC: [u8; 8] = *b"\xfdfdb-log";

/// Bits of a body's length. The bits above count the batches that had not been flushed.
const LEN_BITS: u32 = 48;

const CEILING: u8 = b'v';
const SET: u8 = b's';
const CLEAR: u8 = b'c';
const ATOMIC: u8 = b'a';

/// The header of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The id of its log.
    pub id: u64,
    /// The LSN of the checkpoint at which the log was restarted.
    pub checkpoint_lsn: u64,
    /// The LSN of the batch.
    pub lsn: u64,
    /// The number of batches right before it that were not flushed when it was written.
    pub unflushed: u16,
    /// Bytes of the body, below 2^48.
    pub len: u64,
    /// The body's checksum.
    pub sum: u64,
}

/// The position of a batch in the log.
#[derive(Debug, Clone, Copy)]
pub struct RecordPosition {
    /// The log's id.
    pub id: u64,
    /// The LSN of the checkpoint at which the log was restarted.
    pub checkpoint_lsn: u64,
    /// The LSN of the batch.
    pub lsn: u64,
    /// The number of batches right before it that are not flushed yet.
    pub unflushed: u16,
    /// The offset of its record.
    pub offset: u64,
}

/// Bytes that a batch takes in the log: whole sectors.
pub fn space(batch: &WriteBatch) -> u64 {
    let of_one = |mutation: &Mutation| 10 + mutation.payload_len();
    let body = 9 + batch.mutations.iter().map(of_one).sum::<usize>();
    (HEADER + body).next_multiple_of(SECTOR) as u64
}

/// Encodes the record of a batch into `out`, in whole sectors.
pub fn encode(position: RecordPosition, batch: &WriteBatch, out: &mut Vec<u8>) {
    out.clear();
    out.resize(HEADER, 0);
    if let Some(ceiling) = batch.ceiling {
        out.push(CEILING);
        out.extend_from_slice(&ceiling.to_le_bytes());
    }
    batch.mutations.iter().for_each(|mutation| put(mutation, out));
    let body = &out[HEADER..];
    let RecordPosition { id, checkpoint_lsn, lsn, unflushed, offset } = position;
    let (len, sum) = (body.len() as u64, XxHash3_64::oneshot(body));
    let header = Header { id, checkpoint_lsn, lsn, unflushed, len, sum }.encode(offset);
    out[..HEADER].copy_from_slice(&header);
    out.resize(out.len().next_multiple_of(SECTOR), 0);
}

fn put(mutation: &Mutation, out: &mut Vec<u8>) {
    match mutation {
        Mutation::Set { key, value } => {
            out.push(SET);
            put_pair(key, value, out);
        }
        Mutation::ClearRange { begin, end } => {
            out.push(CLEAR);
            put_pair(begin, end, out);
        }
        Mutation::Atomic { op, key, operand } => {
            out.extend_from_slice(&[ATOMIC, op.code()]);
            put_pair(key, operand, out);
        }
        Mutation::StampedKey { .. } | Mutation::StampedValue { .. } => {
            unreachable!("the committer stamps mutations before they are stored")
        }
    }
}

fn put_pair(a: &[u8], b: &[u8], out: &mut Vec<u8>) {
    for bytes in [a, b] {
        let len = u32::try_from(bytes.len()).expect("a transaction is below 4 GiB");
        out.extend_from_slice(&len.to_le_bytes());
        out.extend_from_slice(bytes);
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

impl Header {
    fn encode(&self, offset: u64) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        let len = self.len | u64::from(self.unflushed) << LEN_BITS;
        let fields = [self.id, self.checkpoint_lsn, self.lsn, len, self.sum];
        bytes[..8].copy_from_slice(&MAGIC);
        for (field, out) in fields.iter().zip(bytes[8..].chunks_exact_mut(8)) {
            out.copy_from_slice(&field.to_le_bytes());
        }
        let check = XxHash3_64::oneshot_with_seed(offset, &bytes[..48]);
        bytes[48..56].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// The header at `offset` of the log `bytes`, if its checksum matches.
    pub fn parse(bytes: &[u8], offset: usize) -> Option<Header> {
        let bytes = bytes.get(offset..offset + HEADER)?;
        let len = u64_at(bytes, 32);
        let is_whole = bytes.starts_with(&MAGIC)
            && u64_at(bytes, 48) == XxHash3_64::oneshot_with_seed(offset as u64, &bytes[..48]);
        is_whole.then(|| Header {
            id: u64_at(bytes, 8),
            checkpoint_lsn: u64_at(bytes, 16),
            lsn: u64_at(bytes, 24),
            unflushed: (len >> LEN_BITS) as u16,
            len: len & ((1 << LEN_BITS) - 1),
            sum: u64_at(bytes, 40),
        })
    }

    /// The body, if it is complete and matches its checksum.
    pub fn body<'a>(&self, bytes: &'a [u8], offset: usize) -> Option<&'a [u8]> {
        let len = usize::try_from(self.len).ok()?;
        let body = bytes.get(offset + HEADER..)?.get(..len)?;
        (XxHash3_64::oneshot(body) == self.sum).then_some(body)
    }
}

/// Decodes a body into the ceiling and the mutations; `None` if it is malformed.
pub fn decode(body: &[u8]) -> Option<(Option<i64>, Vec<Mutation>)> {
    let mut rest = body;
    let (mut ceiling, mut mutations) = (None, Vec::new());
    while let Some((kind, after)) = rest.split_first() {
        rest = after;
        match *kind {
            CEILING => ceiling = Some(i64::from_le_bytes(*take(&mut rest)?)),
            SET => mutations.push(Mutation::Set { key: string(&mut rest)?, value: string(&mut rest)? }),
            CLEAR => {
                mutations.push(Mutation::ClearRange { begin: string(&mut rest)?, end: string(&mut rest)? });
            }
            ATOMIC => {
                let [code] = *take(&mut rest)?;
                let op = AtomicOp::from_code(code.into())?;
                let (key, operand) = (string(&mut rest)?, string(&mut rest)?);
                mutations.push(Mutation::Atomic { op, key, operand });
            }
            _ => return None,
        }
    }
    Some((ceiling, mutations))
}

fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (taken, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(taken)
}

fn string(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let len = usize::try_from(u32::from_le_bytes(*take(rest)?)).ok()?;
    let (taken, after) = rest.split_at_checked(len)?;
    *rest = after;
    Some(taken.to_vec())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn mutation() -> impl Strategy<Value = Mutation> {
        let bytes = || prop::collection::vec(any::<u8>(), 0..700);
        prop_oneof![
            (bytes(), bytes()).prop_map(|(key, value)| Mutation::Set { key, value }),
            (bytes(), bytes()).prop_map(|(begin, end)| Mutation::ClearRange { begin, end }),
            (0..=20_i32, bytes(), bytes()).prop_filter_map("no operation", |(code, key, operand)| {
                Some(Mutation::Atomic { op: AtomicOp::from_code(code)?, key, operand })
            }),
        ]
    }

    proptest! {
        #[test]
        fn records_round_trip_and_fit_the_computed_space(
            mutations in prop::collection::vec(mutation(), 0..9),
            ceiling: Option<i64>,
            sector in 0..4_usize,
            unflushed: u16,
        ) {
            let batch = WriteBatch { version: 1, ceiling, mutations };
            let offset = sector * SECTOR;
            let mut record = Vec::new();
            let position = RecordPosition { id: 7, checkpoint_lsn: 8, lsn: 9, unflushed, offset: offset as u64 };
            encode(position, &batch, &mut record);
            prop_assert!(record.len() as u64 <= space(&batch));
            let mut log = vec![0; offset];
            log.extend_from_slice(&record);
            let header = Header::parse(&log, offset).unwrap();
            prop_assert_eq!((header.id, header.checkpoint_lsn, header.lsn), (7, 8, 9));
            prop_assert_eq!(header.unflushed, unflushed);
            let body = header.body(&log, offset).unwrap();
            prop_assert_eq!(decode(body), Some((batch.ceiling, batch.mutations)));
            prop_assert_eq!(Header::parse(&record, offset + SECTOR), None, "it lies in one offset only");
        }

        #[test]
        fn decoding_a_record_of_any_bytes_does_not_panic(body in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&body);
            let _ = Header::parse(&body, 0).map(|header| header.body(&body, 0).is_some());
        }
    }

    #[test]
    fn record_layout_matches_the_documentation() {
        let set = Mutation::Set { key: b"k".to_vec(), value: b"vv".to_vec() };
        let add = Mutation::Atomic { op: AtomicOp::Add, key: b"n".to_vec(), operand: vec![1] };
        let clear = Mutation::ClearRange { begin: b"a".to_vec(), end: b"b".to_vec() };
        let batch = WriteBatch { version: 5, ceiling: Some(0x0102), mutations: vec![set, add, clear] };
        let mut record = Vec::new();
        let position =
            RecordPosition { id: 0x11, checkpoint_lsn: 0x22, lsn: 0x33, unflushed: 0x44, offset: 0 };
        encode(position, &batch, &mut record);
        assert_eq!(record.len(), 512);
        assert_eq!(record[..8], *b"\xfdfdb-log");
        assert_eq!([u64_at(&record, 8), u64_at(&record, 16), u64_at(&record, 24)], [0x11, 0x22, 0x33]);
        let body = b"v\x02\x01\0\0\0\0\0\0s\x01\0\0\0k\x02\0\0\0vva\x02\x01\0\0\0n\x01\0\0\0\x01c\x01\0\0\0a\x01\0\0\0b";
        assert_eq!(u64_at(&record, 32), body.len() as u64 | 0x44 << 48);
        assert_eq!(record[64..64 + body.len()], body[..]);
        assert_eq!(u64_at(&record, 40), XxHash3_64::oneshot(body));
        assert!(record[56..64].iter().chain(&record[64 + body.len()..]).all(|byte| *byte == 0));
    }
}
