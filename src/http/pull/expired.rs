//! Items that have expired before their first attempt: no worker gets them.

use std::time::{Duration, Instant};

use super::{fetching::FETCH, unanswered::Unanswered};
use crate::{
    base::clock_lag::ClockLag,
    consumer::{expiry::Expiry, fetch::VersionClock},
    http::backend::Backend,
};

/// What became of the items of leases that have expired before their first attempt.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Expired {
    /// There were none.
    Nothing,
    /// They were ended.
    Ended,
    /// Those of a lease could not be ended, and are in the queue again.
    Left,
}

/// Ends the items that have expired before their first attempt, and drops the leases that have no other: `None` is in their place.
///
/// A lease whose expired items cannot be ended, or whose items seem to have expired by a clock that is not compared with others within `patience`, is dropped, too,
/// and so released: no worker gets these items, and the others get theirs.
pub(super) async fn end_expired(
    backend: &Backend,
    queue: &[u8],
    clock: &VersionClock,
    leases: &mut [Option<Unanswered>],
    patience: Duration,
) -> Expired {
    let config = backend.config();
    let name = str::from_utf8(queue).unwrap_or_default();
    let expiry = config.queues.get(name).map(Expiry::of).unwrap_or_default();
    let meters = config.queues.contains_key(name).then(|| backend.daemon.status.metrics.queue(&name.into()));
    // Of a queue that is not configured here this process has no sweeper.
    let by_others = meters.is_none().then(|| ClockLag::of(backend.daemon.status.clock_lag()));
    let lag = by_others.as_ref().or(meters.as_ref().map(|meters| &meters.clock_lag));
    let began = Instant::now();
    let (mut ended, mut failed) = (Expired::Nothing, Vec::new());
    for (at, lease) in leases.iter_mut().enumerate() {
        let (Some(lease), Some(lag)) = (lease.as_mut().and_then(Unanswered::lease), lag) else { continue };
        let open: Vec<_> = lease.open().collect();
        let patience = patience.saturating_sub(began.elapsed());
        let Some(mut expired) = expiry.expired_within(lease.items(), clock, lag, patience).await else {
            failed.push(at);
            continue;
        };
        expired.retain(|(index, _)| open.contains(index));
        if expired.is_empty() {
            continue;
        }
        if let Err(error) = lease.acknowledge(&backend.daemon.db, &FETCH, &expired).await {
            tracing::debug!(event = "expiry_failed", queue = name, %error, "cannot end expired items; their lease is released");
            failed.push(at);
            continue;
        }
        ended = Expired::Ended;
        for (index, _) in &expired {
            tracing::info!(
                event = "item_expired",
                queue = name,
                item = %lease.items()[*index].id,
                "item expired before its first attempt began"
            );
        }
        if let Some(meters) = &meters {
            meters.expired.inc_by(expired.len() as u64);
        }
    }
    for (at, lease) in leases.iter_mut().enumerate() {
        lease.take_if(|lease| failed.contains(&at) || lease.is_acknowledged());
    }
    if failed.is_empty() { ended } else { Expired::Left }
}
