//! Numbering the items of a recipe's queue, as the recipe does.

use foundationdb::tuple::pack;
use foundationdb::{RangeOption, Transaction};

use crate::error::QueueError;
use crate::keys::{Space, range, recipes};
use crate::kind::Kind;

/// The number of the next item: in a queue 1 more than the last index, which is 0 without items; in a priority queue 1 more than the
/// last count of the priority, or 0.
///
/// A snapshot read, so that pushes conflict with nothing; two that go on at the same time may get the same number, and the random
/// bytes behind it decide.
pub(super) async fn next(space: &Space, tr: &Transaction, priority: i64) -> Result<i64, QueueError> {
    let (subspace, first) = match space.kind {
        Kind::Priority(..) => ([space.ready.as_slice(), &pack(&priority)].concat(), 0),
        Kind::Fifo | Kind::Recipe(_) => (space.ready.clone(), 1),
    };
    let last = RangeOption { limit: Some(1), reverse: true, ..RangeOption::from(range(&subspace)) };
    let rows = tr.get_range(&last, 1, true).await?;
    let Some(row) = rows.first() else { return Ok(first) };
    let number = recipes::integer(&row.key()[subspace.len()..], 0).and_then(|number| number.checked_add(1));
    number.ok_or_else(|| QueueError::ForeignKey { key: row.key().escape_ascii().to_string() })
}
