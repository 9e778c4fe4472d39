//! Removes old records of the audit trail. One task of a daemon does so for all queues.

use std::{
    convert::Infallible,
    sync::Arc,
    time::{Duration, Instant},
};

use foundationdb::Database;
use kvqueue_queue::{RetryError, retry};
use tokio::{sync::watch, time::sleep};

use super::POLICY;
use crate::{
    audit::{AuditStore, MAX_RECORDS},
    causes::with_causes,
    config::Config,
    consumer::clock,
};

/// How often it looks. The first time is when the daemon starts.
const PERIOD: Duration = Duration::from_hours(1);

/// How long one look may remove records. It goes on at the next look.
const LOOK: Duration = Duration::from_secs(60);

/// Sweeps at the start, each hour, and when the configuration changes.
pub(crate) async fn forever(db: Arc<Database>, mut config: watch::Receiver<Arc<Config>>) -> Infallible {
    loop {
        let now = config.borrow_and_update().clone();
        match sweep(&db, &now).await {
            Ok(0) => {}
            Ok(records) => {
                tracing::info!(event = "audit_swept", records, "removed old records of the audit trail");
            }
            Err(error) => {
                tracing::warn!(
                    event = "audit_sweep_failed",
                    error = with_causes(&error),
                    "cannot remove old records of the audit trail; trying again in an hour"
                );
            }
        }
        tokio::select! {
            () = sleep(PERIOD) => {}
            Ok(()) = config.changed() => {}
        }
    }
}

/// Removes old records and those beyond the bound, and returns their number.
async fn sweep(db: &Database, config: &Config) -> Result<u64, RetryError> {
    let store = &AuditStore::new(config.prefix.as_bytes());
    let prepare = retry::run(db, &POLICY, |tr| async move {
        let prepared = store.prepare(&tr).await;
        (tr, prepared)
    });
    prepare.await?;
    let kept = u64::try_from(config.audit_retention.as_millis()).unwrap_or(u64::MAX);
    let oldest = clock::now().saturating_sub(kept);
    let (began, mut removed, mut more) = (Instant::now(), 0, true);
    while more && began.elapsed() < LOOK {
        let swept = retry::run(db, &POLICY, |tr| async move {
            let swept = store.sweep(&tr, oldest, MAX_RECORDS).await;
            (tr, swept)
        });
        let page;
        (page, more) = swept.await?.value;
        removed += page;
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;

    use super::*;
    use crate::{
        audit::{Action, Filter, Record, Who},
        testing::TestDatabase,
    };

    #[test]
    fn records_are_removed_after_the_retention() {
        let db = TestDatabase::new().unwrap();
        let store = &AuditStore::new(b"p");
        let config = Config { prefix: "p".to_owned(), ..Config::default() };
        assert_eq!(block_on(sweep(&db, &config)).unwrap(), 0);
        let day = 24 * 3_600_000;
        for days in [91, 89, 0] {
            let record = &Record::new(Action::DaemonReload, Who::Operator).ago(days * day);
            let written = retry::run(&db, &POLICY, |tr| async move {
                store.write(&tr, record);
                (tr, Ok(()))
            });
            block_on(written).unwrap();
        }
        let records = || {
            let listed = retry::run(&db, &POLICY, |tr| async move {
                let page = store.page(&tr, None, &Filter::default(), 10).await;
                (tr, page)
            });
            block_on(listed).unwrap().value.records.len()
        };
        assert_eq!((records(), block_on(sweep(&db, &config)).unwrap(), records()), (3, 1, 2));
        let shorter = Config { audit_retention: Duration::from_hours(24), ..config };
        assert_eq!((block_on(sweep(&db, &shorter)).unwrap(), records()), (1, 1));
    }
}
