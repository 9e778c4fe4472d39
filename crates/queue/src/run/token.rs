//! A session's token slot: writing an attempt's number, and reading it back.

use foundationdb::Transaction;
use foundationdb::options::MutationType;

use crate::keys::{Space, tokens};
use crate::model::error::QueueError;
use crate::model::session_id::SessionId;
use crate::run::conflict;
use mutant::mutant;

/// Writes the attempt's number to the slot, so that it is there exactly if this transaction commits.
pub(crate) fn mark(
    space: &Space,
    tr: &Transaction,
    session: SessionId,
    attempt: u64,
) -> Result<(), QueueError> {
    let key = fenced(space, tr, session)?;
    tr.atomic_op(&key, &tokens::pending(attempt), MutationType::SetVersionstampedValue);
    Ok(())
}

/// Empties the slot.
pub(crate) fn clear(space: &Space, tr: &Transaction, session: SessionId) -> Result<(), QueueError> {
    let key = fenced(space, tr, session)?;
    tr.clear(&key);
    Ok(())
}

/// The slot's key, which the caller then writes.
///
/// The read conflict is a fence: two attempts of a session that overlap, because one was given up while its commit
/// was still on its way, cannot both commit.
fn fenced(space: &Space, tr: &Transaction, session: SessionId) -> Result<Vec<u8>, QueueError> {
    let key = tokens::key(&space.tokens, session);
    // Before the write: a transaction does not conflict on what it has itself overwritten.
    if !mutant("token-without-conflict") {
        conflict::as_reader(tr, &key)?;
    }
    Ok(key)
}

/// The content of the slot. `None` if it is empty: no attempt has committed since the queue was made or swept.
pub(crate) async fn read(
    space: &Space,
    tr: &Transaction,
    session: SessionId,
) -> Result<Option<tokens::Token>, QueueError> {
    let value = tr.get(&tokens::key(&space.tokens, session), false).await?;
    Ok(value.as_deref().and_then(tokens::decode))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::queue::Queue;
    use crate::testing::on_database;

    #[test]
    fn only_one_of_two_overlapping_attempts_commits() {
        on_database(async |db| {
            let queue = Queue::new(b"", b"q").unwrap();
            let session = SessionId([7; 16]);
            let (given_up, next) = (db.create_trx().unwrap(), db.create_trx().unwrap());
            // On its way: its writes are made and its read version is fixed, but the next attempt arrives first.
            given_up.get_read_version().await.unwrap();
            mark(queue.space(), &given_up, session, 1).unwrap();
            assert!(read(queue.space(), &next, session).await.unwrap().is_none());
            mark(queue.space(), &next, session, 2).unwrap();
            next.commit().await.unwrap();
            assert_eq!(given_up.commit().await.unwrap_err().code(), 1020);

            let tr = db.create_trx().unwrap();
            assert_eq!(read(queue.space(), &tr, session).await.unwrap().unwrap().attempt, 2);
            clear(queue.space(), &tr, session).unwrap();
            tr.commit().await.unwrap();
            let tr = db.create_trx().unwrap();
            assert!(read(queue.space(), &tr, session).await.unwrap().is_none());
        });
    }

    #[test]
    fn sessions_do_not_conflict_with_each_other() {
        on_database(async |db| {
            let queue = Queue::new(b"", b"q").unwrap();
            let (one, other) = (db.create_trx().unwrap(), db.create_trx().unwrap());
            for (tr, session) in [(&one, 1), (&other, 2)] {
                tr.get_read_version().await.unwrap();
                mark(queue.space(), tr, SessionId([session; 16]), 1).unwrap();
            }
            one.commit().await.unwrap();
            other.commit().await.unwrap();
        });
    }
}
