//! Running the program to its end.

use std::{
    ffi::OsString,
    io::Write,
    process::{Command, Output, Stdio},
    thread,
};

use super::Database;

/// The variable that selects a deliberately wrong version of the programs; see `.ci/mutants`.
const MUTANT: &str = "KVQUEUE_MUTANT";

/// The program on a database, with none of the settings that this process was given.
pub(crate) fn kvqueue(db: &Database, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvqueue"));
    clean(&mut command, db);
    command.args(args).args(["--database", &db.url]);
    command
}

/// Takes the settings out of a command's environment, and puts the database's prefix in.
pub(crate) fn clean(command: &mut Command, db: &Database) {
    let ours = |name: &OsString| name.as_encoded_bytes().starts_with(b"KVQUEUE_") && name != MUTANT;
    for (name, _) in std::env::vars_os().filter(|(name, _)| ours(name)) {
        command.env_remove(name);
    }
    for name in ["NOTIFY_SOCKET", "STATE_DIRECTORY", "WATCHDOG_USEC", "WATCHDOG_PID"] {
        command.env_remove(name);
    }
    // The machine may have little free disk space.
    command.env("FDB_EMBEDDED_MIN_FREE_SPACE", "0");
    // Many daemons run side by side here. A daemon listens only if the test asks it over HTTP.
    command.env("KVQUEUE_PREFIX", &db.prefix).env("KVQUEUE_HTTP__LISTEN", "off");
}

/// The result of a command.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    /// But for the line of `created`, which depends on who is the first to use a database.
    pub(crate) stderr: String,
    /// The directory in which it reports that it created the database.
    pub(crate) created: Option<String>,
}

/// How a command says that it created a database.
const CREATED: &str = "kvqueue: created the database in ";

impl Ran {
    /// stdout of a command that has to succeed.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.stdout
    }

    /// What a `push` that has to succeed says: the first line, without the id.
    #[track_caller]
    pub(crate) fn pushed(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.summary().to_owned()
    }

    /// What a `push` says: the first line of stdout, without the id.
    pub(crate) fn summary(&self) -> &str {
        let line = self.stdout.lines().next().unwrap_or_default();
        let has_id = |id: &str| id.len() == 24 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        line.rsplit_once(": ").filter(|(_, id)| has_id(id)).map_or(line, |(line, _)| line)
    }

    /// How many events with this code it logged, in either format.
    pub(crate) fn events(&self, code: &str) -> usize {
        events(&self.stderr, code)
    }

    /// stderr of a command that has to fail with this code.
    #[track_caller]
    pub(crate) fn failed(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{self:?}");
        self.stderr
    }
}

/// How many lines of a log, in either format, are of an event with this code.
pub(crate) fn events(log: &str, code: &str) -> usize {
    let (json, human) = (super::event_field(code), format!("[{code}]"));
    log.lines().filter(|line| line.contains(&json) || line.contains(&human)).count()
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let stderr = text(output.stderr);
        let (created, said): (Vec<_>, Vec<_>) =
            stderr.split_inclusive('\n').partition(|line| line.starts_with(CREATED));
        let created = created.first().map(|line| line.trim_start_matches(CREATED).trim_end().to_owned());
        Self { code: output.status.code(), stdout: text(output.stdout), stderr: said.concat(), created }
    }
}

/// Runs the program on a database.
pub(crate) fn run(db: &Database, args: &[&str]) -> Ran {
    kvqueue(db, args).stdin(Stdio::null()).output().unwrap().into()
}

/// The JSON output of a command that has to succeed.
#[track_caller]
pub(crate) fn object(db: &Database, args: &[&str]) -> serde_json::Value {
    serde_json::from_str(&run(db, &[args, &["--json"]].concat()).ok()).unwrap()
}

/// Runs the program with something to read.
pub(crate) fn run_with_input(db: &Database, args: &[&str], input: impl Into<Vec<u8>>) -> Ran {
    let mut child = kvqueue(db, args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.into();
    // A program that fails early does not read it all.
    let feeder = thread::spawn(move || stdin.write_all(&input).ok());
    let output = child.wait_with_output().unwrap();
    feeder.join().unwrap();
    output.into()
}

/// The id of a queue's first item.
pub(crate) fn first_id(db: &Database, queue: &str) -> String {
    let item: serde_json::Value = serde_json::from_str(&run(db, &["peek", queue, "--json"]).ok()).unwrap();
    item["id"].as_str().unwrap().to_owned()
}
