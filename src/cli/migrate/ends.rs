//! The two databases that a queue is moved between, and transactions in them.

use std::{
    cell::Cell,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use fdb_embedded::space::Space;
use foundationdb::{Database, Transaction};
use kvqueue_queue::{QueueError, RetryPolicy, all_queues, retry};

use super::error::MigrateError;
use crate::{
    cli::{client::created, globals::Globals},
    database::{Patience, Refused, Store, missing, refusal},
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
        if is_same(from, to) {
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

/// Whether both name the same database, as far as their names tell.
fn is_same(from: &str, to: &str) -> bool {
    match (fdb_embedded::embedded_directory(from), fdb_embedded::embedded_directory(to)) {
        (Some(from), Some(to)) => canonical(&from) == canonical(&to),
        (None, None) => from == to || id(from).is_some_and(|own| Some(own) == id(to)),
        _ => false,
    }
}

fn canonical(path: &Path) -> std::path::PathBuf {
    path.canonicalize().or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.to_path_buf())
}

/// What a cluster file calls its cluster: the same in all files that lead there, whatever addresses they have.
fn id(cluster_file: &str) -> Option<String> {
    let text = std::fs::read_to_string(cluster_file).ok()?;
    let line = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'))?;
    line.split_once('@').map(|(id, _)| id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_known_by_its_directory_or_its_cluster_s_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        std::fs::create_dir(dir.path().join("data")).unwrap();
        std::os::unix::fs::symlink("data", dir.path().join("link")).unwrap();
        std::fs::write(path("one"), "# first\nname:id@127.0.0.1:4500\n").unwrap();
        std::fs::write(path("same"), "name:id@127.0.0.1:4501,127.0.0.1:4500\n").unwrap();
        std::fs::write(path("other"), "name:other@127.0.0.1:4500\n").unwrap();
        std::fs::write(path("embedded"), "embedded:data\n").unwrap();
        let embedded = |name: &str| format!("embedded:{}", path(name));
        assert!(is_same(&embedded("data"), &embedded("link")));
        assert!(is_same(&embedded("data"), &path("embedded")));
        assert!(is_same(&embedded("new"), &embedded("new")) && !is_same(&embedded("new"), &embedded("data")));
        assert!(is_same(&path("one"), &path("same")) && !is_same(&path("one"), &path("other")));
        assert!(!is_same(&path("one"), &embedded("data")) && !is_same("/absent/a", "/absent/b"));
    }
}
