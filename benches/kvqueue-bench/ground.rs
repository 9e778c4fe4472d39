//! The database a cell runs on: a throw-away directory, or one that was named. It leaves neither directory nor queue behind.

use std::{
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use anyhow::Context;
use foundationdb::Database;
use kvqueue::{config::Config, database::Store};
use kvqueue_queue::{Queue, RetryPolicy, Session, retry};
use tempfile::TempDir;
use tokio::time::sleep;
use uuid::Uuid;

use super::{UsageError, globals::Globals, options::Common};

/// How often the queues are deleted, until they stay deleted: a commit may have been under way when the cell was interrupted.
const ROUNDS: usize = 5;

/// The pause before one looks whether they did.
const PAUSE: Duration = Duration::from_millis(50);

/// How long the database may take to delete a queue.
const PATIENCE: Duration = Duration::from_secs(10);

/// How many queues are deleted in a transaction.
const TOGETHER: usize = 500;

/// A place for a cell's queues.
pub(super) struct Ground {
    url: String,
    prefix: String,
    /// What every queue's name begins with.
    name: String,
    /// The queues there may be.
    queues: Mutex<Vec<Queue>>,
    /// Opened at first use: some cells must not be a process of the database's.
    store: OnceLock<Store>,
    /// Removed after the store is closed.
    throw_away: Option<TempDir>,
}

impl Ground {
    /// Nothing is opened yet. `config` is what the configuration says, where a database was named.
    pub(super) fn new(globals: &Globals, common: &Common, config: &Config) -> anyhow::Result<Self> {
        let name = format!("kvqueue-bench-{}", Uuid::now_v7().simple());
        let ground = |url, prefix, throw_away| Self {
            url,
            prefix,
            name,
            queues: Mutex::default(),
            store: OnceLock::new(),
            throw_away,
        };
        if globals.database.is_some() {
            if common.dir.is_some() {
                let problem = "--dir is where a throw-away database is made, and --database names another; leave one out";
                return Err(UsageError(problem.to_owned()).into());
            }
            return Ok(ground(config.database.clone(), config.prefix.clone(), None));
        }
        let above = common.above();
        let directory = tempfile::Builder::new().prefix("kvqueue-bench-").tempdir_in(&above);
        let directory = directory.with_context(|| {
            format!("cannot make a directory in {}; name another with --dir", above.display())
        })?;
        let url = format!("{}{}", fdb_embedded::SCHEME, directory.path().join("data").display());
        Ok(ground(url, String::new(), Some(directory)))
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// `embedded` or `cluster`.
    pub(super) fn engine(&self) -> &'static str {
        if fdb_embedded::embedded_directory(&self.url).is_some() { "embedded" } else { "cluster" }
    }

    /// The name of a queue that is deleted at the end.
    pub(super) fn queue_name(&self, suffix: &str) -> anyhow::Result<String> {
        let name = format!("{}{suffix}", self.name);
        let queue = Queue::new(self.prefix.as_bytes(), name.as_bytes())?;
        self.queues.lock().expect("nothing panics while it holds the list").push(queue);
        Ok(name)
    }

    /// A queue that is deleted at the end.
    pub(super) fn queue(&self, suffix: &str) -> anyhow::Result<Queue> {
        let name = self.queue_name(suffix)?;
        Ok(Queue::new(self.prefix.as_bytes(), name.as_bytes())?)
    }

    /// The database, opened if it is not yet.
    pub(super) fn db(&self) -> anyhow::Result<Arc<Database>> {
        if self.store.get().is_none() {
            // One thread opens it; the loser's of two would be refused by the network.
            let _ = self.store.set(Store::open(&self.url)?);
        }
        Ok(self.store.get().context("the database was not opened")?.db.clone())
    }

    /// Deletes the cell's queues where the database stays, and the directory where it does not.
    pub(super) fn clean_up(mut self) -> anyhow::Result<()> {
        let Some(directory) = self.throw_away.take() else {
            let name = self.name.clone();
            return self.delete_queues().with_context(|| {
                format!("cannot delete the bench's queues in {:?}; their names begin with {name}", self.url)
            });
        };
        drop(self.store.take());
        let path = directory.path().to_owned();
        directory.close().with_context(|| format!("cannot remove {}", path.display()))
    }

    fn delete_queues(&self) -> anyhow::Result<()> {
        let queues =
            std::mem::take(&mut *self.queues.lock().expect("nothing panics while it holds the list"));
        if queues.is_empty() {
            return Ok(());
        }
        let db = self.db()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            for some in queues.chunks(TOGETHER) {
                tokio::time::timeout(PATIENCE, delete(&db, some))
                    .await
                    .context("the database does not answer")??;
            }
            Ok(())
        })
    }
}

/// Deletes queues, again and again until nothing of them is there.
async fn delete(db: &Database, queues: &[Queue]) -> anyhow::Result<()> {
    for _ in 0..ROUNDS {
        clear(db, queues).await?;
        sleep(PAUSE).await;
        if are_gone(db, queues).await? {
            return Ok(());
        }
    }
    anyhow::bail!("something goes on writing to them")
}

async fn clear(db: &Database, queues: &[Queue]) -> anyhow::Result<()> {
    let policy = RetryPolicy::default();
    let deleted = retry::run(db, &policy, |tr| {
        queues.iter().for_each(|queue| queue.delete(&tr));
        std::future::ready((tr, Ok(())))
    });
    deleted.await?;
    Ok(())
}

async fn are_gone(db: &Database, queues: &[Queue]) -> anyhow::Result<bool> {
    let mut tr = db.create_trx()?;
    for queue in queues {
        let (begin, end) = queue.range();
        let range = foundationdb::RangeOption { limit: Some(1), ..(begin, end).into() };
        let found = loop {
            match tr.get_range(&range, 1, true).await {
                Ok(rows) => break rows.len(),
                Err(error) => tr = tr.on_error(error).await?,
            }
        };
        if found > 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A session of its own at a queue.
pub(super) fn session(queue: &Queue) -> Session {
    Session::new(queue.clone())
}
