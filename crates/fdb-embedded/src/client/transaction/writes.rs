//! Writing keys, adding conflict ranges, setting options.

use std::sync::Arc;

use super::{METADATA_VERSION, State, Transaction, conflict_size, mutation_size};
use crate::client::special_keys;
use crate::client::write_map::WriteMap;
use crate::engine::atomic::AtomicOp;
use crate::engine::mutation::STAMP_LEN;
use crate::error::{Code, Result};
use crate::limits::{MAX_VALUE, key_limit};
use crate::link::View;
use crate::options::TransactionOptions;
use crate::range_set::key_after;

/// Mutation type: the key gets the versionstamp.
const SET_VERSIONSTAMPED_KEY: i32 = 14;
/// Mutation type: the value gets the versionstamp.
const SET_VERSIONSTAMPED_VALUE: i32 = 15;
/// The place of a versionstamp is given by this many little-endian bytes at the end.
const OFFSET_LEN: usize = 4;

/// Which set of conflict ranges to add to.
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
            state.check_write(key, value)?;
            state.fire_own_watches(|watch| watch.key == key && watch.baseline.as_deref() != Some(value));
            state.add_key_write(key, value);
            state.writes_mut().set(key, value);
            Ok(())
        });
    }

    /// Applies a mutation by its type code.
    pub fn atomic_op(&self, key: &[u8], operand: &[u8], code: i32) {
        self.apply(|state| {
            if key == METADATA_VERSION
                && (code != SET_VERSIONSTAMPED_VALUE || operand != [0; STAMP_LEN + OFFSET_LEN])
            {
                return Err(Code::CLIENT_INVALID_OPERATION);
            }
            if key != METADATA_VERSION {
                state.check_write(key, operand)?;
            }
            match code {
                SET_VERSIONSTAMPED_KEY => self.set_stamped_key(state, key, operand)?,
                SET_VERSIONSTAMPED_VALUE => {
                    let (value, offset) = split_stamp_offset(operand)?;
                    state.add_key_write(key, operand);
                    state.writes_mut().set_stamped_value(key, value, offset);
                }
                _ => {
                    let op = AtomicOp::from_code(code).ok_or(Code::INVALID_MUTATION_TYPE)?;
                    state.add_key_write(key, operand);
                    state.writes_mut().atomic(op, key, operand);
                }
            }
            state.fire_own_watches(|watch| watch.key == key);
            Ok(())
        });
    }

    fn set_stamped_key(&self, state: &mut State, key: &[u8], value: &[u8]) -> Result<()> {
        let (stripped, offset) = split_stamp_offset(key)?;
        state.size += mutation_size(key, value);
        // The range that the client knows of; the final key is added when its stamp is known.
        state.options.next_write_no_conflict = false;
        let read_version = state.view.as_ref().and_then(View::known_version).unwrap_or(0);
        state.writes_mut().set_stamped_key(stripped, offset, value, read_version);
        Ok(())
    }

    /// Clears one key.
    pub fn clear(&self, key: &[u8]) {
        if special_keys::is_special(key) {
            return self.write_special(|session, _| session.clear(key));
        }
        self.apply(|state| {
            if key >= state.max_write_key() {
                return Err(Code::KEY_OUTSIDE_LEGAL_RANGE);
            }
            if key.len() > key_limit(key) {
                return Ok(());
            }
            state.add_clear(key, &key_after(key));
            Ok(())
        });
    }

    /// Clears `[begin, end)`.
    pub fn clear_range(&self, begin: &[u8], end: &[u8]) {
        if special_keys::is_special_range(begin, end) {
            return self.write_special(|session, _| session.clear_range(begin, end));
        }
        self.apply(|state| {
            if begin > end {
                return Err(Code::INVERTED_RANGE);
            }
            let max = state.max_write_key();
            if begin > max || end > max {
                return Err(Code::KEY_OUTSIDE_LEGAL_RANGE);
            }
            let cut = |key: &[u8]| key[..key.len().min(key_limit(key) + 1)].to_vec();
            let (begin, end) = (cut(begin), cut(end));
            if begin < end {
                state.add_clear(&begin, &end);
            }
            Ok(())
        });
    }

    /// Adds a conflict range by hand.
    pub fn add_conflict_range(&self, begin: &[u8], end: &[u8], kind: ConflictKind) -> Result<()> {
        if begin > end {
            return Err(Code::INVERTED_RANGE);
        }
        self.apply(|state| {
            let max = match kind {
                ConflictKind::Read => state.max_read_key(),
                ConflictKind::Write => state.max_write_key(),
            };
            if begin > max || end > max {
                return Err(Code::KEY_OUTSIDE_LEGAL_RANGE);
            }
            match kind {
                ConflictKind::Read => state.add_read_conflict((begin.to_vec(), end.to_vec())),
                ConflictKind::Write => {
                    state.size += conflict_size(begin, end);
                    state.write_conflicts.insert(begin.to_vec(), end.to_vec());
                }
            }
            Ok(())
        });
        Ok(())
    }

    /// Sets an option. Only an unknown code is an error here; a bad value is reported by the next call.
    pub fn set_option(&self, code: i32, value: Option<&[u8]>) -> Result<()> {
        if !TransactionOptions::is_known(code) {
            return Err(Code::INVALID_OPTION);
        }
        let mut state = self.state.lock();
        // A timeout that has passed is not undone by setting another; what it means for this call, the next one says.
        let _ = state.check_alive();
        let touched = state.is_touched();
        if let Err(code) = state.options.set(code, value, touched) {
            state.deferred.get_or_insert(code);
        }
        Ok(())
    }
}

impl State {
    /// The writes, to add to them; reads that wait for data keep what was written before them.
    fn writes_mut(&mut self) -> &mut WriteMap {
        Arc::make_mut(&mut self.writes)
    }

    fn check_write(&self, key: &[u8], value: &[u8]) -> Result<()> {
        if key >= self.max_write_key() {
            return Err(Code::KEY_OUTSIDE_LEGAL_RANGE);
        }
        let raw = if self.options.raw_access { 8 } else { 0 };
        if key.len() > key_limit(key) + raw {
            return Err(Code::KEY_TOO_LARGE);
        }
        if value.len() > MAX_VALUE { Err(Code::VALUE_TOO_LARGE) } else { Ok(()) }
    }

    /// Accounts for a write to one key, and adds its conflict range unless an option told it not to.
    fn add_key_write(&mut self, key: &[u8], value: &[u8]) {
        self.size += mutation_size(key, value);
        if !std::mem::take(&mut self.options.next_write_no_conflict) {
            let after = key_after(key);
            self.size += conflict_size(key, &after);
            self.write_conflicts.insert(key.to_vec(), after);
        }
    }

    fn add_clear(&mut self, begin: &[u8], end: &[u8]) {
        self.fire_own_watches(|watch| {
            watch.baseline.is_some() && begin <= &watch.key[..] && &watch.key[..] < end
        });
        self.size += mutation_size(begin, end);
        if !std::mem::take(&mut self.options.next_write_no_conflict) {
            self.size += conflict_size(begin, end);
            self.write_conflicts.insert(begin.to_vec(), end.to_vec());
        }
        self.writes_mut().clear_range(begin, end);
    }
}

/// Splits the place of the versionstamp off a key or value and checks it.
fn split_stamp_offset(bytes: &[u8]) -> Result<(&[u8], usize)> {
    let (rest, offset) = bytes.split_last_chunk::<OFFSET_LEN>().ok_or(Code::CLIENT_INVALID_OPERATION)?;
    let offset = usize::try_from(i32::from_le_bytes(*offset)).map_err(|_| Code::CLIENT_INVALID_OPERATION)?;
    if offset + STAMP_LEN > rest.len() {
        return Err(Code::CLIENT_INVALID_OPERATION);
    }
    Ok((rest, offset))
}
