//! Reads the statistics of one queue, with reads that conflict with no other transaction.

use std::time::Duration;

use foundationdb::{Database, FdbError};
use futures::future::join3;
use kvqueue_queue::{Counts, ItemId, Queue, QueueError};

use crate::status::QueueStats;

/// Database versions in a second.
const VERSIONS: u64 = 1_000_000;

/// The version to read at. All queues of a round are read as of one.
pub(super) async fn version(db: &Database) -> Result<i64, FdbError> {
    db.create_trx()?.get_read_version().await
}

/// The statistics of a queue at this version.
pub(super) async fn sample(db: &Database, queue: &Queue, version: i64) -> Result<QueueStats, QueueError> {
    let tr = db.create_trx()?;
    tr.set_read_version(version);
    let (counts, oldest, versions) =
        join3(queue.counts(&tr), queue.oldest(&tr), queue.check_versions(&tr)).await;
    let (counts, oldest) = (counts?, oldest?);
    let versions_went_back = match versions {
        Err(QueueError::VersionsWentBack { .. }) => true,
        versions => versions.map(|()| false)?,
    };
    let Counts { ready, running, waiting, dead, done, pushed } = counts;
    let oldest = oldest.and_then(|id| age(&id, version));
    Ok(QueueStats { ready, running, waiting, dead, done, pushed, oldest, versions_went_back })
}

/// How long ago an item was pushed, if its id has a stamp: a stamp is a version, and versions count
/// microseconds.
fn age(id: &ItemId, version: i64) -> Option<Duration> {
    let pushed = id.stamp()?.version();
    let versions = u64::try_from(version).ok()?.saturating_sub(pushed);
    Some(Duration::from_secs_f64(versions as f64 / VERSIONS as f64))
}

#[cfg(test)]
mod tests {
    use kvqueue_queue::Stamp;

    use super::*;

    #[test]
    fn the_age_of_an_item_comes_from_its_version() {
        let mut stamp = [0; Stamp::LEN];
        stamp[..8].copy_from_slice(&4_000_000_u64.to_be_bytes());
        let id = ItemId::from(Stamp::from(stamp));
        assert_eq!(age(&id, 5_500_000), Some(Duration::from_millis(1_500)));
        // Read as of a moment before.
        assert_eq!(age(&id, 1), Some(Duration::ZERO));
        assert_eq!(age(&"x01".parse().unwrap(), 5_500_000), None);
    }
}
