//! Opening the database that a configuration names, and waiting for its answers; names of queues; who records the ends of items, and waits for them.

pub(crate) mod absent_queues;
pub(crate) mod attempt;
mod identity;
pub(crate) mod item_history;
pub(crate) mod item_wait;
pub(crate) mod owner;
mod queue_names;
mod space;

use std::{
    fs::File,
    net::SocketAddr,
    path::{Path, PathBuf},
    pin::{Pin, pin},
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use fdb_embedded::{doctor, space::Space};
use foundationdb::Database;
use tokio::time::timeout;

pub(crate) use self::identity::identity;
pub(crate) use self::queue_names::queue_names;
pub(crate) use self::space::{MAKE_SPACE, Refused, limit, limit_beyond_disk, origin, refusal, size};
use crate::config::{duration, is_daemon, nearest};

/// How many queues a process reads at a time.
pub(crate) const QUEUES_AT_A_TIME: usize = 16;

/// How long an answer of the database may take before it is logged.
pub(crate) const SILENCE: Duration = Duration::from_secs(5);

/// This part of the limit is left for an answer, however long the opening took.
const LEAST: u32 = 10;

/// FoundationDB's `io_error`: an embedded database returns it when its storage has failed and cannot be opened again for seconds, or at all.
pub(crate) const STORAGE_FAILED: i32 = 1510;

/// An open database, and the client network under it. One per process.
pub struct Store {
    /// The database.
    pub db: Arc<Database>,
    /// After `db`: the network goes last.
    _network: fdb_embedded::Network,
}

/// A database cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot open database {url:?}: {reason}")]
pub struct OpenError {
    url: String,
    reason: String,
}

impl OpenError {
    /// The directory has no database, and this command does not create one.
    pub(crate) fn no_database(directory: &Path) -> Self {
        Self {
            url: format!("{}{}", fdb_embedded::SCHEME, directory.display()),
            reason: "there is no database in this directory; start the daemon or push an item to create it, or check --config and --database"
                .to_owned(),
        }
    }

    /// The directory has no database, and is the default one: that of the configuration that the command should have had may be another.
    pub(crate) fn unnamed(directory: &Path, may_create: bool) -> Self {
        let url = format!("{}{}", fdb_embedded::SCHEME, directory.display());
        let create = if may_create { "--create".to_owned() } else { format!("--database {url}") };
        let reason = format!(
            "there is no database in this directory, and nothing says that it belongs here; name the configuration with --config or KVQUEUE_CONFIG, or make the database with {create}"
        );
        Self { url, reason }
    }
}

/// The directory of an embedded database that is not there yet. Opening the database makes it.
pub(crate) fn missing(url: &str) -> Option<PathBuf> {
    let directory = fdb_embedded::embedded_directory(url)?;
    // The process that has the lock is about to make it.
    let is_there = fdb_embedded::is_database(&directory) || doctor::host_process(&directory).is_some();
    (!is_there).then_some(directory)
}

impl Store {
    /// Opens `embedded:DIRECTORY`, or the cluster that a cluster file names.
    pub fn open(url: &str) -> Result<Self, OpenError> {
        let error = |reason| OpenError { url: url.to_owned(), reason };
        let network = fdb_embedded::Network::start()
            .map_err(|problem| error(format!("the client network does not start: {problem}")))?;
        Ok(Self { db: Arc::new(database(url)?), _network: network })
    }

    /// The same, but waits no longer than this.
    pub(crate) fn open_within(url: &str, patience: Patience) -> Result<Self, OpenError> {
        let name = url.to_owned();
        within(url, patience, move || Self::open(&name))
    }

    /// Opens another database on the same network, and waits no longer than this. Its handle goes before this.
    pub(crate) fn also(&self, url: &str, patience: Patience) -> Result<Arc<Database>, OpenError> {
        let name = url.to_owned();
        within(url, patience, move || database(&name).map(Arc::new))
    }
}

fn database(url: &str) -> Result<Database, OpenError> {
    let error = |reason| OpenError { url: url.to_owned(), reason };
    if fdb_embedded::embedded_directory(url).is_none() {
        if let Some(meant) = suggestion(url) {
            return Err(error(meant));
        }
        // Without the file, the client library opens the database, and only its first answer is an error.
        File::open(url).map_err(|problem| {
            error(format!(
                "cannot read this cluster file: {problem}; name an existing one, or embedded:DIRECTORY"
            ))
        })?;
    }
    // The engine's error is more precise than the error code.
    Database::from_path(url).map_err(|code| {
        let reason = fdb_embedded::open_error().unwrap_or_else(|| code.to_string());
        let obstacle =
            fdb_embedded::embedded_directory(url).and_then(|directory| owner::obstacle(&directory));
        error(obstacle.into_iter().fold(reason, |reason, obstacle| format!("{reason}; {obstacle}")))
    })
}

/// What is wrong with the cluster file that a configuration names, as far as that is seen without opening it.
pub(crate) fn no_cluster_file(url: &str) -> Option<String> {
    if fdb_embedded::embedded_directory(url).is_some() || is_daemon(url) {
        return None;
    }
    suggestion(url).or_else(|| (!Path::new(url).exists()).then(|| "there is no such cluster file".to_owned()))
}

/// The hint for a name that is not a cluster file, but looks like something else.
fn suggestion(url: &str) -> Option<String> {
    if url == fdb_embedded::SCHEME.trim_end_matches(':') {
        return Some(format!("no directory is named; did you mean {}./kvqueue-data?", fdb_embedded::SCHEME));
    }
    if is_daemon(url) {
        let text = "this is the URL of a daemon, and this command opens the database itself; run it where the database is, or send the request that \
            docs/API.md has for it";
        return Some(text.to_owned());
    }
    if url.rsplit('/').next().is_some_and(|name| name.parse::<SocketAddr>().is_ok()) {
        let address = url.rsplit('/').next().unwrap_or(url);
        return Some(format!("there is no such cluster file; did you mean the daemon at http://{address}?"));
    }
    if let Some(directory) = misspelt_scheme(url) {
        return Some(format!(
            "there is no such cluster file; did you mean {}{directory}?",
            fdb_embedded::SCHEME
        ));
    }
    let path = Path::new(url);
    let is_directory = path.is_dir();
    // Cluster files are called fdb.cluster and the like.
    let may_become_one = !path.exists() && path.extension().is_none();
    let what =
        if is_directory { "it is a directory, not a cluster file" } else { "there is no such cluster file" };
    (is_directory || may_become_one).then(|| format!("{what}; did you mean {}{url}?", fdb_embedded::SCHEME))
}

/// The directory behind a scheme that is nearly ours. Such a name may have been taken for a path, and have another before it.
fn misspelt_scheme(url: &str) -> Option<&str> {
    let (before, directory) = url.split_once(':')?;
    let scheme = before.rsplit('/').next().unwrap_or(before);
    let ours = fdb_embedded::SCHEME.trim_end_matches(':');
    let is_near = nearest(&scheme.to_lowercase(), [ours].into_iter()).is_some();
    (is_near && !Path::new(url).exists()).then_some(directory)
}

/// Opens on a thread of its own if there is a limit. An opening that lasts longer is left to the end of the process.
fn within<T: Send + 'static>(
    url: &str,
    patience: Patience,
    open: impl FnOnce() -> Result<T, OpenError> + Send + 'static,
) -> Result<T, OpenError> {
    let (Some(limit), Some(left)) = (patience.limit, patience.left()) else { return open() };
    let error = |reason| OpenError { url: url.to_owned(), reason };
    let (sender, receiver) = mpsc::channel();
    let thread = thread::Builder::new().name("kvqueue-open".to_owned()).spawn(move || {
        // It has no receiver when the limit has passed.
        drop(sender.send(open()));
    });
    thread.map_err(|problem| error(format!("cannot start a thread: {problem}")))?;
    let opened = receiver.recv_timeout(left);
    opened.unwrap_or_else(|_| {
        Err(error(format!(
            "it has not answered within {} (--timeout); {}",
            duration::format(limit),
            mend(url)
        )))
    })
}

/// The fix for a database that does not answer.
fn mend(url: &str) -> String {
    let holder = fdb_embedded::embedded_directory(url).and_then(|directory| doctor::host_process(&directory));
    let is_stopped = holder.as_ref().is_some_and(|holder| holder.is_stopped);
    let full = if is_stopped { None } else { read_only(url) };
    full.or_else(|| Some(holder?.advice()))
        .unwrap_or_else(|| "check that it runs and can be reached".to_owned())
}

/// Why no commit to the database at `url` can succeed, and the fix. `None` if no such reason is known.
fn read_only(url: &str) -> Option<String> {
    let directory = fdb_embedded::embedded_directory(url)?;
    let space = Space::known(&directory).ok().filter(|space| space.is_read_only)?;
    refusal(&directory, &space)
}

/// Why the storage of an embedded database failed, as far as this process knows.
pub(crate) fn storage_failure() -> String {
    let reason = fdb_embedded::last_failure();
    reason.unwrap_or_else(|| "another process hosts it, and its log says why".to_owned())
}

/// The database has not answered in the time that `--timeout` allows.
#[derive(Clone, Debug, thiserror::Error)]
#[error("database {url:?} has not answered within {} (--timeout); {mend}", duration::format(*.limit))]
pub struct NoAnswer {
    url: String,
    limit: Duration,
    mend: String,
}

impl NoAnswer {
    /// The limit has passed just now.
    pub(crate) fn new(url: &str, limit: Duration) -> Self {
        Self { url: url.to_owned(), limit, mend: mend(url) }
    }
}

/// Logs that the database does not answer.
pub(crate) fn still_waiting(url: &str) {
    match read_only(url) {
        Some(why) => {
            tracing::warn!(
                event = "database_silent",
                reason = why,
                "cannot write to the database; still waiting"
            );
        }
        None => tracing::warn!(event = "database_silent", "the database does not answer; still waiting"),
    }
}

/// How long to wait for an answer of the database: for ever without a limit.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Patience {
    limit: Option<Duration>,
    spent: Duration,
}

impl Patience {
    pub(crate) fn new(limit: Option<Duration>) -> Self {
        Self { limit, spent: Duration::ZERO }
    }

    /// The limit, less what has been waited. One that comes late may still answer.
    fn left(self) -> Option<Duration> {
        self.limit.map(|limit| limit.saturating_sub(self.spent).max(limit / LEAST))
    }

    /// For an answer that has been waited for already, for so long: opening the database is a part of its first answer.
    pub(crate) fn after(self, spent: Duration) -> Self {
        Self { spent, ..self }
    }

    /// Waits for an answer, and logs when it takes long: a cluster that cannot be reached gives none at all, not even
    /// an error.
    ///
    /// # Errors
    /// The limit has passed. What was asked for may still happen.
    pub(crate) async fn wait<T>(self, url: &str, answer: impl Future<Output = T>) -> Result<T, NoAnswer> {
        let mut result = None;
        self.wait_for_end(url, pin!(async { result = Some(answer.await) })).await?;
        Ok(result.expect("the answer is there"))
    }

    /// The same for any future, compiled once.
    async fn wait_for_end(
        self,
        url: &str,
        mut answered: Pin<&mut dyn Future<Output = ()>>,
    ) -> Result<(), NoAnswer> {
        let began = Instant::now();
        let most = self.left();
        loop {
            let left = most.map(|most| most.saturating_sub(began.elapsed()));
            match timeout(left.unwrap_or(SILENCE).min(SILENCE), &mut answered).await {
                Ok(()) => return Ok(()),
                Err(_) => match (self.limit, most) {
                    (Some(limit), Some(most)) if began.elapsed() >= most => {
                        return Err(NoAnswer::new(url, limit));
                    }
                    _ => still_waiting(url),
                },
            }
        }
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_named_without_its_scheme_gets_a_suggestion() {
        let directory = tempfile::tempdir().unwrap();
        let there = directory.path().to_str().unwrap();
        assert_eq!(
            suggestion(there).unwrap(),
            format!("it is a directory, not a cluster file; did you mean embedded:{there}?")
        );
        let missing = "there is no such cluster file; did you mean embedded:./mydata?";
        assert_eq!(suggestion("./mydata").unwrap(), missing);
        assert!(suggestion("embedded").unwrap().ends_with("did you mean embedded:./kvqueue-data?"));
        for url in ["embeded:data", "/some/where/embeded:data", "Embedded:data", "emebdded:data"] {
            let meant = "there is no such cluster file; did you mean embedded:data?";
            assert_eq!(suggestion(url).as_deref(), Some(meant), "{url}");
        }
        let file = directory.path().join("there");
        std::fs::write(&file, "a:b@127.0.0.1:4500").unwrap();
        for url in [file.to_str().unwrap(), "/nowhere/fdb.cluster"] {
            assert_eq!(suggestion(url), None, "{url}");
        }
        assert_eq!(no_cluster_file("/nowhere/fdb.cluster").as_deref(), Some("there is no such cluster file"));
        for url in [file.to_str().unwrap(), "embedded:./not-there", "https://queues.example"] {
            assert_eq!(no_cluster_file(url), None, "{url}");
        }
    }
}
