//! Locations of keys and sizes of ranges.

use std::cell::Cell;
use std::sync::Arc;

use bytes::Bytes;

use super::pending::OwnWrites;
use super::{SYSTEM_END, Transaction, TransactionState};
use crate::client::address::ADDRESS;
use crate::client::merged::Merged;
use crate::client::sizes::{self, SizeStep};
use crate::error::{Code, Result};
use crate::future::{Future, Output};
use crate::rows::FetchHint;

impl Transaction {
    /// String array future: the servers that store a key.
    pub fn get_addresses_for_key(self: &Arc<Self>, _key: &[u8]) -> Arc<Future> {
        self.answer(OwnWrites::Nothing, |_, _| Ok(Output::Strings(vec![ADDRESS.to_owned()])))
    }

    /// Int64 future: the approximate bytes of keys and values in a range, without own writes.
    pub fn get_estimated_range_size(self: &Arc<Self>, begin: &[u8], end: &[u8]) -> Arc<Future> {
        let (begin, end) = (begin.to_vec(), end.to_vec());
        self.answer(OwnWrites::Nothing, move |own, state| {
            let steps = own.steps(state, &begin, &end, SYSTEM_END)?;
            #[expect(clippy::cast_possible_truncation, reason = "no range has 2^63 bytes")]
            let total = steps.iter().map(|step| step.bytes).sum::<f64>().round() as i64;
            Ok(Output::Int64(total))
        })
    }

    /// Key array future: the range's bounds, and stored keys between them at distances of about
    /// `chunk` bytes. If `chunk` is 0, all known ones.
    pub fn get_range_split_points(self: &Arc<Self>, begin: &[u8], end: &[u8], chunk: i64) -> Arc<Future> {
        let (begin, end) = (begin.to_vec(), end.to_vec());
        self.answer(OwnWrites::Nothing, move |own, state| {
            if begin > end {
                return Err(Code::INVERTED_RANGE);
            }
            // FoundationDB's servers never answer a negative size.
            let chunk = u64::try_from(chunk).map_err(|_| Code::CLIENT_INVALID_OPERATION)?;
            let max = state.max_read_key();
            let steps = own.steps(state, &begin, &end, max)?;
            Ok(Output::Keys(split(&steps, &begin, &end, chunk)))
        })
    }

    fn steps(
        &self,
        state: &mut TransactionState,
        begin: &[u8],
        end: &[u8],
        max: &[u8],
    ) -> Result<Vec<SizeStep>> {
        if begin > end {
            return Err(Code::INVERTED_RANGE);
        }
        if end > max {
            return Err(Code::KEY_OUTSIDE_LEGAL_RANGE);
        }
        // Sizes are current ones, whatever the read version is, and do not set it.
        let view = match state.sizes_view.take().filter(|view| !view.is_replaceable()) {
            Some(view) => view,
            None => self.database.link().view(None)?,
        };
        let (looked, epoch) = (Cell::new(true), Some(self.database.epoch()));
        let stored = Merged {
            view: Ok(&view),
            writes: None,
            epoch,
            want: FetchHint::default(),
            looked: &looked,
            ahead: None,
        };
        let steps = sizes::steps(&stored, begin, end);
        if steps.as_ref().is_err_and(|code| *code == Code::MISSING) {
            state.sizes_view = Some(view);
        }
        steps
    }
}

fn split(steps: &[SizeStep], begin: &[u8], end: &[u8], chunk: u64) -> Vec<Bytes> {
    #[expect(clippy::cast_precision_loss, reason = "sizes are estimates")]
    let chunk = chunk as f64;
    let mut points = vec![Bytes::copy_from_slice(begin)];
    let mut since = 0.0;
    for step in steps {
        if since >= chunk && step.key != begin {
            points.push(Bytes::copy_from_slice(&step.key));
            since = 0.0;
        }
        since += step.bytes;
    }
    if begin < end {
        points.push(Bytes::copy_from_slice(end));
    }
    points
}
