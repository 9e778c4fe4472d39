//! Every message that a person sees: the help of each command, its output on success, its JSON, and how it refuses.
//!
//! Each command has a transcript in `snapshots/`, and there a part for each of its subcommands, with a database of its own. A part begins with `==` and its
//! command. The other lines that a person writes are:
//!
//! - `$ kvqueue …`: a run, whose output comes below. Words are separated by blanks; `DIR` is the directory of [`FILES`], `LETTER` the id of
//!   the first dead letter of queue `q`, and `BATCH` of its first batch. Behind `<<<` is its standard input, as a text of JSON.
//! - `~ kvqueue …`: a run whose output is shown without numbers, which differ from run to run.
//! - `before: …`: a run that prepares something. It has to go well, and is not shown.
//! - `daemon: …`: a daemon that listens and runs from here on.
//! - `file: NAME TEXT`: a file gets another text, as a text of JSON.
//!
//! A test writes the rest. To add a command, or accept what has changed: `INSTA_UPDATE=always cargo test --test it messages`, and read the difference.

pub(crate) mod mask;

use std::{
    collections::BTreeSet,
    fs,
    process::{Command, Stdio},
};

use crate::{
    support::{Database, Ran, commands, fake_program, kvqueue, serve_with},
    twins::is_operation,
};

/// Configurations.
const FILES: &[(&str, &str)] = &[
    ("good.toml", "[queues.q]\nhandler = 'log'\n"),
    ("unknown.toml", "[queues.q]\nhandler = 'lgo'\n"),
    ("broken.toml", "[queues.q\n"),
    ("cut.toml", "database = 'embedded:DI\n"),
    (
        "scheduled.toml",
        "schedule-owner = 'production'\n[queues.q]\nhandler = 'log'\n[queues.q.schedules.daily]\ncron = '0 7 * * 1-5'\nzone = 'Europe/Berlin'\n\
         payload-json = { report = 'daily' }\nmissed = 'all'\nmissed-window = '1d'\n",
    ),
    ("unscheduled.toml", "[queues.q]\nhandler = 'log'\n[queues.q.schedules.daily]\ncron = '0 7 * *'\n"),
    (
        "misspelt.toml",
        "[queues.q]\nhandler = 'log'\n[queues.q.schedules.daily]\nevery = '5m'\nmissed = 'never'\n",
    ),
    (
        "dead.toml",
        "log.level = 'error'\n[queues.q]\nhandler = 'exec'\nhandler-config.command = ['sh', '-c', 'echo bad address >&2; exit 65']\n",
    ),
    (
        "keyed.toml",
        "log.level = 'error'\n[queues.q]\nkind = 'keyed'\nhandler = 'exec'\nhandler-config.command = ['sh', '-c', 'echo bad address >&2; exit 65']\n",
    ),
    ("pull.toml", "[queues.q]\nhandler = 'pull'\n"),
    ("working.toml", "http.listen = 'unix:http.sock'\n[queues.q]\nhandler = 'pull'\n"),
    (
        "listening.toml",
        "http.listen = 'unix:http.sock'\nshutdown-timeout = '1s'\n[queues.q]\nhandler = 'log'\n",
    ),
];

/// The transcripts, with their names.
fn transcripts() -> Vec<(String, String)> {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/messages/snapshots");
    let files = fs::read_dir(directory).unwrap().map(|file| file.unwrap().path());
    // A run that fails leaves others.
    let mut found: Vec<_> = files
        .filter(|path| path.extension().is_some_and(|it| it == "snap"))
        .map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap();
            let name = name.strip_prefix("it__messages__").unwrap().to_owned();
            (name, fs::read_to_string(path).unwrap())
        })
        .collect();
    found.sort();
    found
}

/// A line of a transcript that a person writes.
enum Step<'a> {
    /// The part of a command begins.
    Part(&'a str),
    Before(&'a str),
    Runs {
        line: &'a str,
        input: String,
        is_measured: bool,
    },
    Daemon(&'a str),
    File(&'a str, String),
}

impl<'a> Step<'a> {
    /// `None` for a line that the test writes.
    fn read(line: &'a str) -> Option<Self> {
        let text = |json| serde_json::from_str(json).unwrap_or_else(|_| panic!("{line}: no text of JSON"));
        let runs = |rest: &'a str, is_measured| {
            let (line, input) = rest.split_once(" <<< ").unwrap_or((rest, "\"\""));
            Self::Runs { line, input: text(input), is_measured }
        };
        let behind = |begin| line.strip_prefix(begin);
        let ran = behind("$ kvqueue ").map(|rest| runs(rest, false));
        let ran = ran.or_else(|| behind("~ kvqueue ").map(|rest| runs(rest, true)));
        let part = || behind("== ").map(Self::Part);
        let before = || behind("before: ").map(Self::Before);
        let daemon = || behind("daemon: ").map(Self::Daemon);
        let file = || behind("file: ")?.split_once(' ').map(|(name, json)| Self::File(name, text(json)));
        ran.or_else(part).or_else(before).or_else(daemon).or_else(file)
    }
}

#[test]
fn messages_of_each_command_match_its_transcript() {
    for (name, known) in transcripts() {
        let mut made = String::new();
        let mut db = Database::embedded();
        // Until the part ends.
        let mut daemons = Vec::new();
        for line in known.lines() {
            let Some(step) = Step::read(line) else { continue };
            match &step {
                Step::Part(_) => {
                    daemons.clear();
                    db = Database::embedded();
                    FILES.iter().for_each(|(name, text)| fs::write(db.file(name), text).unwrap());
                    made.push_str(if made.is_empty() { "" } else { "\n" });
                }
                Step::Before(line) => drop(finished(&db, with_words(&db, line), "").ok()),
                Step::Daemon(line) => daemons.push(serve_with(with_words(&db, line), true)),
                Step::File(file, text) => fs::write(db.file(file), text).unwrap(),
                Step::Runs { .. } => {}
            }
            made.extend([line, "\n"]);
            if let Step::Runs { line, input, is_measured } = step {
                let ran = finished(&db, with_words(&db, line), &input);
                let text = mask::printed(&ran, &db, is_measured);
                let is_step = text.lines().any(|line| Step::read(line).is_some());
                assert!(!is_step, "{text}: this would be run the next time");
                made.push_str(&text);
                made.push('\n');
            }
        }
        insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!(name, made.trim_end()) });
    }
}

/// The messages of a command without a part are never reviewed. An operation shows more in the transcript of the [twins](crate::twins).
#[test]
fn every_command_has_its_part() {
    let transcripts = transcripts();
    let lines = transcripts.iter().flat_map(|(_, text)| text.lines()).filter_map(Step::read);
    let (mut parts, mut helped, mut shown) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let mut part = "";
    for step in lines {
        match step {
            Step::Part(name) => {
                part = name;
                assert!(parts.insert(name), "{name} has two parts");
            }
            Step::Runs { line, .. } if line.ends_with("--help") => _ = helped.insert(line.to_owned()),
            Step::Runs { .. } => _ = shown.insert(part.to_owned()),
            // Its output is a document.
            Step::Before(line) if line.starts_with(part) => _ = shown.insert(part.to_owned()),
            Step::Before(_) | Step::Daemon(_) | Step::File(..) => {}
        }
    }
    let commands: Vec<_> = commands();
    let words = |command: &str| command.trim_start_matches("kvqueue").trim_start().to_owned();
    for command in &commands {
        let help = format!("{} --help", words(command)).trim_start().to_owned();
        assert!(helped.contains(&help), "no transcript has `$ kvqueue {help}`");
        // Hidden, but somebody runs it.
        let is_leaf =
            command == "kvqueue bench" || !commands.iter().any(|it| it.starts_with(&format!("{command} ")));
        let is_shown = shown.contains(&words(command)) || is_operation(&words(command));
        assert!(!is_leaf || is_shown, "no transcript runs `{command}`");
    }
    let known: BTreeSet<_> = commands.iter().map(|command| words(command)).collect();
    let strange: Vec<_> =
        parts.into_iter().filter(|it| !known.contains(*it) && !["kvqueue", "man"].contains(it)).collect();
    assert!(strange.is_empty(), "parts of no command: {strange:?}");
}

/// The id of the first dead letter of queue `q`.
fn letter(db: &Database) -> String {
    let list = ran(db, &["dead", "list", "q", "--json"], "").ok();
    let first: serde_json::Value = serde_json::from_str(list.lines().next().unwrap()).unwrap();
    first["id"].as_str().unwrap().to_owned()
}

/// The id of the first batch of queue `q`.
fn batch(db: &Database) -> String {
    let list = ran(db, &["batch", "list", "q", "--json"], "").ok();
    let first: serde_json::Value = serde_json::from_str(list.lines().next().unwrap()).unwrap();
    first["id"].as_str().unwrap().to_owned()
}

/// The command of a line.
fn with_words(db: &Database, line: &str) -> Command {
    let directory = db.directory.path().to_str().unwrap();
    let letter = if line.contains("LETTER") { letter(db) } else { String::new() };
    let batch = if line.contains("BATCH") { batch(db) } else { String::new() };
    let word =
        |word: &str| word.replace("DIR", directory).replace("LETTER", &letter).replace("BATCH", &batch);
    let words: Vec<_> = line.split(' ').map(word).collect();
    let mut command = kvqueue(db, &words.iter().map(String::as_str).collect::<Vec<_>>());
    command.current_dir(db.directory.path());
    fake_program(db, &mut command, "systemctl", "echo LoadState=not-found");
    command
}

fn ran(db: &Database, words: &[&str], input: &str) -> Ran {
    finished(db, kvqueue(db, words), input)
}

/// Runs it with text for its standard input, and nothing of this terminal.
fn finished(db: &Database, mut command: Command, input: &str) -> Ran {
    let file = db.file("input");
    fs::write(&file, input).unwrap();
    command.env_remove("COLUMNS").stdin(fs::File::open(file).unwrap()).stdout(Stdio::piped());
    command.current_dir(db.directory.path()).output().unwrap().into()
}
