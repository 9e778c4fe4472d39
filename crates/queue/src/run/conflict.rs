//! Conflicts on keys, without reading or writing them.

use foundationdb::Transaction;
use foundationdb::options::ConflictRangeType;

use crate::keys::after;
use crate::model::error::QueueError;

/// Makes the transaction fail at commit if another has written the key since it began.
///
/// Call it before the transaction clears or sets the key: it does not conflict on what it has itself overwritten.
pub(crate) fn as_reader(tr: &Transaction, key: &[u8]) -> Result<(), QueueError> {
    Ok(tr.add_conflict_range(key, &after(key), ConflictRangeType::Read)?)
}

/// The same for all keys from `first` to `last`.
pub(crate) fn as_reader_of_all(tr: &Transaction, first: &[u8], last: &[u8]) -> Result<(), QueueError> {
    Ok(tr.add_conflict_range(first, &after(last), ConflictRangeType::Read)?)
}

/// Makes those fail that read the key, or pretend to, and commit after this transaction.
pub(crate) fn as_writer(tr: &Transaction, key: &[u8]) -> Result<(), QueueError> {
    Ok(tr.add_conflict_range(key, &after(key), ConflictRangeType::Write)?)
}
