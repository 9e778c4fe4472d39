//! Reading keys, ranges and versions.

use std::sync::Arc;

use bytes::Bytes;

use super::pending::OwnWrites;
use super::{METADATA_VERSION, Transaction};
use crate::client::merged::Merged;
use crate::client::range::{Limits, ROW_OVERHEAD, RangeRead, RangeResult};
use crate::client::selector::Selector;
use crate::client::special_keys;
use crate::error::{Code, Result};
use crate::future::{Future, Output};
use crate::limits::exceeds_key_limit;
use crate::rows::Direction;

/// The arguments of a range read in the C API.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the fields are the C API's parameters")]
pub struct RangeArguments {
    pub begin: Selector,
    pub end: Selector,
    pub limit: i32,
    pub target_bytes: i32,
    pub mode: i32,
    pub iteration: i32,
    pub snapshot: bool,
    pub reverse: bool,
}

impl Transaction {
    /// Value future: the value of a key.
    pub fn get(self: &Arc<Self>, key: &[u8], snapshot: bool) -> Arc<Future> {
        if special_keys::is_special(key) {
            return self.get_special(key);
        }
        let sees = OwnWrites::Key { key, snapshot };
        let key = key.to_vec();
        self.answer(sees, move |own, state| {
            let key = key.as_slice();
            if key >= state.max_read_key() && key != METADATA_VERSION {
                return Err(Code::KEY_OUTSIDE_LEGAL_RANGE);
            }
            if exceeds_key_limit(key) {
                return Ok(Output::Value(None));
            }
            let bypass = state.options.bypass_unreadable;
            let found = |value: &Option<Bytes>| Some(row_len(key, value.as_ref()));
            let value = state.look(&own.database, snapshot, |merged| merged.get(key, bypass), found);
            let value = value.map_err(|code| state.spoil(code))?;
            if !snapshot {
                state.add_key_read(key);
            }
            Ok(Output::Value(value))
        })
    }

    /// Key future: the key that a selector selects.
    pub fn get_key(self: &Arc<Self>, selector: &Selector, snapshot: bool) -> Arc<Future> {
        let selector = selector.clone();
        self.answer(OwnWrites::All { snapshot }, move |own, state| {
            let max = state.max_read_key();
            check_selector(&selector, max)?;
            let resolve = |merged: &Merged<'_>| selector.resolve(merged, max);
            let is_plain = state.options.ryw_disabled;
            let found = |key: &Vec<u8>| (!is_plain).then(|| key.len() + ROW_OVERHEAD);
            let resolved = state.look(&own.database, snapshot, resolve, found);
            let resolved = resolved.map_err(|code| state.spoil(code))?;
            if !snapshot {
                state.add_read_conflict(selector.conflict_range(&resolved));
            }
            Ok(Output::Key(Bytes::from(resolved)))
        })
    }

    /// Rows future: the rows between two selectors.
    pub fn get_range(self: &Arc<Self>, arguments: &RangeArguments) -> Arc<Future> {
        // An invalid mode is reported whatever state the transaction is in.
        let read = match range_read(arguments) {
            Ok(read) => read,
            Err(code) => return Future::ready(Err(code)),
        };
        if special_keys::is_special_range(&arguments.begin.key, &arguments.end.key) {
            return self.get_special_range(arguments);
        }
        let (limits, snapshot) = (check_limits(arguments), arguments.snapshot);
        self.answer(OwnWrites::All { snapshot }, move |own, state| {
            let max = state.max_read_key();
            check_selector(&read.begin, max)?;
            check_selector(&read.end, max)?;
            limits?;
            if read.is_empty() {
                return Ok(Output::Rows(crate::rows::RowSet::default()));
            }
            let bytes = |found: &RangeResult| Some(found.rows.byte_len() + found.rows.len() * ROW_OVERHEAD);
            let found = state.look(&own.database, snapshot, |merged| read.run(merged, max), bytes);
            let found = found.map_err(|code| state.spoil(code))?;
            if !snapshot {
                let is_plain = state.options.ryw_disabled;
                let range = if is_plain { read.plain_conflict(&found) } else { read.conflict(&found, max) };
                state.add_read_conflict(range);
            }
            Ok(Output::Rows(found.rows))
        })
    }

    /// Int64 future: the read version, which later reads use too.
    pub fn get_read_version(self: &Arc<Self>) -> Arc<Future> {
        let mut state = self.state.lock();
        let alive = state.check_deferred().and_then(|()| state.check_alive());
        self.read(alive.map(|()| state), OwnWrites::Nothing, |own, state| {
            state.read_version(&own.database).map(Output::Int64)
        })
    }

    /// Sets the read version, before anything is read.
    pub fn set_read_version(&self, version: i64) {
        self.apply_always(|state| {
            if state.view.is_some() || state.chosen_version.is_some() {
                return Err(Code::READ_VERSION_ALREADY_SET);
            }
            if version <= 0 {
                return Err(Code::VERSION_INVALID);
            }
            state.chosen_version = Some(version);
            Ok(())
        });
    }

    /// Int64 future: the approximate size of the transaction in bytes.
    pub fn get_approximate_size(&self) -> Arc<Future> {
        let state = self.state.lock();
        Future::ready(state.check_deferred().map(|()| Output::Int64(state.size)))
    }
}

/// Bytes of a row that was read, or of the request for a missing one.
pub(super) fn row_len(key: &[u8], value: Option<&Bytes>) -> usize {
    key.len() + value.map_or(0, Bytes::len)
}

/// A selector may start at `max` itself.
pub(super) fn check_selector(selector: &Selector, max: &[u8]) -> Result<()> {
    if selector.given_key() <= max { Ok(()) } else { Err(Code::KEY_OUTSIDE_LEGAL_RANGE) }
}

/// Limits may be absent, but otherwise not negative.
pub(super) fn check_limits(arguments: &RangeArguments) -> Result<()> {
    let is_valid = arguments.limit >= -1 && arguments.target_bytes >= -1;
    if is_valid { Ok(()) } else { Err(Code::RANGE_LIMITS_INVALID) }
}

pub(super) fn range_read(arguments: &RangeArguments) -> Result<RangeRead> {
    let limits = Limits::new(arguments.limit, arguments.target_bytes, arguments.mode, arguments.iteration)?;
    let direction = if arguments.reverse { Direction::Backward } else { Direction::Forward };
    Ok(RangeRead { begin: arguments.begin.clone(), end: arguments.end.clone(), limits, direction })
}
