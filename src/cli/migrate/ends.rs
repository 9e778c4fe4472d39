//! The two databases that a queue is moved between, and transactions in them. The target's versions have to be as far as the
//! source's: stamps of items are versions, and a queue is in their order.

use std::{
    cell::Cell,
    sync::Arc,
    time::{Duration, Instant},
};

use fdb_embedded::space::Space;
use foundationdb::{Database, Transaction, options::TransactionOption};
use kvqueue_queue::{QueueError, RetryPolicy, all_queues, retry};

use super::{error::MigrateError, report::Report};
use crate::{
    cli::{client::created, globals::Globals},
    database::{Patience, Refused, Store, identity, missing, refusal},
};

/// Both databases, open.
pub(super) struct Ends {
    pub(super) from: End,
    pub(super) to: End,
    /// After the handles: the network goes last.
    _store: Store,
}

/// One of the two databases.
pub(super) struct End {
    pub(super) url: String,
    db: Arc<Database>,
    patience: Patience,
    /// How long opening has taken, which shortens the wait for the first answer.
    opening: Cell<Duration>,
}

impl Ends {
    /// Opens both databases. Creates a missing target if `creates`.
    pub(super) fn open(
        globals: &Globals,
        from: &str,
        to: &str,
        creates: bool,
    ) -> Result<Ends, anyhow::Error> {
        if identity(from) == identity(to) {
            return Err(MigrateError::SameDatabase(to.to_owned()).into());
        }
        let missing_target = missing(to);
        if missing(from).is_some() {
            return Err(MigrateError::NoDatabase(from.to_owned()).into());
        }
        if missing_target.is_some() && !creates {
            return Err(MigrateError::NoDatabase(to.to_owned()).into());
        }
        let (patience, began) = (globals.patience(), Instant::now());
        let store = Store::open_within(from, patience)?;
        let source = began.elapsed();
        let target = store.also(to, patience)?;
        created(globals, missing_target.as_deref());
        let end = |url: &str, db, took| End { url: url.to_owned(), db, patience, opening: Cell::new(took) };
        let from = end(from, Arc::clone(&store.db), source);
        Ok(Ends { from, to: end(to, target, began.elapsed() - source), _store: store })
    }
}

impl End {
    /// Runs a transaction that may commit twice with the same result. A disk that stays full ends it.
    pub(super) async fn transact<T>(
        &self,
        body: impl AsyncFn(&Transaction) -> Result<T, QueueError>,
    ) -> Result<T, MigrateError> {
        let body = &body;
        let attempt = |tr| async move {
            let outcome = body(&tr).await;
            (tr, outcome)
        };
        let policy = RetryPolicy::default();
        match self.patience().wait(&self.url, retry::run_adding(&self.db, &policy, attempt)).await? {
            Ok(done) => Ok(done.value),
            Err(error) if error.is_out_of_space() => {
                Err(MigrateError::Refused(Refused::why(&self.url).text()))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The names of all queues.
    pub(super) async fn queues(&self, prefix: &[u8]) -> Result<Vec<Vec<u8>>, MigrateError> {
        let policy = RetryPolicy::default();
        Ok(self.patience().wait(&self.url, all_queues(&self.db, prefix, &policy)).await??)
    }

    /// The current read version.
    pub(super) async fn version(&self) -> Result<i64, MigrateError> {
        self.transact(async |tr| Ok(tr.get_read_version().await?)).await
    }

    /// Refuses what a lack of space will end: the engine takes pages of rows even below the limit of free space, since each of them
    /// also replaces the record of the migration. Only a host knows how much of its file is free again: if another process hosts the
    /// target, its answers tell.
    pub(super) fn check_space(&self) -> Result<(), MigrateError> {
        let Some(directory) = fdb_embedded::embedded_directory(&self.url) else { return Ok(()) };
        match Space::known(&directory) {
            Ok(space) if space.refuses.is_some() && space.is_low() => match refusal(&directory, &space) {
                Some(why) => Err(MigrateError::Refused(why)),
                None => Ok(()),
            },
            // The transactions themselves tell what is wrong with the disk.
            _ => Ok(()),
        }
    }

    fn patience(&self) -> Patience {
        self.patience.after(self.opening.take())
    }

    pub(super) fn is_embedded(&self) -> bool {
        fdb_embedded::embedded_directory(&self.url).is_some()
    }
}

/// FoundationDB's key for this, which `fdbcli`'s `advanceversion` sets too.
const MIN_COMMIT_VERSION: &[u8] = b"\xff\xff/management/min_required_commit_version";

/// How far ahead of the source the target is set, in versions: a minute of the source's.
const LEAD: i64 = 60_000_000;

/// How long a cluster may take to recover.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether the target's versions are set ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Advance {
    NotNeeded,
    To(i64),
    /// The target must be advanced to this version, but `--advance-versions` is not given.
    NotAllowed(i64),
}

fn decide(from: i64, to: i64, may_advance: bool) -> Advance {
    let advance = from.saturating_add(LEAD);
    match (from <= to, may_advance) {
        (true, _) => Advance::NotNeeded,
        (false, true) => Advance::To(advance),
        (false, false) => Advance::NotAllowed(advance),
    }
}

/// Returns a version of the source that the target has reached.
///
/// An embedded target is set ahead without an option: that takes no time, and only open transactions notice.
pub(super) async fn ensure_versions(
    ends: &Ends,
    may_advance: bool,
    report: &Report,
) -> Result<i64, MigrateError> {
    let (from, to) = (ends.from.version().await?, ends.to.version().await?);
    match decide(from, to, may_advance || ends.to.is_embedded()) {
        Advance::NotNeeded => {}
        Advance::To(version) => {
            report.note(format_args!(
                "the target's versions go on from {version}, to be ahead of the source's"
            ));
            advance(&ends.to, version).await?;
        }
        Advance::NotAllowed(advance) => return Err(MigrateError::Behind { from, to, advance }),
    }
    Ok(from)
}

/// Makes versions go on from `version`, as `fdbcli` does. The commit's answer may be lost in the recovery that it causes,
/// so the loop reads the version.
async fn advance(end: &End, version: i64) -> Result<(), MigrateError> {
    let began = Instant::now();
    while end.version().await? < version {
        if began.elapsed() > PATIENCE {
            return Err(MigrateError::NotAdvanced(version));
        }
        end.transact(async |tr| {
            tr.set_option(TransactionOption::SpecialKeySpaceEnableWrites)?;
            if tr.get_read_version().await? < version {
                tr.set(MIN_COMMIT_VERSION, version.to_string().as_bytes());
            }
            Ok(())
        })
        .await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_with_lower_versions_is_advanced_or_refused() {
        assert_eq!(decide(5, 5, false), Advance::NotNeeded);
        assert_eq!(decide(5, 6, true), Advance::NotNeeded);
        assert_eq!(decide(6, 5, true), Advance::To(60_000_006));
        assert_eq!(decide(6, 5, false), Advance::NotAllowed(60_000_006));
        assert_eq!(decide(i64::MAX, 5, true), Advance::To(i64::MAX));
    }
}
