//! What a transaction has written to one key.

use smallvec::SmallVec;

use super::template;
use crate::engine::atomic::AtomicOp;
use crate::engine::mutation::Mutation;
use crate::error::{Code, Result};

/// Where the value of a written key starts from, before the operations on top of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Base {
    /// The value in the database.
    Snapshot,
    /// No value: a clear of this transaction came first.
    Absent,
    /// A value that this transaction set.
    Value(Vec<u8>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Op {
    /// On top of an operation whose value is not known before the commit.
    Set(Vec<u8>),
    Atomic(AtomicOp, Vec<u8>),
    StampedValue {
        value: Vec<u8>,
        offset: usize,
    },
}

impl Op {
    fn mutation(self, key: Vec<u8>) -> Mutation {
        match self {
            Op::Set(value) => Mutation::Set { key, value },
            Op::Atomic(op, operand) => Mutation::Atomic { op, key, operand },
            Op::StampedValue { value, offset } => Mutation::StampedValue { key, value, offset },
        }
    }

    fn shape(&self, key: usize) -> Shape {
        let (kind, value) = match self {
            Op::Set(value) => (Kind::Set, value),
            Op::Atomic(_, operand) => (Kind::Atomic, operand),
            Op::StampedValue { value, .. } => (Kind::StampedValue, value),
        };
        Shape { kind, key, value: value.len() }
    }
}

/// All writes to one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyWrites {
    pub(super) base: Base,
    /// Few keys have more than one.
    pub(super) ops: SmallVec<[Op; 1]>,
}

impl KeyWrites {
    /// Does the value depend on what is in the database?
    #[must_use]
    pub fn is_dependent(&self) -> bool {
        self.base == Base::Snapshot
    }

    /// The value over `stored`, the one in the database. A value that still lacks its versionstamp is as it was given,
    /// place included; an operation on top of one fails, as it does in FoundationDB.
    pub fn value(&self, stored: Option<Vec<u8>>) -> Result<Option<Vec<u8>>> {
        let mut value = match &self.base {
            Base::Snapshot => stored,
            Base::Absent => None,
            Base::Value(value) => Some(value.clone()),
        };
        let mut lacks_stamp = false;
        for op in &self.ops {
            value = match op {
                Op::Set(value) => Some(value.clone()),
                Op::Atomic(..) if lacks_stamp => return Err(Code::OPERATION_FAILED),
                Op::Atomic(op, operand) => op.apply(value.as_deref(), operand),
                Op::StampedValue { value, offset } => Some(template(value.clone(), *offset)),
            };
            lacks_stamp = matches!(op, Op::StampedValue { .. });
        }
        Ok(value)
    }

    pub(super) fn set(&mut self, value: &[u8]) {
        *self = KeyWrites { base: Base::Value(value.to_vec()), ops: SmallVec::new() };
    }

    /// Adds an operation, put together with what is there where that comes to the same.
    pub(super) fn atomic(&mut self, op: AtomicOp, operand: &[u8]) {
        let known = match &self.base {
            Base::Absent => Some(None),
            Base::Value(value) => Some(Some(value.as_slice())),
            Base::Snapshot => None,
        };
        match (known, self.ops.last_mut()) {
            (Some(value), None) => self.base = op.apply(value, operand).map_or(Base::Absent, Base::Value),
            (_, Some(Op::Atomic(last, first))) if *last == op && op.is_chain(first, operand) => {
                *first = op.apply(Some(first), operand).unwrap_or_default();
            }
            _ => self.ops.push(Op::Atomic(op, operand.to_vec())),
        }
    }

    /// Appends the changes that are sent for it, in order.
    pub(super) fn send(mut self, key: Vec<u8>, mutations: &mut Vec<Mutation>) {
        let last = self.ops.pop();
        if let Base::Value(value) = self.base {
            match last {
                None => return mutations.push(Mutation::Set { key, value }),
                Some(_) => mutations.push(Mutation::Set { key: key.clone(), value }),
            }
        }
        mutations.extend(self.ops.into_iter().map(|op| op.mutation(key.clone())));
        mutations.extend(last.map(|op| op.mutation(key)));
    }

    pub(super) fn shapes(&self, key: usize) -> impl Iterator<Item = Shape> {
        let base = match &self.base {
            Base::Value(value) => Some(Shape { kind: Kind::Set, key, value: value.len() }),
            Base::Absent | Base::Snapshot => None,
        };
        base.into_iter().chain(self.ops.iter().map(move |op| op.shape(key)))
    }
}

/// What a change of one key is like: all that its size and its cost depend on.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub kind: Kind,
    /// Bytes of the key.
    pub key: usize,
    /// Bytes of the value or operand.
    pub value: usize,
}

impl Shape {
    /// That of a mutation, unless it is a clear.
    pub fn of(mutation: &Mutation) -> Option<Shape> {
        let (kind, key, value) = match mutation {
            Mutation::Set { key, value } => (Kind::Set, key, value),
            Mutation::Atomic { key, operand, .. } => (Kind::Atomic, key, operand),
            Mutation::StampedKey { key, value, .. } => (Kind::StampedKey, key, value),
            Mutation::StampedValue { key, value, .. } => (Kind::StampedValue, key, value),
            Mutation::ClearRange { .. } => return None,
        };
        Some(Shape { kind, key: key.len(), value: value.len() })
    }
}

/// What a change of one key does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Set,
    Atomic,
    StampedKey,
    StampedValue,
}
