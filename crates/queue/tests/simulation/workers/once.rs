//! Settling together with what a handler writes: exactly-once delivery, as a program above the layer does it.

use foundationdb::options::MutationType;
use foundationdb::{FdbError, Transaction};
use kvqueue_queue::{
    Acknowledgement, Attempts, CommitStatus, ItemOutcome, Lease, LeaseError, QueueError, RetryError,
};

use crate::desk::Desk;

/// How a transaction goes on.
enum Prepared {
    /// It is to be committed.
    Commit(Acknowledgement),
    /// It need not be.
    Ended(Result<(), LeaseError>),
}

/// Writes the effects of the items that are done, and settles, in one transaction; again until it is known what became of it.
/// `is_unknown`: nobody knows what became of the settlement before this one.
pub(super) async fn settle(
    desk: &Desk,
    lease: &mut Lease,
    settlements: &[(usize, ItemOutcome)],
    mut is_unknown: bool,
) -> Result<(), LeaseError> {
    let mut tr = desk.world.db.create_trx().unwrap();
    loop {
        tr = match prepare(desk, &tr, lease, settlements, is_unknown).await {
            Ok(Prepared::Ended(ended)) => return ended,
            Ok(Prepared::Commit(change)) => match tr.commit().await {
                Ok(_committed) => {
                    lease.acknowledged(change);
                    return Ok(());
                }
                Err(error) => {
                    let perhaps = !error.is_retryable_not_committed();
                    is_unknown |= perhaps;
                    error.on_error().await.map_err(|error| given_up(error, perhaps))?
                }
            },
            Err(QueueError::Database(error)) => tr.on_error(error).await.unwrap(),
            // The home of a batch is frozen.
            Err(error) if error.frozen().is_some() => return Err(LeaseError::Queue(error)),
            Err(error) => panic!("{error}"),
        };
    }
}

async fn prepare(
    desk: &Desk,
    tr: &Transaction,
    lease: &mut Lease,
    settlements: &[(usize, ItemOutcome)],
    is_unknown: bool,
) -> Result<Prepared, QueueError> {
    if is_unknown && !settlements.is_empty() {
        match lease.find_out(tr, settlements).await? {
            CommitStatus::Committed => return Ok(Prepared::Ended(Ok(()))),
            CommitStatus::Lost => return Ok(Prepared::Ended(Err(LeaseError::Lost))),
            CommitStatus::NotCommitted => {}
        }
    }
    let change = match lease.acknowledge_in(tr, settlements).await {
        Ok(Some(change)) => change,
        Ok(None) => return Ok(Prepared::Ended(Err(LeaseError::Lost))),
        Err(LeaseError::Queue(error)) => return Err(error),
        Err(error) => return Ok(Prepared::Ended(Err(error))),
    };
    let open: Vec<usize> = lease.open().collect();
    for (index, settlement) in settlements {
        let is_done = matches!(settlement, ItemOutcome::Done | ItemOutcome::DoneWith(_));
        if is_done && open.contains(index) {
            let effect = desk.world.place.effect(desk.at, lease.items()[*index].id.as_bytes());
            tr.atomic_op(&effect, &1_u64.to_le_bytes(), MutationType::Add);
        }
    }
    Ok(Prepared::Commit(change))
}

/// The error of a settlement after which no other attempt follows.
fn given_up(error: FdbError, perhaps: bool) -> LeaseError {
    let attempts = Attempts { unknown: u32::from(perhaps), ..Attempts::default() };
    LeaseError::Retry(RetryError { error: error.into(), attempts })
}
