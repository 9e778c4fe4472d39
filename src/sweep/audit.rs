//! Removes old records of the audit trail. One task of a daemon does so for all queues.

use std::{
    convert::Infallible,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use foundationdb::Database;
use kvqueue_queue::{RetryError, retry};
use tokio::{sync::watch, time::sleep};

use super::POLICY;
use crate::{
    audit::{AuditStore, Census, MAX_RECORDS},
    base::{causes::with_causes, clock, times},
    config::Config,
    status::DaemonStatus,
};

/// How often it looks. The first time is when the daemon starts.
const PERIOD: Duration = Duration::from_hours(1);

/// How long one look may remove records. It goes on at the next look.
const LOOK: Duration = Duration::from_secs(60);

/// A removal of surplus records frees one part in ten of [`MAX_RECORDS`].
const FREED: u64 = 10;

/// What a look has removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Removed {
    /// Records that were older than they are kept.
    old: u64,
    /// Records beyond the bound, whatever their age.
    surplus: u64,
}

/// Sweeps at the start, each hour, and when the configuration changes.
pub(crate) async fn forever(
    db: Arc<Database>,
    status: Arc<DaemonStatus>,
    mut config: watch::Receiver<Arc<Config>>,
) -> Infallible {
    loop {
        let current = config.borrow_and_update().clone();
        let now = times::before(clock::now(), status.clock_lag());
        match sweep(&db, &current, now, MAX_RECORDS).await {
            Ok(removed) => report(removed),
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

fn report(Removed { old, surplus }: Removed) {
    if old > 0 {
        tracing::info!(event = "audit_swept", records = old, "removed old records of the audit trail");
    }
    if surplus > 0 {
        tracing::warn!(
            event = "audit_overflowed",
            records = surplus,
            "removed records of the audit trail that are not old: the actor with the most changes made too many"
        );
    }
}

/// Removes records that are old at `now`, and those beyond a bound.
async fn sweep(db: &Database, config: &Config, now: SystemTime, most: u64) -> Result<Removed, RetryError> {
    let store = &AuditStore::new(config.prefix.as_bytes());
    let prepare = retry::run(db, &POLICY, |tr| async move {
        let prepared = store.prepare(&tr).await;
        (tr, prepared)
    });
    prepare.await?;
    let kept = config.audit_retention;
    let (began, mut old, mut more) = (Instant::now(), 0, true);
    while more && began.elapsed() < LOOK {
        let swept = retry::run(db, &POLICY, |tr| async move {
            let swept = store.sweep(&tr, now, kept).await;
            (tr, swept)
        });
        let page;
        (page, more) = swept.await?.value;
        old += page;
    }
    let surplus = if count(db, store).await? > most { remove_surplus(db, store, most).await? } else { 0 };
    Ok(Removed { old, surplus })
}

/// Counts whose records there are, and removes the oldest of the actor that has too many. Returns the number.
async fn remove_surplus(db: &Database, store: &AuditStore, most: u64) -> Result<u64, RetryError> {
    let (began, most) = (Instant::now(), most - most / FREED);
    let (mut census, mut from) = (Census::default(), None);
    loop {
        let start: Option<&[u8]> = from.as_deref();
        let page = retry::run(db, &POLICY, |tr| async move {
            let page = store.oldest(&tr, start).await;
            (tr, page)
        });
        let (records, next) = page.await?.value;
        records.iter().for_each(|record| census.add(record.as_ref()));
        from = next;
        if from.is_none() || began.elapsed() >= LOOK {
            break;
        }
    }
    let (mut excess, mut removed, mut from) = (census.excess(most), 0, None::<Vec<u8>>);
    // Another daemon may have removed them meanwhile.
    while !excess.is_empty() && count(db, store).await? > most {
        let (start, left) = (from.as_deref(), &excess);
        let page = retry::run(db, &POLICY, |tr| async move {
            let page = store.remove(&tr, start, left.clone()).await;
            (tr, page)
        });
        let (gone, left, next) = page.await?.value;
        removed += gone;
        excess = left;
        from = next;
        if from.is_none() {
            break;
        }
    }
    Ok(removed)
}

async fn count(db: &Database, store: &AuditStore) -> Result<u64, RetryError> {
    let count = retry::run(db, &POLICY, |tr| async move {
        let count = store.count(&tr).await;
        (tr, count)
    });
    Ok(count.await?.value)
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;

    use super::*;
    use crate::{
        audit::{Action, Filter, Record, Who},
        testing::TestDatabase,
    };

    const DAY: Duration = Duration::from_hours(24);

    fn write(db: &Database, store: &AuditStore, token: &str, queue: &str, days: u32) {
        let who = Who::Token { name: token.to_owned() };
        let record = &Record::new(Action::OF_A_TEST, who).about(queue.as_bytes()).ago(DAY * days);
        let written = retry::run(db, &POLICY, |tr| async move {
            store.write(&tr, record);
            (tr, Ok(()))
        });
        block_on(written).unwrap();
    }

    fn records(db: &Database, store: &AuditStore, queue: &str) -> usize {
        let filter = &Filter { queue: Some(queue.as_bytes().to_vec()), since: None };
        let listed = retry::run(db, &POLICY, |tr| async move {
            let page = store.page(&tr, None, filter, 1_000).await;
            (tr, page)
        });
        block_on(listed).unwrap().value.records.len()
    }

    fn config() -> Config {
        Config { prefix: "p".to_owned(), ..Config::default() }
    }

    #[test]
    fn records_are_removed_after_the_retention() {
        let (db, store) = (TestDatabase::new().unwrap(), &AuditStore::new(b"p"));
        let sweep = |config: &Config| block_on(sweep(&db, config, clock::now(), 100)).unwrap();
        assert_eq!(sweep(&config()), Removed::default());
        for days in [91, 89, 0] {
            write(&db, store, "a", "q", days);
        }
        let left = || records(&db, store, "q");
        assert_eq!((left(), sweep(&config()).old, left()), (3, 1, 2));
        let shorter = Config { audit_retention: Duration::from_hours(24), ..config() };
        assert_eq!((sweep(&shorter), left()), (Removed { old: 1, surplus: 0 }, 1));
    }

    #[test]
    fn a_clock_that_is_ahead_of_the_newest_record_removes_nothing() {
        let (db, store) = (TestDatabase::new().unwrap(), &AuditStore::new(b"p"));
        for days in [30, 0] {
            write(&db, store, "a", "q", days);
        }
        let later = clock::now() + 1_000 * DAY;
        assert_eq!(block_on(sweep(&db, &config(), later, 100)).unwrap(), Removed::default());
        assert_eq!(records(&db, store, "q"), 2);
    }

    #[test]
    fn one_actor_pushes_out_no_records_of_others() {
        let (db, store) = (TestDatabase::new().unwrap(), &AuditStore::new(b"p"));
        write(&db, store, "operator", "deleted", 0);
        (0..3).for_each(|_| write(&db, store, "ci", "b", 0));
        (0..60).for_each(|_| write(&db, store, "ci", "a", 0));
        let sweep = || block_on(sweep(&db, &config(), clock::now(), 40)).unwrap();
        assert_eq!(sweep(), Removed { old: 0, surplus: 28 });
        assert_eq!(["deleted", "b", "a"].map(|queue| records(&db, store, queue)), [1, 3, 32]);
        assert_eq!(sweep(), Removed::default());
    }
}
