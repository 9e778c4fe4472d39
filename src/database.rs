//! Opening the database that a configuration names.

use std::{
    fs::File,
    path::Path,
    pin::pin,
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use fdb_embedded::{
    doctor,
    space::{Origin, Space},
};
use foundationdb::Database;
use tokio::time::timeout;

use crate::config::{Config, MinFreeSpace, duration};

/// How long an answer of the database may take before the log says so.
pub(crate) const SILENCE: Duration = Duration::from_secs(5);

/// This part of the limit is left for an answer, however long the opening took.
const LEAST: u32 = 10;

/// FoundationDB's `io_error`: an embedded database says it when its storage has failed and cannot be opened again for seconds, or at all.
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
    // The engine knows better than the error code what is wrong.
    Database::from_path(url)
        .map_err(|code| error(fdb_embedded::open_error().unwrap_or_else(|| code.to_string())))
}

/// What is said of a name that is no cluster file, but looks like something else.
fn suggestion(url: &str) -> Option<String> {
    if let Some((scheme, _)) = url.split_once("://") {
        // The path of a file may have been put before it.
        let scheme = scheme.rsplit('/').next().unwrap_or(scheme);
        return Some(format!(
            "kvqueue keeps its queues in a directory or on FoundationDB, not in {scheme}; write embedded:DIRECTORY, or the path of a \
             cluster file"
        ));
    }
    if url == fdb_embedded::SCHEME.trim_end_matches(':') {
        return Some(format!("no directory is named; did you mean {}./kvqueue-data?", fdb_embedded::SCHEME));
    }
    let path = Path::new(url);
    let is_directory = path.is_dir();
    // Cluster files are called fdb.cluster and the like.
    let may_become_one = !path.exists() && path.extension().is_none();
    let what =
        if is_directory { "it is a directory, not a cluster file" } else { "there is no such cluster file" };
    (is_directory || may_become_one).then(|| format!("{what}; did you mean {}{url}?", fdb_embedded::SCHEME))
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

/// What can be done about a database that does not answer.
fn mend(url: &str) -> String {
    let holder = fdb_embedded::embedded_directory(url).and_then(|directory| doctor::holder(&directory));
    holder.map_or_else(|| "check that it runs and can be reached".to_owned(), |holder| holder.mend())
}

/// A disk with less free space than this may be full, as far as a process can tell that does not host the database: commits that wait
/// for a checkpoint need some of it.
const NEARLY_FULL: u64 = 64 << 20;

/// Why a database has refused to store more (error 1042), and what can be done.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Its disk has too little space.
    Space(String),
    /// Too much waits to be written; that passes.
    Busy(String),
}

impl Refused {
    /// What the database at `url` has to say.
    pub(crate) fn why(url: &str) -> Self {
        let Some(directory) = fdb_embedded::embedded_directory(url) else {
            let text =
                "the cluster accepts no more data at the moment; try again, and see `fdbcli --exec status`";
            return Self::Busy(text.to_owned());
        };
        match Space::known(&directory) {
            Ok(space) => Self::judge(&directory, space),
            Err(error) => Self::Space(format!(
                "{} accepts no more data, and its free space is unknown: {error}; check that directory and its disk",
                directory.display(),
            )),
        }
    }

    /// The host knows whether it refuses for want of space. Others go by what is free.
    fn judge(directory: &Path, space: Space) -> Self {
        let is_full = space.is_full || space.refuses.unwrap_or(space.free < NEARLY_FULL);
        match refusal(directory, &Space { is_full, ..space }) {
            Some(refusal) => Self::Space(refusal),
            None => Self::Busy(format!(
                "{} accepts no more data at the moment ({}): too much waits to be written, or a quota is used up; try again",
                directory.display(),
                figures(&space),
            )),
        }
    }

    pub(crate) fn text(self) -> String {
        match self {
            Self::Space(text) | Self::Busy(text) => text,
        }
    }
}

/// What makes space on the disk of a database.
pub(crate) const MAKE_SPACE: &str = "free some space, let consumers empty its queues (`kvqueue resume` for those that are paused), or delete \
     dead letters (`kvqueue dead purge`)";

/// Why pushes are refused for want of disk space, and what can be done; none if they are not.
pub(crate) fn refusal(directory: &Path, space: &Space) -> Option<String> {
    let what = match (space.is_low(), space.is_full) {
        (true, _) => "has too little free space",
        (false, true) => "is full",
        (false, false) => return None,
    };
    let (directory, figures) = (directory.display(), figures(space));
    if space.is_read_only {
        return Some(format!(
            "the disk of {directory} is full ({figures}) and the database has no reserve, so it can only be read; free some space"
        ));
    }
    if space.min_free > space.total {
        let total = size(space.total);
        return Some(format!(
            "the disk of {directory} is smaller than its limit of free space ({figures}, the disk has {total}); lower min-free-space"
        ));
    }
    Some(format!("the disk of {directory} {what} ({figures}); {MAKE_SPACE}"))
}

fn figures(&Space { free, min_free, own, .. }: &Space) -> String {
    let own = if own == 0 { String::new() } else { format!(", {} reusable in the database", size(own)) };
    format!("{} free{own}, min-free-space is {}", size(free), size(min_free))
}

/// The limit of free space for people.
pub(crate) fn limit(min_free: u64) -> String {
    match min_free {
        0 => "no min-free-space".to_owned(),
        limit => format!("min-free-space {}", size(limit)),
    }
}

/// Where the limit of free space of a database is from, for people.
pub(crate) fn origin(space: &Space, config: &Config) -> &'static str {
    match space.origin {
        Origin::Variable => "from FDB_EMBEDDED_MIN_FREE_SPACE",
        Origin::File if config.min_free_space == MinFreeSpace::Bytes(space.min_free) => {
            "from the configuration"
        }
        Origin::File => "from the file min-free-space in the database's directory",
        Origin::Default => "the default",
        Origin::BadVariable => "the default, since FDB_EMBEDDED_MIN_FREE_SPACE is no size",
        Origin::BadFile => {
            "the default, since the file min-free-space in the database's directory is damaged"
        }
    }
}

/// Why the limit of free space in a configuration would refuse all pushes; none if it would not.
pub(crate) fn limit_beyond_disk(config: &Config) -> Option<String> {
    let MinFreeSpace::Bytes(limit) = config.min_free_space else { return None };
    let directory = std::path::absolute(fdb_embedded::embedded_directory(&config.database)?).ok()?;
    // A directory that is not there yet will be made on the file system of the one above it.
    let total = directory.ancestors().find_map(|above| Space::of(above).ok())?.total;
    (limit > total).then(|| {
        let (limit, total) = (size(limit), size(total));
        format!(
            "min-free-space is {limit}, and the disk of {} has {total}: all pushes would be refused; lower it, or leave the key out",
            directory.display()
        )
    })
}

/// Bytes for people.
pub(crate) fn size(bytes: u64) -> String {
    bytesize::ByteSize(bytes).display().iec().to_string()
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
pub(crate) fn still_waiting() {
    tracing::warn!(event = "database_silent", "the database does not answer; still waiting");
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
        let mut answer = pin!(answer);
        let began = Instant::now();
        let most = self.left();
        loop {
            let left = most.map(|most| most.saturating_sub(began.elapsed()));
            match timeout(left.unwrap_or(SILENCE).min(SILENCE), &mut answer).await {
                Ok(answer) => return Ok(answer),
                Err(_) => match (self.limit, most) {
                    (Some(limit), Some(most)) if began.elapsed() >= most => {
                        return Err(NoAnswer::new(url, limit));
                    }
                    _ => still_waiting(),
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
        for url in ["redis://localhost", "/etc/kvqueue/redis://localhost:6379/0"] {
            assert!(suggestion(url).unwrap().contains("not in redis; write embedded:DIRECTORY"), "{url}");
        }
        let file = directory.path().join("there");
        std::fs::write(&file, "a:b@127.0.0.1:4500").unwrap();
        for url in [file.to_str().unwrap(), "/nowhere/fdb.cluster"] {
            assert_eq!(suggestion(url), None, "{url}");
        }
    }

    /// A disk of 1 GiB.
    fn space(free: u64, min_free: u64, refuses: Option<bool>) -> Space {
        let (total, origin) = (1 << 30, Origin::File);
        Space { free, total, min_free, origin, own: 0, is_full: false, refuses, is_read_only: false }
    }

    #[test]
    fn a_refusal_is_for_want_of_space_only_where_space_is_short() {
        let judge = |space| Refused::judge(Path::new("/d"), space);
        // Its host refuses for want of space, or does not.
        assert!(
            matches!(judge(space(9 << 20, 0, Some(true))), Refused::Space(text) if text.contains("is full"))
        );
        assert!(matches!(judge(space(9 << 20, 0, Some(false))), Refused::Busy(_)));
        // Another process hosts it.
        assert!(matches!(judge(space(9 << 20, 0, None)), Refused::Space(_)));
        assert!(matches!(judge(space(900 << 20, 0, None)), Refused::Busy(_)));
        assert!(matches!(judge(space(500 << 20, 600 << 20, None)), Refused::Space(_)));
        assert!(matches!(Refused::why("/etc/foundationdb/fdb.cluster"), Refused::Busy(_)));
    }

    #[test]
    fn a_configured_limit_beyond_the_disk_is_found_before_the_directory_is_made() {
        let directory = tempfile::tempdir().unwrap();
        let database = format!("embedded:{}/not/made", directory.path().display());
        let problem = |min_free_space| {
            limit_beyond_disk(&Config { database: database.clone(), min_free_space, ..Config::default() })
        };
        assert_eq!([MinFreeSpace::Auto, MinFreeSpace::Bytes(1)].map(problem), [None, None]);
        let text = problem(MinFreeSpace::Bytes(u64::MAX)).unwrap();
        assert!(text.contains("all pushes would be refused; lower it"), "{text}");
    }

    #[test]
    fn the_advice_names_paused_queues_and_dead_letters_and_a_limit_beyond_the_disk() {
        let why = refusal(Path::new("/d"), &space(0, 600 << 20, None)).unwrap();
        for part in ["free some space", "kvqueue resume", "kvqueue dead purge"] {
            assert!(why.contains(part), "{why}");
        }
        let why = refusal(Path::new("/d"), &space(900 << 20, 2 << 30, None)).unwrap();
        assert!(why.ends_with("the disk has 1.0 GiB); lower min-free-space"), "{why}");
    }
}
