//! The directory, or the cluster and its client library.

use std::{error::Error, fs, io, path::Path, time::Duration};

use fdb_embedded::doctor;
use foundationdb::{Database, FdbError, RangeOption, Transaction, options::TransactionOption, tuple::unpack};
use kvqueue_queue::{Queue, QueueError, RowCounter};
use serde_json::Value;
use tokio::{runtime, time::timeout};

use super::{
    clock::{self, Moment},
    dead_letters::DeadLetters,
    deadline::Deadline,
    findings::{Findings, Found},
    queues::{Counters, Pauses},
    schedules::Schedules,
};
use crate::{
    base::causes::with_causes,
    cli::api_client::rough,
    config::Config,
    database::{Patience, Store},
};

/// How long a cluster may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The fix for versions that went back.
const RESTORED: &str = "do that before anything is pushed; docs/operations/70-move-and-back-up.md says why";

/// A cluster's notes of time and version, of every ten seconds.
const TIME_KEEPER: &[u8] = b"\xff\x02/timeKeeper/map/";

/// How many of them are looked at: ten minutes.
const MOMENTS: usize = 60;

/// The answer of a cluster.
struct Cluster {
    version: i64,
    /// The program of the container's first process, if that can be read.
    software: Option<String>,
    moments: Vec<Moment>,
}

/// Looks at the database that a configuration names. Returns its paused queues, as far as they can be known.
pub(super) fn look(config: &Config, deadline: Deadline, findings: &mut Findings) -> io::Result<Pauses> {
    let Some(directory) = fdb_embedded::embedded_directory(&config.database) else {
        return cluster(config, deadline, findings);
    };
    if !directory.try_exists().unwrap_or(true) {
        let text = format!("{} is not there yet", directory.display());
        findings.note(
            "directory",
            text,
            "the first push or daemon makes it; if it should be there, check the path",
        );
        return Ok(Pauses::default());
    }
    let prefix = config.prefix.as_bytes();
    let (mut rows, mut pauses) = (RowCounter::new(prefix), Pauses::default());
    let report = doctor::check_rows(&directory, deadline.left(PATIENCE), &mut |key, value| {
        rows.show(key, value);
        pauses.show(prefix, key);
    });
    let is_about = |about| report.findings.iter().any(|finding| finding.about == about);
    let (is_read, is_used) =
        (is_about("rows"), is_about("pages") && !is_about("host") && !is_about("structure"));
    for finding in report.findings {
        findings.add(finding.into());
    }
    clock::directory(&directory, findings);
    if is_read {
        Counters::of_rows(&rows, config).add_to(findings);
    } else if is_used {
        // As a guest of the process that holds it.
        match Store::open_within(&config.database, Patience::new(Some(deadline.left(PATIENCE)))) {
            Ok(store) => {
                let runtime = runtime()?;
                counters(&runtime, &store.db, config, deadline, findings);
                schedules(&runtime, &store.db, config, deadline, findings);
                dead_letters(&runtime, &store.db, config, deadline, findings);
                return Ok(paused(&runtime, &store.db, config, deadline));
            }
            Err(error) => findings.note("counters", format!("not compared: {error}"), "try again"),
        }
    }
    Ok(pauses)
}

fn runtime() -> io::Result<runtime::Runtime> {
    runtime::Builder::new_current_thread().enable_all().build()
}

/// The paused queues of a database that is used; none if it does not answer.
fn paused(runtime: &runtime::Runtime, db: &Database, config: &Config, deadline: Deadline) -> Pauses {
    let found = runtime.block_on(async { timeout(deadline.left(PATIENCE), Pauses::of(db, config)).await });
    found.ok().and_then(Result::ok).unwrap_or_default()
}

/// Of a database that is used. Another finding says that it does not answer.
fn counters(
    runtime: &runtime::Runtime,
    db: &Database,
    config: &Config,
    deadline: Deadline,
    findings: &mut Findings,
) {
    let patience = deadline.left(PATIENCE);
    match within(runtime, 2 * patience, Counters::of(db, config, patience)) {
        Ok(found) => found.add_to(findings),
        Err(why) => findings.note(
            "counters",
            format!("not compared: {why}"),
            "kvqueue recount --dry-run QUEUE compares those of one queue",
        ),
    }
}

/// The same of its schedules.
fn schedules(
    runtime: &runtime::Runtime,
    db: &Database,
    config: &Config,
    deadline: Deadline,
    findings: &mut Findings,
) {
    let patience = deadline.left(PATIENCE);
    match within(runtime, 2 * patience, Schedules::of(db, config, patience)) {
        Ok(found) => found.add_to(findings),
        Err(why) => findings.note("schedules", format!("not looked at: {why}"), "try again"),
    }
}

/// The same of dead letters that will be removed.
fn dead_letters(
    runtime: &runtime::Runtime,
    db: &Database,
    config: &Config,
    deadline: Deadline,
    findings: &mut Findings,
) {
    let patience = deadline.left(PATIENCE);
    match within(runtime, 2 * patience, DeadLetters::of(db, config, patience)) {
        Ok(found) => found.add_to(findings),
        Err(why) => findings.note("dead", format!("not looked at: {why}"), "try again"),
    }
}

/// What is found in this time, or why it is not.
fn within<T, E: Error + 'static>(
    runtime: &runtime::Runtime,
    most: Duration,
    finding: impl Future<Output = Result<T, E>>,
) -> Result<T, String> {
    match runtime.block_on(async { timeout(most, finding).await }) {
        Ok(found) => found.map_err(|error| with_causes(&error)),
        Err(_) => Err("the database does not answer in time".to_owned()),
    }
}

fn cluster(config: &Config, deadline: Deadline, findings: &mut Findings) -> io::Result<Pauses> {
    let patience = deadline.left(PATIENCE);
    let store = match Store::open_within(&config.database, Patience::new(Some(patience))) {
        Ok(store) => store,
        Err(error) => {
            findings.add(Found::unopened(&error));
            return Ok(Pauses::default());
        }
    };
    let runtime = runtime()?;
    let answer = runtime.block_on(async { timeout(deadline.left(patience), ask(&store.db)).await });
    let library = fdb_embedded::client_version();
    match answer {
        Ok(Ok(Cluster { version, software, moments })) => {
            let runs =
                software.as_ref().map(|software| format!(", FoundationDB {software}")).unwrap_or_default();
            findings.fine("cluster", format!("it answers: read version {version}{runs}"));
            judge_library(library.as_deref(), software.as_deref(), findings);
            clock::cluster(&moments, version, findings);
            let queues = runtime.block_on(async {
                timeout(deadline.left(PATIENCE), check_versions(&store.db, config)).await
            });
            if let Ok(Err(error)) = queues {
                findings.problem("versions", error.to_string(), RESTORED);
            }
            counters(&runtime, &store.db, config, deadline, findings);
            schedules(&runtime, &store.db, config, deadline, findings);
            dead_letters(&runtime, &store.db, config, deadline, findings);
            return Ok(paused(&runtime, &store.db, config, deadline));
        }
        Ok(Err(error)) => {
            let advice = "look at fdbcli --exec 'status details' with the same cluster file";
            findings.problem("cluster", format!("it refuses: {error}"), advice);
            judge_library(library.as_deref(), None, findings);
        }
        Err(_) => {
            let text = format!("no answer within {}", rough(patience));
            let advice = "check the addresses in the cluster file, whether fdbserver runs there, and whether the client \
                          library is of its version";
            findings.problem("cluster", text, advice);
            judge_library(library.as_deref(), None, findings);
        }
    }
    Ok(Pauses::default())
}

/// Whether versions are ahead of the items of all configured queues. What else is wrong with a queue is for others to find.
async fn check_versions(db: &Database, config: &Config) -> Result<(), QueueError> {
    let tr = db.create_trx()?;
    for (name, queue) in &config.queues {
        let Ok(queue) = Queue::of_kind(config.prefix.as_bytes(), name.as_bytes(), queue.layout()) else {
            continue;
        };
        if let Err(error @ QueueError::VersionsWentBack { .. }) = queue.check_versions(&tr).await {
            return Err(error);
        }
    }
    Ok(())
}

async fn ask(db: &Database) -> Result<Cluster, FdbError> {
    let tr = db.create_trx()?;
    tr.set_option(TransactionOption::ReadSystemKeys)?;
    let version = tr.get_read_version().await?;
    let status = tr.get(b"\xff\xff/status/json", true).await?;
    let status: Option<Value> = status.and_then(|status| serde_json::from_slice(&status).ok());
    let processes = status.as_ref().and_then(|status| status.pointer("/cluster/processes")?.as_object());
    let software =
        processes.and_then(|processes| processes.values().find_map(|process| process["version"].as_str()));
    Ok(Cluster { version, software: software.map(str::to_owned), moments: moments(&tr).await? })
}

/// The last moments, in their order.
async fn moments(tr: &Transaction) -> Result<Vec<Moment>, FdbError> {
    let end = [&TIME_KEEPER[..TIME_KEEPER.len() - 1], b"0"].concat();
    let range = RangeOption { reverse: true, limit: Some(MOMENTS), ..(TIME_KEEPER.to_vec(), end).into() };
    let rows = tr.get_range(&range, 1, true).await?;
    let moment = |key: &[u8], value: &[u8]| {
        Some(Moment { time: unpack(key.get(TIME_KEEPER.len()..)?).ok()?, version: unpack(value).ok()? })
    };
    Ok(rows.iter().rev().filter_map(|row| moment(row.key(), row.value())).collect())
}

/// A client speaks to clusters of its own release, the first two numbers of a version.
fn judge_library(library: Option<&str>, software: Option<&str>, findings: &mut Findings) {
    let Some(library) = library else { return };
    let release = |version: &str| version.split('.').take(2).collect::<Vec<_>>().join(".");
    let at = loaded_from().map(|path| format!(" at {path}")).unwrap_or_default();
    match software {
        Some(software) if release(software) != release(library) => findings.problem(
            "library",
            format!("libfdb_c.so{at} is {library}, and the cluster runs {software}"),
            format!("install the foundationdb-clients package of release {}", release(software)),
        ),
        _ => findings.fine("library", format!("libfdb_c.so{at} is {library}")),
    }
}

/// The file that the client library was loaded from.
fn loaded_from() -> Option<String> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let mut files = maps.lines().filter_map(|line| line.find('/').map(|start| &line[start..]));
    let is_client = |path: &&str| {
        Path::new(path).file_name().is_some_and(|name| name.to_string_lossy().starts_with("libfdb_c"))
    };
    files.find(is_client).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_of_another_release_is_a_problem() {
        let judge = |software| {
            let mut findings = Findings::default();
            judge_library(Some("7.3.79"), software, &mut findings);
            findings.lines()
        };
        insta::assert_snapshot!(judge(Some("7.3.63")), @"library   fine     libfdb_c.so is 7.3.79");
        insta::assert_snapshot!(judge(None), @"library   fine     libfdb_c.so is 7.3.79");
        insta::assert_snapshot!(judge(Some("7.1.61")), @"library   PROBLEM  libfdb_c.so is 7.3.79, and the cluster runs 7.1.61; install the foundationdb-clients package of release 7.1");
    }
}
