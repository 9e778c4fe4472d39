//! Where a run takes place: the database, the queues, and the files of all who take part.

use std::{
    collections::BTreeSet,
    fs::File,
    path::PathBuf,
    process::{Command, Stdio},
    time::{SystemTime, UNIX_EPOCH},
};

use fdb_embedded::{Holdings, SCHEME};

use super::{
    payload::Name,
    plan::{Crew, Mood, Queue, Worker, config, layouts},
    process::Process,
    records::{Record, printed, recorded},
    schedule::{self, Occurrences, RECORDS, Schedule, TICK},
    storm::Batch,
};
use crate::support::{Database, Ran, Random, helper, kvqueue};

/// The data file may have this many bytes, and for each byte of its rows so many more: at the height of the storm there are more rows.
const FILE_BYTES: u64 = 32 << 20;
const FILE_FACTOR: u64 = 8;

/// What producers write to stderr, each line after the producer's number.
pub(super) const PRODUCERS_LOG: &str = "producers.log";

/// So many lines of a process that has failed are shown.
const LAST_WORDS: usize = 10;

/// The time of the day, in ms since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis().try_into().unwrap()
}

/// The database and the files of a run. Kept when the test fails.
pub(super) struct Arena {
    pub(super) db: Database,
    pub(super) queues: Vec<Queue>,
    schedule: Schedule,
    /// Between these times the schedule was made, in ms.
    made: (u64, u64),
}

impl Arena {
    pub(super) fn new(random: &mut Random) -> Self {
        let queues = Queue::draw(random);
        let schedule = Schedule::draw(random, &queues);
        let mut arena = Self { db: Database::new(), queues, schedule, made: (0, 0) };
        for directory in [arena.records(), arena.prints(), arena.sockets()] {
            std::fs::create_dir(directory).unwrap();
        }
        Worker::ALL.into_iter().for_each(|worker| arena.configure(worker, Mood::FIRST));
        std::fs::write(arena.layouts(), layouts(&arena.queues)).unwrap();
        arena.make_schedule();
        arena
    }

    fn make_schedule(&mut self) {
        let began = now();
        let payload = Name::of_time(self.schedule.queue, 0).payload();
        self.answer(&self.schedule.add(self.ticking(), &payload));
        self.made = (began, now());
    }

    /// The queue with the schedule.
    fn ticking(&self) -> &str {
        &self.queues[self.schedule.queue].name
    }

    /// What became of the schedule's times, the oldest first.
    fn occurrences(&self) -> Vec<Occurrences> {
        let records = RECORDS.to_string();
        schedule::read(&self.answer(&["schedule", "history", self.ticking(), TICK, "-n", &records, "--json"]))
    }

    /// Whether the schedule has fired until this time, in ms, or what it has not is recorded.
    pub(super) fn has_fired_until(&self, end: u64) -> bool {
        self.occurrences().last().is_some_and(|last| last.to >= end)
    }

    /// Whether each of these batches has called back.
    pub(super) fn have_called_back(&self, batches: &[Batch]) -> bool {
        let homes: BTreeSet<usize> = batches.iter().map(|batch| batch.callback.queue).collect();
        let list = |home: usize| self.answer(&["batch", "list", &self.queues[home].name, "--json"]);
        let open: String = homes.into_iter().map(list).collect();
        batches.iter().filter_map(|batch| batch.id.as_ref()).all(|id| !open.contains(id))
    }

    /// Lets the schedule fire no more.
    pub(super) fn pause_schedule(&self) {
        self.answer(&["schedule", "pause", self.ticking(), TICK]);
    }

    /// The items that the schedule has pushed, and the time in ms before which it has forgotten them; and what is wrong with it. It had a
    /// daemon after `end`.
    pub(super) fn fired(&self, end: u64) -> ((BTreeSet<Name>, u64), Vec<String>) {
        let occurrences = self.occurrences();
        let fired = schedule::fired(self.schedule.queue, &occurrences);
        let wrong = schedule::check(&occurrences, self.made, end);
        ((fired, schedule::forgotten_before(&occurrences)), wrong)
    }

    /// What an embedded database holds although no process uses it any more; also a file that is too large for its rows.
    pub(super) fn left_over(&self) -> Vec<String> {
        if !self.db.url.starts_with(SCHEME) {
            return Vec::new();
        }
        let _open = self.db.open();
        let held = Holdings::at_rest(&self.db.url).unwrap();
        let mut left: Vec<_> =
            held.left_over().iter().map(|what| format!("the database has {what}")).collect();
        if held.data_file > FILE_BYTES + FILE_FACTOR * held.rows {
            left.push(format!("the data file has {} bytes for {} of rows", held.data_file, held.rows));
        }
        println!("chaos: {} bytes of rows in a file of {}", held.rows, held.data_file);
        left
    }

    /// Writes the configuration of such daemons, in one piece: others may be reading it.
    pub(super) fn configure(&self, worker: Worker, mood: Mood) {
        let (path, new) = (self.config(worker), self.db.file("new.toml"));
        std::fs::write(&new, config(&self.queues, worker, &self.records(), mood)).unwrap();
        std::fs::rename(new, path).unwrap();
    }

    /// The items that the helpers have handled.
    fn records(&self) -> PathBuf {
        self.db.file("records")
    }

    /// The items that the program has handled.
    fn prints(&self) -> PathBuf {
        self.db.file("prints")
    }

    /// Where daemons listen for workers over HTTP.
    fn sockets(&self) -> PathBuf {
        self.db.file("http")
    }

    fn config(&self, worker: Worker) -> PathBuf {
        self.db.file(&format!("{worker:?}.toml"))
    }

    /// The configuration of commands.
    fn layouts(&self) -> PathBuf {
        self.db.file("layouts.toml")
    }

    pub(super) fn recorded(&self) -> Vec<Record> {
        recorded(&self.records())
    }

    pub(super) fn printed(&self) -> Vec<Result<Name, String>> {
        printed(&self.prints())
    }

    /// Starts a daemon.
    pub(super) fn daemon(&self, worker: Worker, number: u64, until_empty: bool) -> Process {
        let config = self.config(worker);
        let name = format!("{worker:?}-{number}").to_lowercase();
        let mut command = match worker {
            Worker::Program => {
                let mut command = kvqueue(&self.db, &["run", "-v", "--config", config.to_str().unwrap()]);
                command.args(until_empty.then_some("--until-empty"));
                command.stdout(Process::log(&self.prints().join(&name)));
                command
            }
            Worker::Puller => {
                let queue = self.queues.iter().find(|queue| queue.crew == Crew::Pullers).unwrap();
                let mut command = helper(&self.db, "chaos::puller");
                command.arg(self.sockets()).arg(&queue.name).arg(queue.lease.as_millis().to_string());
                command.arg(self.records()).arg(number.to_string()).stdout(Stdio::null());
                command
            }
            Worker::Helper | Worker::Keeper | Worker::Steady => {
                let mut command = helper(&self.db, "chaos::daemon");
                command.arg(config).args(until_empty.then_some("until-empty"));
                if worker == Worker::Helper {
                    let socket = self.sockets().join(number.to_string());
                    command.env("KVQUEUE_HTTP__LISTEN", format!("unix:{}", socket.display()));
                }
                command.stdout(Stdio::null());
                command
            }
        };
        if !until_empty {
            Self::weather(&mut command, number);
        }
        Process::start(name.clone(), command.stdin(Stdio::null()).stderr(self.log(&format!("{name}.log"))))
    }

    /// If every third process hosts the engine, some commits fail or have an unknown outcome.
    pub(super) fn weather(command: &mut Command, number: u64) {
        if number.is_multiple_of(3) {
            let faults = format!("seed={number},unknown=0.02,conflict=0.02,too-old=0.01");
            command.env("FDB_EMBEDDED_FAULTS", faults);
        }
    }

    /// A file next to the database for a process's output.
    pub(super) fn log(&self, name: &str) -> File {
        Process::log(&self.db.file(name))
    }

    /// The last lines that a process of this name has written to stderr.
    pub(super) fn last_words(&self, name: &str) -> String {
        let (file, prefix) = match name.strip_prefix("producer-") {
            Some(number) => (PRODUCERS_LOG.to_owned(), format!("{number}: ")),
            None => (format!("{name}.log"), String::new()),
        };
        let log = std::fs::read(self.db.file(&file)).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().filter_map(|line| line.strip_prefix(&prefix)).collect();
        lines[lines.len().saturating_sub(LAST_WORDS)..].join("\n")
    }

    /// The log events of these daemons about leases that they have lost in the database. A holder that its own clock tells first, because the
    /// database did not answer for the whole lease, has not extended it in time.
    pub(super) fn lost_leases(&self, worker: Worker) -> Vec<String> {
        let start = format!("{worker:?}-").to_lowercase();
        let mut lost = Vec::new();
        for entry in std::fs::read_dir(self.db.directory.path()).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if name.starts_with(&start) && name.ends_with(".log") {
                let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
                let lines = text.lines().filter(|line| {
                    line.contains("[lease_lost]") && line.contains("expired_in_database=true")
                });
                lost.extend(lines.map(|line| format!("{name}: {line}")));
            }
        }
        lost
    }

    /// A command of the program.
    pub(super) fn command(&self, args: &[&str]) -> Command {
        let mut command = kvqueue(&self.db, args);
        command.arg("--config").arg(self.layouts());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(self.log("commands.log"));
        command
    }

    /// What a command of the program prints.
    pub(super) fn answer(&self, args: &[&str]) -> String {
        let mut command = self.command(args);
        let ran: Ran = command.stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap().into();
        ran.ok()
    }

    /// Whether nothing is left of a queue but dead letters.
    pub(super) fn is_at_rest(&self, queue: &str) -> bool {
        let counts: serde_json::Value =
            serde_json::from_str(&self.answer(&["len", queue, "--json"])).unwrap();
        ["ready", "running", "waiting"].iter().all(|state| counts[state] == 0)
    }

    /// The process that hosts an embedded database.
    pub(super) fn host(&self) -> Option<u32> {
        std::fs::read_to_string(self.db.file("data/lock")).ok()?.trim().parse().ok()
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.db.directory.disable_cleanup(true);
            // On a cluster, queues under a prefix would be deleted.
            eprintln!("queues: {} {}", self.db.url, std::mem::take(&mut self.db.prefix));
            eprintln!("logs, records and database are kept in {}", self.db.directory.path().display());
        }
    }
}
