//! Mapped range reads.

use std::sync::Arc;

use super::Transaction;
use super::pending::OwnWrites;
use super::reads::{RangeArguments, check_limits, check_selector, range_read};
use crate::client::merged::Merged;
use crate::client::{mapped, special_keys};
use crate::error::Code;
use crate::future::{Future, Output};
use crate::rows::MappedRows;

impl Transaction {
    /// Mapped rows future: the rows between two selectors, and for each the rows that `mapper`
    /// selects. Requires read-your-writes and no own writes in the ranges, and is refused at
    /// snapshot isolation.
    pub fn get_mapped_range(self: &Arc<Self>, arguments: &RangeArguments, mapper: &[u8]) -> Arc<Future> {
        // An invalid mode is reported whatever state the transaction is in.
        let read = match range_read(arguments) {
            Ok(read) => read,
            Err(code) => return Future::ready(Err(code)),
        };
        let (limits, snapshot, mapper) = (check_limits(arguments), arguments.snapshot, mapper.to_vec());
        self.answer(OwnWrites::All { snapshot: false }, move |own, state| {
            if special_keys::is_special_range(&read.begin.key, &read.end.key) {
                return Err(Code::CLIENT_INVALID_OPERATION);
            }
            let max = state.max_read_key();
            check_selector(&read.begin, max)?;
            check_selector(&read.end, max)?;
            limits?;
            if read.is_empty() {
                return Ok(Output::MappedRows(MappedRows::default()));
            }
            if snapshot || state.options.ryw_disabled {
                return Err(Code::UNSUPPORTED_OPERATION);
            }
            let run =
                |merged: &Merged<'_>| mapped::run(&read, &mapper, &Merged { writes: None, ..*merged }, max);
            let result = state.look(&own.database, true, run, |result| Some(result.byte_len()))?;
            if result.conflicts.iter().any(|(begin, end)| state.writes.touches(begin, end)) {
                return Err(Code::MAPPED_RANGE_READS_WRITES);
            }
            for range in result.conflicts {
                state.add_read_conflict(range);
            }
            Ok(Output::MappedRows(result.rows))
        })
    }
}
