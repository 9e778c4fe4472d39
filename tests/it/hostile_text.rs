//! Texts of others reach no terminal as they are: what would move its cursor, hide or turn text around is shown as a code.

use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Database, clean, first_id, run, serve, wait_until};

/// A clear screen, a bell, a control character of the second set, a mark that turns the line around, and a forged field.
const HOSTILE: &str = "x\u{1b}[2J\u{7}\u{9b}31m\u{202e}\nstate        done";

/// What a command prints on a terminal; `script` gives it one.
fn on_terminal(db: &Database, args: &[&str]) -> String {
    let quoted: Vec<_> = args.iter().map(|arg| format!("'{}'", arg.replace('\'', r"'\''"))).collect();
    let mut command = Command::new("script");
    clean(&mut command, db);
    command.env("TERM", "dumb").env("NO_COLOR", "1").env("KVQUEUE_DATABASE", &db.url);
    let line = format!("'{}' {}", env!("CARGO_BIN_EXE_kvqueue"), quoted.join(" "));
    command.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

/// No character of the text controls a terminal but its line ends, and no line of it is the forged one.
fn check(what: &str, text: &str) {
    let controls = |c: char| (c.is_control() && !matches!(c, '\r' | '\n')) || c == '\u{202e}';
    assert!(!text.contains(controls), "{what}: {text:?}");
    // Payloads and results come after an empty line.
    let mut fields = text.lines().take_while(|line| !line.trim_end().is_empty());
    let forged = fields.any(|line| line.trim_end() == "state        done");
    assert!(!forged, "{what} has a forged line: {text}");
}

#[test]
fn no_text_of_others_controls_a_terminal() {
    let db = Database::new();
    if !db.prefix.is_empty() {
        println!("skipped: queues of a cluster have a prefix, which a terminal's command does not get");
        return;
    }
    let attribute = format!("{HOSTILE}={HOSTILE}");
    let words = ["push", "q", "payload", "--attr", &attribute, "--content-type", HOSTILE];
    run(&db, &[words.as_slice(), &["--unique", HOSTILE]].concat()).ok();
    run(&db, &["push", HOSTILE, "payload"]).ok();
    let id = first_id(&db, "q");
    check("item show", &on_terminal(&db, &["item", "show", "q", &id]));
    check("list", &on_terminal(&db, &["list"]));
    let callback = format!("q:{HOSTILE}");
    let batch = run(&db, &["batch", "new", "--then", &callback]).ok();
    check("batch show", &on_terminal(&db, &["batch", "show", batch.trim()]));
    for words in
        [["item", "show", "q", &id, "--json"].as_slice(), &["list", "--json"], &["peek", "q", "--json"]]
    {
        let said = run(&db, words).ok();
        check("JSON", &said);
        let line = said.lines().next().unwrap();
        assert!(serde_json::from_str::<Value>(line).is_ok(), "{words:?}: {line}");
    }
    // A worker gives the reason of a dead letter, and the result of a done item.
    let served = serve(&db, "[queues.q]\nhandler = 'pull'\nhistory = '1h'\n");
    let lease = |max: u64| served.at.post("/api/v1/queues/q/lease", &json!({ "max": max })).is(200);
    let acknowledge = |leased: &Value, outcome: Value| {
        let path = format!("/api/v1/queues/q/leases/{}/acknowledge", leased["lease"].as_str().unwrap());
        served.at.post(&path, &json!({ "outcomes": [outcome] })).is(200);
    };
    let first = lease(1);
    acknowledge(&first, json!({ "id": id, "outcome": "dead", "reason": HOSTILE }));
    run(&db, &["push", "q", "payload"]).ok();
    let done = first_id(&db, "q");
    acknowledge(&lease(1), json!({ "id": done, "outcome": "done", "result": HOSTILE }));
    wait_until("the history has it", || run(&db, &["item", "show", "q", &done]).code == Some(0));
    for words in [
        ["dead", "show", "q", &id].as_slice(),
        &["dead", "list", "q"],
        &["item", "show", "q", &id],
        &["item", "show", "q", &done],
        &["history", "q"],
    ] {
        check(&words.join(" "), &on_terminal(&db, words));
    }
}
