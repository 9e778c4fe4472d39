//! The writes of a transaction to one key.

use smallvec::SmallVec;

use super::template::template;
use crate::engine::atomic::AtomicOp;
use crate::engine::mutation::Mutation;
use crate::error::{Code, Result};

/// The value on which the operations on a key build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum BaseValue {
    /// The value in the database.
    Snapshot,
    /// No value: the transaction has cleared the key.
    Absent,
    /// A value that the transaction has set.
    Value(Vec<u8>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum KeyOp {
    /// Set after an operation whose result is not known before the commit.
    Set(Vec<u8>),
    Atomic(AtomicOp, Vec<u8>),
    StampedValue {
        value: Vec<u8>,
        offset: usize,
    },
}

impl KeyOp {
    fn mutation(self, key: Vec<u8>) -> Mutation {
        match self {
            KeyOp::Set(value) => Mutation::Set { key, value },
            KeyOp::Atomic(op, operand) => Mutation::Atomic { op, key, operand },
            KeyOp::StampedValue { value, offset } => Mutation::StampedValue { key, value, offset },
        }
    }

    fn shape(&self, key: usize) -> Shape {
        let (kind, value) = match self {
            KeyOp::Set(value) => (ShapeKind::Set, value),
            KeyOp::Atomic(_, operand) => (ShapeKind::Atomic, operand),
            KeyOp::StampedValue { value, .. } => (ShapeKind::StampedValue, value),
        };
        Shape { kind, key, value: value.len() }
    }
}

/// All writes to one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyWrites {
    pub(super) base: BaseValue,
    /// Most keys have at most one.
    pub(super) ops: SmallVec<[KeyOp; 1]>,
}

impl KeyWrites {
    /// True if the value depends on the database.
    #[must_use]
    pub fn is_dependent(&self) -> bool {
        self.base == BaseValue::Snapshot
    }

    /// The value on top of `stored`, the one in the database. A value that lacks its versionstamp
    /// is returned as given, with the offset. As in FoundationDB, an operation on such a value
    /// fails.
    pub fn value(&self, stored: Option<Vec<u8>>) -> Result<Option<Vec<u8>>> {
        let mut value = match &self.base {
            BaseValue::Snapshot => stored,
            BaseValue::Absent => None,
            BaseValue::Value(value) => Some(value.clone()),
        };
        let mut lacks_stamp = false;
        for op in &self.ops {
            value = match op {
                KeyOp::Set(value) => Some(value.clone()),
                KeyOp::Atomic(..) if lacks_stamp => return Err(Code::OPERATION_FAILED),
                KeyOp::Atomic(op, operand) => op.apply(value.as_deref(), operand),
                KeyOp::StampedValue { value, offset } => Some(template(value.clone(), *offset)),
            };
            lacks_stamp = matches!(op, KeyOp::StampedValue { .. });
        }
        Ok(value)
    }

    pub(super) fn set(&mut self, value: &[u8]) {
        *self = KeyWrites { base: BaseValue::Value(value.to_vec()), ops: SmallVec::new() };
    }

    /// Adds an operation. Combines it with the previous one if that gives the same result.
    pub(super) fn atomic(&mut self, op: AtomicOp, operand: &[u8]) {
        let known = match &self.base {
            BaseValue::Absent => Some(None),
            BaseValue::Value(value) => Some(Some(value.as_slice())),
            BaseValue::Snapshot => None,
        };
        match (known, self.ops.last_mut()) {
            (Some(value), None) => {
                self.base = op.apply(value, operand).map_or(BaseValue::Absent, BaseValue::Value);
            }
            (_, Some(KeyOp::Atomic(last, first))) if *last == op && op.is_chain(first, operand) => {
                *first = op.apply(Some(first), operand).unwrap_or_default();
            }
            _ => self.ops.push(KeyOp::Atomic(op, operand.to_vec())),
        }
    }

    /// Appends the mutations to send for `key`, in order.
    pub(super) fn send(mut self, key: Vec<u8>, mutations: &mut Vec<Mutation>) {
        let last = self.ops.pop();
        if let BaseValue::Value(value) = self.base {
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
            BaseValue::Value(value) => Some(Shape { kind: ShapeKind::Set, key, value: value.len() }),
            BaseValue::Absent | BaseValue::Snapshot => None,
        };
        base.into_iter().chain(self.ops.iter().map(move |op| op.shape(key)))
    }
}

/// The properties of a mutation of one key on which its size and cost depend.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub kind: ShapeKind,
    /// Bytes of the key.
    pub key: usize,
    /// Bytes of the value or operand.
    pub value: usize,
}

impl Shape {
    /// The shape of a mutation; `None` for a clear.
    pub fn of(mutation: &Mutation) -> Option<Shape> {
        let (kind, key, value) = match mutation {
            Mutation::Set { key, value } => (ShapeKind::Set, key, value),
            Mutation::Atomic { key, operand, .. } => (ShapeKind::Atomic, key, operand),
            Mutation::StampedKey { key, value, .. } => (ShapeKind::StampedKey, key, value),
            Mutation::StampedValue { key, value, .. } => (ShapeKind::StampedValue, key, value),
            Mutation::ClearRange { .. } => return None,
        };
        Some(Shape { kind, key: key.len(), value: value.len() })
    }
}

/// The kind of a mutation of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShapeKind {
    Set,
    Atomic,
    StampedKey,
    StampedValue,
}
