//! The two databases that a queue is moved between, and transactions in them.

use std::{
    cell::Cell,
    sync::Arc,
    time::{Duration, Instant},
};

use fdb_embedded::space::Space;
use foundationdb::{Database, Transaction};
use kvqueue_queue::{QueueError, RetryPolicy, all_queues, retry};

use super::error::MigrateError;
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

/// One of them.
pub(super) struct End {
    pub(super) url: String,
    db: Arc<Database>,
    patience: Patience,
    /// How long opening has taken: the first answer has so much less time.
    opening: Cell<Duration>,
}

impl Ends {
    /// Opens both. Where there is no target yet it is created, if `creates` says so.
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

    /// The version that it reads at now.
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
