//! A session's token slot: writing an attempt's number, and reading it back.

use foundationdb::Transaction;
use foundationdb::options::{ConflictRangeType, MutationType};

use crate::error::QueueError;
use crate::keys::{Space, tokens};
use crate::session::SessionId;

/// Writes the attempt's number to the slot, so that it is there exactly if this transaction commits.
///
/// The read conflict is a fence: two attempts of a session that overlap, because one was given up while its commit
/// was still on its way, cannot both commit.
pub(crate) fn mark(
    space: &Space,
    tr: &Transaction,
    session: SessionId,
    attempt: u64,
) -> Result<(), QueueError> {
    let key = tokens::key(&space.tokens, session);
    let after = [key.as_slice(), &[0x00]].concat();
    // Before the write: a transaction does not conflict on what it has itself overwritten.
    tr.add_conflict_range(&key, &after, ConflictRangeType::Read)?;
    tr.atomic_op(&key, &tokens::pending(attempt), MutationType::SetVersionstampedValue);
    Ok(())
}

/// What the slot says. `None` if it is empty: no attempt committed since the queue was made or swept.
pub(crate) async fn read(
    space: &Space,
    tr: &Transaction,
    session: SessionId,
) -> Result<Option<tokens::Token>, QueueError> {
    let value = tr.get(&tokens::key(&space.tokens, session), false).await?;
    Ok(value.as_deref().and_then(tokens::decode))
}

/// Empties the slot.
pub(crate) fn clear(space: &Space, tr: &Transaction, session: SessionId) {
    tr.clear(&tokens::key(&space.tokens, session));
}
