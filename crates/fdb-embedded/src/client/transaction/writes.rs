//! Writes, conflict ranges and options.

use std::sync::Arc;

use super::{
    METADATA_VERSION, METADATA_VERSION_END, Transaction, TransactionState, conflict_size, key_conflict_size,
    mutation_size,
};
use crate::client::special_keys;
use crate::client::write_map::{WriteMap, stamped_range};
use crate::engine::atomic::AtomicOp;
use crate::engine::mutation::{Mutation, STAMP_LEN};
use crate::error::{Code, Result};
use crate::limits::{MAX_VALUE, clamp_bound, exceeds_key_limit, key_limit};
use crate::options::TransactionOptions;
use crate::range_set::key_after;

/// Mutation type: the key gets the versionstamp.
const SET_VERSIONSTAMPED_KEY: i32 = 14;
/// Mutation type: the value gets the versionstamp.
const SET_VERSIONSTAMPED_VALUE: i32 = 15;
/// The option that sets a timeout.
const TIMEOUT: i32 = 500;
/// The length in bytes of a versionstamp's offset, which is at the end, little-endian.
const OFFSET_LEN: usize = 4;

/// The kind of a conflict range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConflictKind {
    /// As if the range had been read.
    Read,
    /// As if the range had been written.
    Write,
}

impl Transaction {
    /// Sets a key.
    pub fn set(&self, key: &[u8], value: &[u8]) {
        if special_keys::is_special(key) {
            return self.set_special(key, value);
        }
        self.apply(|state| {
            if key == METADATA_VERSION {
                return Err(Code::CLIENT_INVALID_OPERATION);
            }
            let conflicts = state.takes_conflict();
            state.check_key(key)?;
            state.check_lengths(key, value)?;
            state.fire_own_watches(|watch| watch.key == key && watch.is_changed_by(Some(value)));
            state.put(key, value, conflicts);
            Ok(())
        });
    }

    /// Applies a mutation, given by its type code.
    pub fn atomic_op(&self, key: &[u8], operand: &[u8], code: i32) {
        self.apply(|state| {
            let conflicts = state.takes_conflict();
            if key != METADATA_VERSION {
                state.check_key(key)?;
            } else if code != SET_VERSIONSTAMPED_VALUE || operand != [0; STAMP_LEN + OFFSET_LEN] {
                return Err(Code::CLIENT_INVALID_OPERATION);
            }
            let op = AtomicOp::from_code(code);
            if op.is_none() && code != SET_VERSIONSTAMPED_KEY && code != SET_VERSIONSTAMPED_VALUE {
                return Err(Code::INVALID_MUTATION_TYPE);
            }
            state.check_lengths(key, operand)?;
            match op {
                Some(op) => {
                    state.count_write(key, operand, conflicts);
                    state.add_atomic(op, key, operand);
                }
                None if code == SET_VERSIONSTAMPED_KEY => state.add_stamped_key(key, operand)?,
                None => state.add_stamped_value(key, operand, conflicts)?,
            }
            state.fire_own_watches(|watch| watch.key == key);
            Ok(())
        });
    }

    /// Clears one key.
    pub fn clear(&self, key: &[u8]) {
        if special_keys::is_special(key) {
            return self.clear_special(|session| session.clear(key));
        }
        self.apply(|state| {
            let conflicts = state.takes_conflict();
            if key >= state.max_write_key() {
                return Err(Code::KEY_OUTSIDE_LEGAL_RANGE);
            }
            if exceeds_key_limit(key) {
                return Ok(());
            }
            let after = key_after(key);
            if !state.options.ryw_disabled {
                // FoundationDB counts a range here, not a mutation.
                state.size += conflict_size(key, &after);
                state.size += if conflicts { conflict_size(key, &after) } else { 0 };
            }
            state.add_clear(key, &after, conflicts);
            Ok(())
        });
    }

    /// Clears `[begin, end)`.
    pub fn clear_range(&self, begin: &[u8], end: &[u8]) {
        if special_keys::is_special_range(begin, end) {
            return self.clear_special(|session| session.clear_range(begin, end));
        }
        if begin > end {
            return self.apply_always(|_| Err(Code::INVERTED_RANGE));
        }
        self.apply(|state| {
            let conflicts = state.takes_conflict();
            let max = state.max_write_key();
            if begin > max || end > max {
                return Err(Code::KEY_OUTSIDE_LEGAL_RANGE);
            }
            state.size += mutation_size(begin, end);
            state.size += if conflicts { conflict_size(begin, end) } else { 0 };
            state.add_clear(clamp_bound(begin), clamp_bound(end), conflicts);
            Ok(())
        });
    }

    /// Adds a conflict range explicitly.
    pub fn add_conflict_range(&self, begin: &[u8], end: &[u8], kind: ConflictKind) -> Result<()> {
        if begin > end {
            return Err(Code::INVERTED_RANGE);
        }
        self.apply(|state| {
            let max = match kind {
                ConflictKind::Read => state.max_read_key(),
                ConflictKind::Write => state.max_write_key(),
            };
            let is_metadata = begin == METADATA_VERSION && end == METADATA_VERSION_END;
            let is_exempt = is_metadata && kind == ConflictKind::Read;
            if (begin > max || end > max) && !is_exempt {
                return Err(Code::KEY_OUTSIDE_LEGAL_RANGE);
            }
            let (begin, end) = (clamp_bound(begin), clamp_bound(end));
            if begin >= end {
                return Ok(());
            }
            if kind == ConflictKind::Write || state.options.ryw_disabled {
                state.size += conflict_size(begin, end);
                state.plain_size += conflict_size(begin, end);
            }
            match kind {
                ConflictKind::Read => state.add_read_conflict((begin.to_vec(), end.to_vec())),
                ConflictKind::Write => state.write_conflicts.cover(begin, end),
            }
            Ok(())
        });
        Ok(())
    }

    /// Sets an option. Only an unknown code fails here; the next call reports an invalid value.
    pub fn set_option(self: &Arc<Self>, code: i32, value: Option<&[u8]>) -> Result<()> {
        if !TransactionOptions::is_known(code) {
            return Err(Code::INVALID_OPTION);
        }
        self.apply_always(|state| {
            // A transaction that has timed out stays so.
            let was_over = state.check_alive().is_err();
            let touched = state.has_been_used();
            let set = state.options.set(code, value, touched);
            if set.is_ok() && code == TIMEOUT && !was_over {
                self.restart_timer(state);
            }
            set
        });
        Ok(())
    }
}

impl TransactionState {
    /// The writes, mutable. SuspendedRead reads keep a copy of the earlier ones.
    fn writes_mut(&mut self) -> &mut WriteMap {
        Arc::make_mut(&mut self.writes)
    }

    /// True if the next write adds a conflict range. Consumes a one-time exemption.
    fn takes_conflict(&mut self) -> bool {
        !std::mem::take(&mut self.options.next_write_no_conflict)
    }

    fn check_key(&self, key: &[u8]) -> Result<()> {
        if key < self.max_write_key() { Ok(()) } else { Err(Code::KEY_OUTSIDE_LEGAL_RANGE) }
    }

    fn check_lengths(&self, key: &[u8], value: &[u8]) -> Result<()> {
        if key.len() > key_limit(key, self.has_raw_access()) {
            return Err(Code::KEY_TOO_LARGE);
        }
        if value.len() > MAX_VALUE { Err(Code::VALUE_TOO_LARGE) } else { Ok(()) }
    }

    /// Counts a write to a key, and adds its conflict range.
    fn count_write(&mut self, key: &[u8], value: &[u8], conflicts: bool) {
        self.count(mutation_size(key, value));
        if conflicts {
            self.count(key_conflict_size(key));
            self.write_conflicts.insert_key(key);
        }
    }

    /// Sets a key that was validated.
    pub(super) fn put(&mut self, key: &[u8], value: &[u8], conflicts: bool) {
        self.count_write(key, value, conflicts);
        if self.options.ryw_disabled {
            self.writes_mut().send(Mutation::Set { key: key.to_vec(), value: value.to_vec() });
        } else {
            self.writes_mut().set(key, value);
        }
    }

    fn count(&mut self, size: i64) {
        self.size += size;
        self.plain_size += size;
    }

    fn add_atomic(&mut self, op: AtomicOp, key: &[u8], operand: &[u8]) {
        if self.options.ryw_disabled {
            let (key, operand) = (key.to_vec(), operand.to_vec());
            self.writes_mut().send(Mutation::Atomic { op, key, operand });
        } else {
            self.writes_mut().atomic(op, key, operand);
        }
    }

    fn add_stamped_key(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let (stripped, offset) = split_stamp_offset(key)?;
        // The conflict range is that of the final key, which is known on commit.
        self.count(mutation_size(key, value));
        if self.options.ryw_disabled {
            let (key, value) = (stripped.to_vec(), value.to_vec());
            self.writes_mut().send(Mutation::StampedKey { key, offset, value });
        } else {
            let read_version = self.known_read_version().unwrap_or(0);
            let (begin, mut end) = stamped_range(stripped, offset, read_version);
            let max = self.max_read_key();
            if end.as_slice() > max {
                end = max.to_vec();
            }
            self.send_conflicts_early(&begin, &end);
            self.writes_mut().set_stamped_key((begin, end), offset, value);
        }
        Ok(())
    }

    /// Moves the write conflict ranges in `[begin, end)` to the ranges that are sent early.
    fn send_conflicts_early(&mut self, begin: &[u8], end: &[u8]) {
        if !self.write_conflicts.intersects(begin, end) {
            return;
        }
        let early = self.write_conflicts.intersecting(begin, end);
        early.for_each(|(b, e)| self.early_conflicts.cover(b.max(begin), e.min(end)));
        self.write_conflicts.remove(begin, end);
    }

    fn add_stamped_value(&mut self, key: &[u8], operand: &[u8], conflicts: bool) -> Result<()> {
        let (value, offset) = split_stamp_offset(operand)?;
        self.count_write(key, operand, conflicts);
        if self.options.ryw_disabled {
            let (key, value) = (key.to_vec(), value.to_vec());
            self.writes_mut().send(Mutation::StampedValue { key, value, offset });
        } else {
            self.writes_mut().set_stamped_value(key, value, offset);
        }
        Ok(())
    }

    fn add_clear(&mut self, begin: &[u8], end: &[u8], conflicts: bool) {
        if begin >= end {
            return;
        }
        self.fire_own_watches(|watch| {
            begin <= &watch.key[..] && &watch.key[..] < end && watch.is_changed_by(None)
        });
        self.plain_size += mutation_size(begin, end);
        if conflicts {
            self.plain_size += conflict_size(begin, end);
            self.write_conflicts.cover(begin, end);
        }
        if self.options.ryw_disabled {
            self.writes_mut().send(Mutation::ClearRange { begin: begin.to_vec(), end: end.to_vec() });
        } else {
            self.writes_mut().clear_range(begin, end);
        }
    }
}

/// Splits the offset of the versionstamp off a key or value, and validates it.
fn split_stamp_offset(bytes: &[u8]) -> Result<(&[u8], usize)> {
    let (rest, offset) = bytes.split_last_chunk::<OFFSET_LEN>().ok_or(Code::CLIENT_INVALID_OPERATION)?;
    let offset = usize::try_from(i32::from_le_bytes(*offset)).map_err(|_| Code::CLIENT_INVALID_OPERATION)?;
    if offset + STAMP_LEN > rest.len() {
        return Err(Code::CLIENT_INVALID_OPERATION);
    }
    Ok((rest, offset))
}
