//! Each operation by a command and over HTTP, on copies of one database: the answers, the records in the audit trail, and the rows that
//! change. A transcript shows what people see, and has every difference. The answers of requests are held to `docs/openapi.json`.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
};

use foundationdb::{
    RangeOption,
    tuple::{Element, unpack},
};
use futures::{TryStreamExt, executor::block_on};
use serde_json::{Value, json};

use crate::{
    http::{document::Document, with_dead},
    messages::mask::{names, printed},
    ordered::with_blocked,
    support::{Address, Database, Ran, Reply, object, run, serve},
};

/// The queues whose rows are compared.
const QUEUES: [&str; 8] = ["none", "q", "keyed", "blocked", "later", "dead", "ended", "moved"];

/// The transcript. Each operation has a block there: a command, as in `$ kvqueue pause q`, or `~ kvqueue` if its output is shown without numbers; and the
/// request for the same, as in `> PUT queues/q/pause` with the path behind `/api/v1/` and perhaps a body. Below them the test writes what the command prints,
/// and each difference. The blocks run in this order; `ITEM0` and so on are the items of `later`, `LETTER0` the dead letters, `BATCH` is the batch.
///
/// To add an operation, write its two lines here, and for a new command its part in a [transcript of messages](crate::messages); then run
/// `INSTA_UPDATE=always cargo test --test it twins:: messages::`, and read what has come.
const TRANSCRIPT: &str = include_str!("snapshots/it__twins__operations.snap");

/// A block of the transcript, as it is given.
struct Block {
    /// The command, without its first word.
    command: &'static str,
    request: &'static str,
    /// Whether its output is shown without numbers, which differ from run to run.
    is_measured: bool,
}

/// Whether a line of the transcript is one that a person writes.
fn is_step(line: &&str) -> bool {
    ["$ kvqueue ", "~ kvqueue ", "> "].iter().any(|it| line.starts_with(it))
}

/// Whether a command, without its first word, is one of the transcript.
pub(crate) fn is_operation(command: &str) -> bool {
    let begins =
        |it: &str| it.strip_prefix(command).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '));
    blocks().iter().any(|block| begins(block.command))
}

/// The blocks of the transcript.
fn blocks() -> Vec<Block> {
    let lines: Vec<_> = TRANSCRIPT.lines().filter(is_step).collect();
    let blocks = lines.chunks(2).map(|lines| {
        let [command, request] = lines else { panic!("{lines:?}: a command without a request") };
        let (mark, command) = command.split_once(" kvqueue ").expect("a command comes first");
        let request = request.strip_prefix("> ").expect("a request follows each command");
        Block { command, request, is_measured: mark == "~" }
    });
    blocks.collect()
}

/// What the document has that is not in the transcript: requests that have no command, or about a daemon; the audit trail, in which each asker has
/// its own name; pushes and workers, which other tests are about.
const NOT_HERE: [&str; 17] = [
    "listAudit",
    "consumers",
    "events",
    "openapi",
    "queues",
    "newBatch",
    "history",
    "push",
    "lease",
    "acknowledge",
    "extend",
    "reload",
    "status",
    "workers",
    "live",
    "metrics",
    "ready",
];

/// A database with items in each state.
fn prepared() -> Database {
    let db = Database::embedded();
    with_dead(&db, &["1", "2", "3"]);
    with_blocked(&db, &["a", "b"]);
    run(&db, &["push", "q", "one", "two", "three"]).ok();
    run(&db, &["push", "later", "four", "--delay", "1h", "--unique", "once"]).ok();
    run(&db, &["push", "later", "five", "six", "--delay", "1h"]).ok();
    run(&db, &["push", "later", "seven", "--delay", "1h", "--attr", "a=b"]).ok();
    run(&db, &["batch", "new", "--then", "later:done"]).ok();
    let config = db.file("ended.toml");
    std::fs::write(&config, "[queues.ended]\nhandler = 'log'\nhistory = '1h'\n").unwrap();
    run(&db, &["push", "ended", "x"]).ok();
    run(&db, &["run", "--until-empty", "--config", config.to_str().unwrap()]).ok();
    db
}

/// What the words of the transcript stand for.
fn ids(db: &Database) -> Vec<(String, String)> {
    let listed = |name: &str, args: &[&str]| {
        let text = run(db, args).ok();
        let ids = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["id"].as_str().unwrap().to_owned());
        ids.enumerate().map(|(number, id)| (format!("{name}{number}"), id)).collect::<Vec<_>>()
    };
    let items = listed("ITEM", &["peek", "later", "--state", "scheduled", "--json"]);
    let letters = listed("LETTER", &["dead", "list", "dead", "--json"]);
    let batch = object(db, &["batch", "list", "later"])["id"].as_str().unwrap().to_owned();
    [items, letters, vec![("BATCH".to_owned(), batch)]].concat()
}

/// A line of the transcript, with ids for its words.
fn with_ids(line: &str, ids: &[(String, String)]) -> String {
    ids.iter().fold(line.to_owned(), |line, (word, id)| line.replace(word, id))
}

/// A text with the words of the transcript for ids.
fn with_words(text: &str, ids: &[(String, String)]) -> String {
    ids.iter().fold(text.to_owned(), |text, (word, id)| text.replace(id, word))
}

/// One of the databases.
struct Twin {
    db: Database,
    /// The words of the transcript, each with its id.
    ids: Vec<(String, String)>,
    open: foundationdb::Database,
    rows: Rows,
    records: usize,
}

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

impl Twin {
    fn copy_of(prepared: &Database, ids: &[(String, String)]) -> Self {
        let db = Database::embedded();
        let copied =
            Command::new("cp").arg("-r").arg(prepared.file("data")).arg(db.file("data")).status().unwrap();
        assert!(copied.success());
        let open = db.open();
        let rows = rows(&open);
        let mut twin = Self { db, ids: ids.to_vec(), open, rows, records: 0 };
        twin.records = twin.records().len();
        twin
    }

    /// A text with the words of the transcript for ids, and without what differs from one copy to the other.
    fn names(&self, text: &str) -> String {
        names(&with_words(text, &self.ids), &self.db)
    }

    /// Runs a command.
    fn run(&self, line: &str) -> Ran {
        run(&self.db, &with_ids(line, &self.ids).split(' ').collect::<Vec<_>>())
    }

    /// What a command prints, as a person sees it.
    fn printed(&self, ran: Ran, is_measured: bool) -> String {
        let named = |text: &str| with_words(text, &self.ids);
        let ran = Ran { stdout: named(&ran.stdout), stderr: named(&ran.stderr), ..ran };
        without_clock(&printed(&ran, &self.db, is_measured))
    }

    /// The records in the audit trail, the oldest first.
    fn records(&self) -> Vec<Value> {
        let text = run(&self.db, &["audit", "--json", "-n", "1000"]).ok();
        let mut records: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        for record in &mut records {
            let record = record.as_object_mut().unwrap();
            ["at", "id", "who", "address"].iter().for_each(|field| drop(record.remove(*field)));
        }
        records.iter().map(|record| self.masked(record)).collect()
    }

    /// JSON without times, and with the words of the transcript for ids.
    fn masked(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.names(text).into(),
            Value::Array(values) => values.iter().map(|value| self.masked(value)).collect(),
            Value::Object(object) => {
                object.iter().map(|(key, value)| (key.clone(), self.masked(value))).collect()
            }
            Value::Number(number) if number.is_f64() => "SECONDS".into(),
            other => other.clone(),
        }
    }

    /// What a command answers: its lines as JSON, or its refusal.
    fn of_command(&self, ran: &Ran) -> Result<Vec<Value>, String> {
        match ran.code {
            // 75 is for a wait that is over.
            Some(0 | 75) => {
                Ok(ran.stdout.lines().map(|line| self.masked(&serde_json::from_str(line).unwrap())).collect())
            }
            code => Err(self.names(&format!("{}: {}", code.unwrap_or(-1), ran.stderr.trim_end()))),
        }
    }

    /// What a request is answered with.
    fn of_request(&self, reply: &Reply) -> Result<Vec<Value>, String> {
        let body = if reply.body.is_empty() { Value::Null } else { reply.json() };
        match (&body, reply.status) {
            (Value::Null, 200..300) => Ok(Vec::new()),
            (_, 200..300) => Ok(vec![self.masked(&body)]),
            (_, status) => {
                let error = |key: &str| body["error"][key].as_str().unwrap_or_default();
                let text = format!("{status} {}: {}; {}", error("code"), error("message"), error("fix"));
                Err(self.names(&text))
            }
        }
    }

    /// The rows that have changed since the last call, and the new records in the audit trail.
    fn changes(&mut self) -> (Vec<String>, Vec<Value>) {
        let now = rows(&self.open);
        let mut changes = Vec::new();
        for (key, value) in &self.rows {
            match now.get(key) {
                None => changes.push(format!("- {}", named(key))),
                Some(new) if new != value => {
                    changes.push(format!("~ {} {}", named(key), changed(key, value, new)));
                }
                Some(_) => {}
            }
        }
        let new = now.iter().filter(|(key, _)| !self.rows.contains_key(*key));
        changes.extend(new.map(|(key, value)| format!("+ {} {}", named(key), changed(key, &[], value))));
        changes.sort();
        self.rows = now;
        let mut records = self.records();
        let new = records.split_off(self.records);
        self.records += new.len();
        (changes, new)
    }
}

/// All rows of the queues.
fn rows(db: &foundationdb::Database) -> Rows {
    let tr = db.create_trx().unwrap();
    let all = RangeOption::from((&b"\x01"[..], &b"\x02"[..]));
    let rows = block_on(tr.get_ranges_keyvalues(all, true).try_collect::<Vec<_>>()).unwrap();
    let rows = rows.into_iter().map(|row| (row.key().to_vec(), row.value().to_vec()));
    rows.filter(|(key, _)| QUEUES.iter().any(|queue| queue_of(key) == Some(queue.as_bytes()))).collect()
}

fn queue_of(key: &[u8]) -> Option<&[u8]> {
    key.strip_prefix(b"\x01")?.split(|byte| *byte == 0).next()
}

/// A row's key, without what differs from one copy to the other.
fn named(key: &[u8]) -> String {
    let Ok(elements) = unpack::<Vec<Element<'_>>>(key) else { return format!("\"{}\"", key.escape_ascii()) };
    let words = elements.iter().map(|element| match element {
        Element::Bytes(bytes) => bytes.escape_ascii().to_string(),
        Element::String(text) => text.to_string(),
        Element::Versionstamp(_) => "STAMP".to_owned(),
        Element::Int(_) => "N".to_owned(),
        other => format!("{other:?}"),
    });
    words.collect::<Vec<_>>().join("/")
}

/// By how much a counter has changed; how long any other value is.
fn changed(key: &[u8], old: &[u8], new: &[u8]) -> String {
    let number = |bytes: &[u8]| i64::from_le_bytes(bytes.try_into().unwrap_or_default());
    match named(key).split('/').nth(1) {
        Some(kind) if kind.starts_with('n') && new.len() == 8 => format!("{:+}", number(new) - number(old)),
        _ => format!("{} bytes", new.len()),
    }
}

/// What a refusal says, without its code.
fn text_of(refusal: &str) -> &str {
    let text = refusal.split_once(": ").map_or(refusal, |(_, text)| text);
    text.strip_prefix("kvqueue: ").unwrap_or(text)
}

/// A table without the times of day: what is done to one database is done to the other a moment later.
fn without_clock(text: &str) -> String {
    let shape =
        |word: &str| word.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect::<String>();
    text.split_inclusive(' ').map(|word| if shape(word) == "00:00:00 " { "CLOCK " } else { word }).collect()
}

/// Whether a list has the same elements: by a command, each has a line; over HTTP they are in one object.
fn is_same(lines: &[Value], answer: &[Value]) -> bool {
    let listed = |object: &Value| {
        let lists = object.as_object().into_iter().flatten().filter_map(|(_, value)| value.as_array());
        lists.map(Vec::as_slice).any(|list| list == lines)
    };
    lines == answer || matches!(answer, [object] if listed(object))
}

/// The queue in a path.
fn queue_in(path: &str) -> Option<&str> {
    path.strip_prefix("queues/")?.split(['/', '?', ' ']).next()
}

fn send(at: &Address, line: &str) -> Reply {
    let mut words = line.splitn(3, ' ');
    let (method, path) = (words.next().unwrap(), words.next().unwrap());
    let request = at.request(method, &format!("/api/v1/{path}"));
    match words.next() {
        Some(body) => request.json(&serde_json::from_str(body).unwrap()).send(),
        None if method == "POST" && path.ends_with("/commit") => request.json(&json!({})).send(),
        None => request.send(),
    }
}

#[test]
fn a_command_and_its_request_answer_and_change_the_same() {
    let prepared = prepared();
    let ids = ids(&prepared);
    let copy = || Twin::copy_of(&prepared, &ids);
    let (mut shown, mut ours, mut theirs) = (copy(), copy(), copy());
    let served = serve(&theirs.db, "[queues.unused]\nhandler = 'log'\n");
    let (document, mut covered) = (Document::read(), BTreeSet::new());
    let mut transcript = String::new();
    let mut told = |text: &str| transcript.extend([text, "\n"]);
    for Block { command, request, is_measured } in blocks() {
        told(&format!("{} kvqueue {command}\n> {request}", if is_measured { "~" } else { "$" }));
        let text = shown.printed(shown.run(command), is_measured);
        assert!(!text.lines().any(|line| is_step(&line)), "{text}: this would be run the next time");
        told(text.trim_end());
        let ran = ours.run(&format!("{command} --json"));
        let reply = send(&served.at, &with_ids(request, &ids));

        let (left, right) = (ours.of_command(&ran), theirs.of_request(&reply));
        let same = match (&left, &right) {
            (Ok(lines), Ok(answer)) => is_same(lines, answer),
            (Err(left), Err(right)) => text_of(left) == text_of(right),
            _ => false,
        };
        if !same {
            let shown = |side: &Result<Vec<Value>, String>| match side {
                Ok(values) => values.iter().map(Value::to_string).collect::<Vec<_>>().join("\n  "),
                Err(refusal) => refusal.clone(),
            };
            told(&format!("  by command: {}\n  by request: {}", shown(&left), shown(&right)));
        }
        let ((our_rows, our_records), (their_rows, their_records)) = (ours.changes(), theirs.changes());
        assert_eq!(shown.changes().0, our_rows, "{command}: with --json it does something else");
        if our_rows != their_rows {
            told(&format!("  rows by command: {our_rows:?}\n  rows by request: {their_rows:?}"));
        }
        if our_records == their_records {
            our_records.iter().for_each(|record| told(&format!("record: {record}")));
        } else {
            let shown = |records: &[Value]| records.iter().map(Value::to_string).collect::<String>();
            told(&format!(
                "  audit by command: {}\n  audit by request: {}",
                shown(&our_records),
                shown(&their_records)
            ));
        }
        let (method, path) = request.split_once(' ').unwrap();
        let operation = document.operation(method, &format!("/api/v1/{}", path.split(' ').next().unwrap()));
        document.hold(&operation, &reply);
        // One that changes something leaves one record, and any other none.
        match &their_records[..] {
            [] => {}
            [record] => {
                let id = path.split('/').find(|part| ids.iter().any(|(word, _)| word == part));
                let details = &record["details"];
                assert!(
                    id.is_none_or(|id| details["ids"] == json!([id]) || details["batch"] == id),
                    "{request}: {record}"
                );
                assert_eq!(record["action"].as_str(), operation.audit, "{request}");
                assert_eq!(record["queue"].as_str(), queue_in(path), "{request}");
            }
            more => panic!("{request}: {more:?}"),
        }
        if reply.status < 300 && their_records.len() == usize::from(operation.audit.is_some()) {
            covered.insert(operation.id);
        }
        told("");
    }
    let left: Vec<_> = document.operations().map(|it| it.id).filter(|id| !covered.contains(id)).collect();
    assert_eq!(left, NOT_HERE, "operations without a block that goes well, and leaves a record if it has to");
    insta::with_settings!({ omit_expression => true }, {
        insta::assert_snapshot!("operations", transcript.trim_end());
    });
}

/// The command that answers something else each time.
const RANDOM: &str = "token new";

#[test]
fn a_command_by_the_url_of_a_daemon_answers_and_changes_the_same() {
    let prepared = prepared();
    let ids = ids(&prepared);
    let (mut ours, mut theirs) = (Twin::copy_of(&prepared, &ids), Twin::copy_of(&prepared, &ids));
    let served = serve(&theirs.db, "[queues.unused]\nhandler = 'log'\n");
    let daemon = Database::at(format!("http://{}", served.at.tcp()), String::new());
    let commands = blocks();
    let commands = commands.iter().map(|block| block.command);
    for command in commands.filter(|command| !command.starts_with(RANDOM)) {
        for line in [command.to_owned(), format!("{command} --json")] {
            let by_url = with_ids(&line, &ids);
            let (here, there) = (ours.run(&line), run(&daemon, &by_url.split(' ').collect::<Vec<_>>()));
            let said = |ran: &Ran| (ran.code, without_clock(&ours.names(&ran.stdout)));
            assert_eq!(said(&there), said(&here), "{line}: {there:?} {here:?}");
            let refusal = here.stderr.trim().trim_start_matches("kvqueue: ");
            assert!(here.code == Some(0) || there.stderr.contains(refusal), "{line}: {there:?} {here:?}");
            assert_eq!(theirs.changes(), ours.changes(), "{line}");
        }
    }
    let refused = run(&daemon, &["pop", "q"]).failed(69);
    assert!(refused.contains("this is the URL of a daemon"), "{refused}");
}
