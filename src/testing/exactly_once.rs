//! Calls with a transaction.

use std::sync::Arc;

use foundationdb::{FdbError, Transaction};
use kvqueue_queue::Item;

use super::{Kit, TestDatabase};
use crate::handlers::Outcome;

/// How often a call is made again when its transaction does not commit.
const MAX_RUNS: u32 = 100;

/// FoundationDB's `not_committed`.
const CONFLICT: i32 = 1020;

/// Calls the handler until the transaction of a call commits, or need not.
pub(super) async fn run(kit: &Kit, database: &TestDatabase, items: &Arc<[Item]>) -> Vec<Outcome> {
    let failed = |error: FdbError| vec![Outcome::retry(error); items.len()];
    let mut tr = match database.create_trx() {
        Ok(tr) => tr,
        Err(error) => return failed(error),
    };
    for run in 0..MAX_RUNS {
        let shared = Arc::new(tr);
        let outcomes = kit.call(items, Some(shared.clone())).await;
        if !outcomes.contains(&Outcome::Done) {
            return outcomes;
        }
        let Some(own) = Arc::into_inner(shared) else {
            return vec![Outcome::retry("the handler did not let go of its transaction"); items.len()];
        };
        tr = match commit(own, run < kit.conflicts).await {
            Ok(None) => return outcomes,
            Ok(Some(again)) => again,
            Err(error) => return failed(error),
        };
    }
    vec![Outcome::Retry(format!("its transaction did not commit in {MAX_RUNS} attempts")); items.len()]
}

/// Commits, or returns a transaction to try again with.
async fn commit(tr: Transaction, conflict: bool) -> Result<Option<Transaction>, FdbError> {
    if conflict {
        return tr.on_error(FdbError::from_code(CONFLICT)).await.map(Some);
    }
    match tr.commit().await {
        Ok(_) => Ok(None),
        Err(error) => error.on_error().await.map(Some),
    }
}
