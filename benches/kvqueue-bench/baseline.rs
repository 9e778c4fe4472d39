//! The Erlang KvQueue's consumers, for comparison: `consume_k` of its tutorial, key by key.
//!
//! Each consumer reads the first K items with an ordinary range read, clears the range from the first to the last of them, and adds to
//! `npop`; where there are fewer than K it also watches `npush`, in the same transaction. It runs that as `erlfdb:transactional` does:
//! until it commits, with the database's `on_error` between the attempts. Items are handled after the commit. So consumers conflict
//! with each other on the first keys, and one that finds fewer than K with every push.

use std::sync::Arc;

use foundationdb::{
    Database, FdbError, RangeOption, Transaction,
    options::{MutationType, StreamingMode},
};
use futures::future::BoxFuture;
use tokio::task::JoinSet;
use tokio_util::{future::FutureExt, sync::CancellationToken};

use super::{contention::Contention, keys::Keys, tally::Tally};

/// The database's error for a transaction that lost against another.
const NOT_COMMITTED: i32 = 1020;

/// What consumers share.
pub(super) struct Baseline {
    pub(super) db: Arc<Database>,
    pub(super) keys: Keys,
    pub(super) k: usize,
    pub(super) tally: Arc<Tally>,
    pub(super) contention: Arc<Contention>,
    pub(super) stop: CancellationToken,
}

type Popped = (Vec<Vec<u8>>, Option<BoxFuture<'static, Result<(), FdbError>>>);

/// Starts this number of consumers.
pub(super) fn start(baseline: Baseline, workers: u16) -> JoinSet<anyhow::Result<()>> {
    let baseline = Arc::new(baseline);
    let mut consumers = JoinSet::new();
    for _ in 0..workers {
        consumers.spawn(consume(baseline.clone()));
    }
    consumers
}

async fn consume(baseline: Arc<Baseline>) -> anyhow::Result<()> {
    while !baseline.stop.is_cancelled() {
        let (items, watch) = consume_k(&baseline).await?;
        baseline.tally.handled(items.iter().map(Vec::as_slice));
        if let Some(watch) = watch
            // A watch that fails tells nothing: the consumer looks again, as it would in Erlang after a restart.
            && watch.with_cancellation_token(&baseline.stop).await.is_none()
        {
            break;
        }
    }
    Ok(())
}

/// Runs the transaction until it commits.
async fn consume_k(baseline: &Baseline) -> Result<Popped, FdbError> {
    let mut tr = baseline.db.create_trx()?;
    loop {
        let cause = match pop_k(&tr, baseline).await {
            Err(error) => {
                count(error, baseline);
                tr = tr.on_error(error).await?;
                continue;
            }
            Ok((items, watch)) => match tr.commit().await {
                Ok(_committed) => {
                    if !items.is_empty() {
                        baseline.contention.took(0);
                    }
                    return Ok((items, watch));
                }
                Err(error) => error,
            },
        };
        count(*cause, baseline);
        tr = cause.on_error().await?;
    }
}

fn count(error: FdbError, baseline: &Baseline) {
    if error.code() == NOT_COMMITTED {
        baseline.contention.lost();
    }
}

async fn pop_k(tr: &Transaction, Baseline { keys, k, .. }: &Baseline) -> Result<Popped, FdbError> {
    let (begin, end) = keys.items.clone();
    let range =
        RangeOption { limit: Some(*k), mode: StreamingMode::WantAll, ..RangeOption::from((begin, end)) };
    // A limited read gives all it asks for at once, unless that is too many bytes for one answer.
    let mut items = Vec::with_capacity(*k);
    let (mut first, mut last) = (None, None);
    let mut range = Some(range);
    let mut iteration = 1;
    while let Some(part) = range {
        let page = tr.get_range(&part, iteration, false).await?;
        for row in &page {
            first.get_or_insert_with(|| row.key().to_vec());
            last = Some(row.key().to_vec());
            items.push(row.value().to_vec());
        }
        range = part.next_range(&page);
        iteration += 1;
    }
    if let (Some(first), Some(mut last)) = (first, last) {
        // No key of an item is the beginning of another, so this ends where the Erlang program's `strinc` does.
        last.push(0xff);
        tr.clear_range(&first, &last);
        tr.atomic_op(&keys.npop, &(items.len() as u64).to_le_bytes(), MutationType::Add);
    }
    let watch = (items.len() < *k).then(|| -> BoxFuture<'static, _> { Box::pin(tr.watch(&keys.npush)) });
    Ok((items, watch))
}
