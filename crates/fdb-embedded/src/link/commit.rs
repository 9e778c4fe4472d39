//! The message of a commit from a guest to its host.

use super::wire::{Malformed, Reader, Writer};
use crate::engine::atomic::AtomicOp;
use crate::engine::mutation::{Mutation, STAMP_LEN};
use crate::engine::{CommitPromise, CommitRequest, Durability};
use crate::range_set::KeyRange;

/// The read version of a commit. `V` identifies a view: the view itself, or its id in the
/// connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitBase<V> {
    /// The newest version when the host receives it: the transaction has read nothing.
    Newest,
    /// A version chosen by the client.
    Version(i64),
    /// The version of a view.
    View(V),
}

/// A transaction to commit. See `engine::CommitRequest` for the fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitMessage<V> {
    pub base: CommitBase<V>,
    pub reads: Vec<KeyRange>,
    pub report_conflicts: bool,
    pub writes: Vec<KeyRange>,
    pub mutations: Vec<Mutation>,
    pub durability: Durability,
}

impl<V> CommitMessage<V> {
    /// The request to this process's engine.
    pub(super) fn request(self, read_version: i64, promise: CommitPromise) -> CommitRequest {
        let CommitMessage { reads, report_conflicts, writes, mutations, durability, .. } = self;
        CommitRequest {
            read_version,
            reads,
            report_conflicts,
            writes,
            mutations,
            durability,
            fault: None,
            promise,
        }
    }

    /// The same with another identification of the view.
    pub(super) fn with_base<W>(self, base: CommitBase<W>) -> CommitMessage<W> {
        let CommitMessage { reads, report_conflicts, writes, mutations, durability, .. } = self;
        CommitMessage { base, reads, report_conflicts, writes, mutations, durability }
    }
}

impl CommitMessage<u64> {
    pub(super) fn encode(&self, w: &mut Writer<'_>) {
        match self.base {
            CommitBase::Newest => w.u8(0),
            CommitBase::Version(version) => {
                w.u8(1);
                w.i64(version);
            }
            CommitBase::View(view) => {
                w.u8(2);
                w.u64(view);
            }
        }
        w.bool(self.report_conflicts);
        w.bool(self.durability == Durability::Asynchronous);
        w.ranges(&self.reads);
        w.ranges(&self.writes);
        w.count(self.mutations.len());
        for mutation in &self.mutations {
            encode_mutation(w, mutation);
        }
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<CommitMessage<u64>, Malformed> {
        let base = match r.u8()? {
            0 => CommitBase::Newest,
            1 => CommitBase::Version(r.i64()?),
            2 => CommitBase::View(r.u64()?),
            _ => return Err(Malformed("a commit's base is not known")),
        };
        let report_conflicts = r.bool()?;
        let durability = if r.bool()? { Durability::Asynchronous } else { Durability::Flushed };
        let (reads, writes) = (r.ranges()?, r.ranges()?);
        let count = r.count(9)?;
        let mutations = (0..count).map(|_| decode_mutation(r)).collect::<Result<_, _>>()?;
        Ok(CommitMessage { base, reads, report_conflicts, writes, mutations, durability })
    }
}

/// Kinds of mutations that are not atomic operations, whose codes are below 32.
const SET: u8 = 32;
const CLEAR_RANGE: u8 = 33;
const STAMPED_KEY: u8 = 34;
const STAMPED_VALUE: u8 = 35;

fn encode_mutation(w: &mut Writer<'_>, mutation: &Mutation) {
    let (kind, a, b, offset) = match mutation {
        Mutation::Set { key, value } => (SET, key, value, None),
        Mutation::ClearRange { begin, end } => (CLEAR_RANGE, begin, end, None),
        Mutation::Atomic { op, key, operand } => (op.code(), key, operand, None),
        Mutation::StampedKey { key, offset, value } => (STAMPED_KEY, key, value, Some(offset)),
        Mutation::StampedValue { key, value, offset } => (STAMPED_VALUE, key, value, Some(offset)),
    };
    w.u8(kind);
    w.bytes(a);
    w.bytes(b);
    offset.into_iter().for_each(|offset| w.count(*offset));
}

fn decode_mutation(r: &mut Reader<'_>) -> Result<Mutation, Malformed> {
    let kind = r.u8()?;
    let key = r.key()?.to_vec();
    if kind == CLEAR_RANGE {
        return Ok(Mutation::ClearRange { begin: key, end: r.key()?.to_vec() });
    }
    let value = r.value()?.to_vec();
    match kind {
        SET => Ok(Mutation::Set { key, value }),
        STAMPED_KEY => Ok(Mutation::StampedKey { offset: stamp_offset(r, &key)?, key, value }),
        STAMPED_VALUE => Ok(Mutation::StampedValue { offset: stamp_offset(r, &value)?, key, value }),
        code => {
            // The C API has two codes for some operations; here only one is valid.
            let op = AtomicOp::from_code(i32::from(code)).filter(|op| op.code() == code);
            let op = op.ok_or(Malformed("a mutation is not known"))?;
            Ok(Mutation::Atomic { op, key, operand: value })
        }
    }
}

/// The offset of a versionstamp, which must lie inside `bytes`.
fn stamp_offset(r: &mut Reader<'_>, bytes: &[u8]) -> Result<usize, Malformed> {
    let offset = usize::try_from(r.u32()?).map_err(|_| Malformed("a versionstamp's place is too far"))?;
    let fits = offset.checked_add(STAMP_LEN).is_some_and(|end| end <= bytes.len());
    if fits { Ok(offset) } else { Err(Malformed("a versionstamp does not fit")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mutation_kind_has_one_encoding() {
        for kind in 0..=u8::MAX {
            let mut frame = Vec::new();
            let mut w = Writer(&mut frame);
            w.u8(kind);
            w.bytes(b"k");
            w.bytes(b"v");
            if let Ok(mutation) = decode_mutation(&mut Reader(&frame)) {
                let mut again = Vec::new();
                encode_mutation(&mut Writer(&mut again), &mutation);
                assert_eq!(again, frame);
            }
        }
    }
}
