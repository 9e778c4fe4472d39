//! The audit trail by the commands: which of them leave a record, and how it is shown.

use std::{collections::BTreeSet, fs};

use serde_json::Value;

use crate::{
    http::with_dead,
    ordered::with_blocked,
    support::{Database, commands, run},
    twins::is_operation,
};

/// Commands that are no operation and leave a record, with an example and the action of its record. `DIR` is the test's directory. The transcript of the
/// [twins](crate::twins) has the records of operations.
const RECORDED: &[(&str, &str, &str)] = &[
    ("schedule add", "schedule add q nightly --cron @daily", "schedule.put"),
    ("recount", "recount q", "queue.recount"),
    ("import", "import imported --input DIR/q.ndjson", "queue.import"),
    ("migrate", "migrate --from URL --to embedded:DIR/new --queue q", "queue.migrate"),
];

/// Commands that are no operation and leave none, with an example that goes well on every database. Where there is none, the command asks a daemon, or uses
/// a database of its own.
const UNRECORDED: &[(&str, &str)] = &[
    ("run", "run --queue empty --handler log --until-empty"),
    ("push", "push q one"),
    ("pop", "pop q"),
    ("list", "list"),
    ("export", "export q"),
    ("batch new", "batch new --then later:done"),
    ("schedule next", "schedule next later daily"),
    ("audit", "audit"),
    ("recount", "recount q --dry-run"),
    ("config check", "config check"),
    ("config show", "config show"),
    ("config manual", "config manual"),
    ("completions", "completions bash"),
    ("status", ""),
    ("top", ""),
    ("reload", ""),
    ("page", ""),
    ("work", ""),
    ("lease", ""),
    ("extend", ""),
    ("ack", ""),
    ("doctor", ""),
    ("backup", ""),
    ("init", "init DIR/begun"),
    ("demo", ""),
    ("bench", ""),
];

/// The records, the oldest first.
fn records(db: &Database) -> Vec<Value> {
    let text = run(db, &["audit", "--json", "-n", "1000"]).ok();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A database with items in each state that the examples need.
fn prepared() -> Database {
    let db = Database::embedded();
    with_dead(&db, &["1", "2", "3"]);
    with_blocked(&db, &["a"]);
    run(&db, &["push", "q", "one", "two", "three"]).ok();
    run(&db, &["push", "later", "four", "--delay", "1h"]).ok();
    run(&db, &["export", "q", "--output", db.file("q.ndjson").to_str().unwrap()]).ok();
    db
}

/// The words of an example.
fn words(db: &Database, line: &str) -> Vec<String> {
    let directory = db.directory.path().to_str().unwrap();
    line.split(' ').map(|word| word.replace("DIR", directory).replace("URL", &db.url)).collect()
}

fn run_line(db: &Database, line: &str) {
    let words = words(db, line);
    run(db, &words.iter().map(String::as_str).collect::<Vec<_>>()).ok();
}

#[test]
fn each_command_that_changes_something_leaves_one_record() {
    let db = prepared();
    let known = records(&db).len();
    let uid = u64::from(rustix::process::getuid().as_raw());
    for (number, (_, line, action)) in RECORDED.iter().enumerate() {
        run_line(&db, line);
        let records = records(&db).split_off(known);
        assert_eq!(records.len(), number + 1, "{line}: {records:?}");
        let record = &records[number];
        assert_eq!(record["action"], *action, "{line}");
        assert_eq!((&record["who"]["kind"], record["who"]["uid"].as_u64()), (&"local".into(), Some(uid)));
        assert!(record["address"].is_null());
        let about = line.split(' ').nth(if line.starts_with("schedule") { 2 } else { 1 }).unwrap();
        if !line.starts_with("migrate") {
            assert_eq!(record["queue"], about, "{line}");
        }
    }
    // A migration has one at its target, too, and the items have none.
    let target = Database::at(format!("embedded:{}/new", db.directory.path().display()), String::new());
    let [record] = &records(&target)[..] else { panic!("the target has one record") };
    assert_eq!((&record["action"], &record["details"]["queues"]), (&"queue.migrate".into(), &"\"q\"".into()));
}

#[test]
fn other_commands_leave_none() {
    let db = prepared();
    run(&db, &["schedule", "add", "later", "daily", "--cron", "@daily"]).ok();
    let before = records(&db);
    for (_, line) in UNRECORDED.iter().filter(|(_, line)| !line.is_empty()) {
        run_line(&db, line);
    }
    // Without a change it reads, or finds nothing to do.
    for line in ["limits list keyed", "schedule add later daily --cron @daily", "schedule resume later daily"]
    {
        run_line(&db, line);
    }
    assert_eq!(records(&db), before);
    // What is refused changes nothing, and leaves none.
    for refused in [
        "delete q",
        "delete none --yes",
        "dead purge dead --all",
        "token revoke nobody",
        "token new a",
        "limits remove keyed a",
        "limits unblock blocked b",
        "schedule pause later none",
        "schedule remove later none",
        "schedule fire later none",
        "schedule add later daily --every 0s",
        "batch cancel none-00000000000000000000000000000000",
    ] {
        let ran = run(&db, &refused.split(' ').collect::<Vec<_>>());
        assert_ne!(ran.code, Some(0), "{refused}");
    }
    assert_eq!(records(&db), before);
}

/// A command that is not here is one of which nobody has said whether it leaves a record.
#[test]
fn no_command_is_left_out() {
    let commands = commands();
    let inner = |command: &&String| commands.iter().any(|it| it.starts_with(&format!("{command} ")));
    let leaves = commands.iter().filter(|command| !inner(command) || *command == "kvqueue bench");
    let leaves = leaves.map(|command| command.trim_start_matches("kvqueue "));
    let leaves: BTreeSet<_> = leaves.filter(|command| !command.starts_with("bench ")).collect();
    let listed = RECORDED.iter().map(|(command, ..)| *command);
    let listed: BTreeSet<_> = listed.chain(UNRECORDED.iter().map(|(command, _)| *command)).collect();
    let left: Vec<_> = leaves.iter().filter(|it| !listed.contains(**it) && !is_operation(it)).collect();
    assert!(left.is_empty(), "nobody has said whether these leave a record: {left:?}");
    assert!(listed.is_subset(&leaves), "{listed:?}");
}

#[test]
fn names_cannot_forge_lines() {
    let db = Database::new();
    let queue = "q\" by operator\n2026-01-01T00:00:00.000Z queue.delete \u{1b}[2K\u{202e}";
    run(&db, &["pause", queue, "--create", "--reason", "a\nb\u{9b}"]).ok();
    let text = run(&db, &["audit"]).ok();
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.trim_end().chars().all(|c| !c.is_control() && c != '\u{202e}'), "{text:?}");
    assert!(text.contains(r#"queue.pause "q\" by operator\n2026-01"#), "{text}");
    let found = |queue: &str| run(&db, &["audit", "--queue", queue]).ok().lines().count();
    assert_eq!([found(queue), found("q")], [1, 0]);
    assert_eq!(run(&db, &["audit", "--since", "1h", "-n", "1"]).ok(), text);
}

#[test]
fn a_configuration_with_a_wrong_retention_starts_no_daemon() {
    let db = Database::new();
    let file = db.file("kvqueue.toml");
    fs::write(&file, "audit-retention = '1h'\n[queues.q]\nhandler = 'log'\n").unwrap();
    let ran = run(&db, &["config", "check", "--config", file.to_str().unwrap()]);
    assert!(ran.code == Some(78) && ran.stderr.contains("set it to \"24h\" or more"), "{ran:?}");
}
