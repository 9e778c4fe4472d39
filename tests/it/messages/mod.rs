//! Every message that a person sees: the help of each command, its output on success, its JSON, and how it
//! refuses. `cases` lists what is run; a new command needs a line there.
//!
//! To accept what has changed: `INSTA_UPDATE=always cargo test --test it messages`, and read the difference.

mod cases;
pub(crate) mod mask;

use std::{
    collections::BTreeSet,
    fs,
    process::{Command, Stdio},
};

use self::cases::{CASES, FILES, Step};
use crate::support::{Database, Ran, commands, fake_program, kvqueue, serve_with};

#[test]
fn help_of_each_command_matches_its_snapshot() {
    let db = Database::embedded();
    for command in commands() {
        let words: Vec<_> = command.split(' ').skip(1).chain(["--help"]).collect();
        insta::assert_snapshot!(format!("help {command}").replace(' ', "-"), ran(&db, &words, "").ok());
    }
}

#[test]
fn output_of_each_command_matches_its_snapshot() {
    for (command, steps) in CASES {
        let db = Database::embedded();
        for (name, text) in FILES {
            fs::write(db.file(name), text).unwrap();
        }
        let mut talk = String::new();
        // Until all is said.
        let mut daemons = Vec::new();
        for step in *steps {
            match step {
                Step::Running(_) => daemons.push(serve_with(with_words(&db, step.line()), true)),
                _ => talk.push_str(&said(&db, step)),
            }
        }
        insta::assert_snapshot!(format!("says {command}").replace(' ', "-"), talk);
    }
}

/// The messages of a command without a case are never reviewed.
#[test]
fn every_command_has_a_message_case() {
    let commands = commands();
    let inner = |command: &&String| commands.iter().any(|it| it.starts_with(&format!("{command} ")));
    // Hidden, but somebody runs it.
    let leaves = commands.iter().filter(|command| !inner(command) || *command == "kvqueue bench");
    let leaves = leaves.map(|command| command.trim_start_matches("kvqueue ").to_owned());
    let wanted: BTreeSet<_> = leaves.chain(["man".to_owned()]).collect();
    let told: BTreeSet<_> = CASES.iter().map(|(command, _)| (*command).to_owned()).collect();
    assert_eq!(told, wanted);
}

/// A step as a person would see it: the command, its output, its messages, how it ended.
fn said(db: &Database, step: &Step) -> String {
    let (line, input) = (step.line(), step.input());
    if let Step::Becomes(file, text) = step {
        fs::write(db.file(file), text).unwrap();
        return String::new();
    }
    let ran = finished(db, with_words(db, line), input);
    match step {
        Step::Before(_) | Step::Running(_) | Step::Becomes(..) => {
            ran.ok();
            String::new()
        }
        Step::Says(_) | Step::Reads(..) => transcript(line, &ran, |text| mask::names(text, db)),
        Step::Measures(_) => transcript(line, &ran, |text| mask::numbers(&mask::names(text, db))),
    }
}

fn transcript(line: &str, ran: &Ran, mask: impl Fn(&str) -> String) -> String {
    let mut text = format!("$ kvqueue {line}\n");
    text.extend(mask(&ran.stdout).lines().map(|line| format!("{line}\n")));
    text.extend(mask(&ran.stderr).lines().map(|line| format!("! {line}\n")));
    match ran.code {
        Some(0) => {}
        code => text.push_str(&format!("exit code {}\n", code.unwrap())),
    }
    text + "\n"
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
