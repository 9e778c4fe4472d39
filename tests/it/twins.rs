//! Each operation by a command and over HTTP, on copies of one database: the answers, the records in the audit trail, and the rows that
//! change. A snapshot has every difference.

use std::{collections::BTreeMap, process::Command};

use foundationdb::{
    RangeOption,
    tuple::{Element, unpack},
};
use futures::{TryStreamExt, executor::block_on};
use serde_json::Value;

use crate::{
    http::with_dead,
    messages::mask::names,
    ordered::with_blocked,
    support::{Address, Database, Ran, Reply, object, run, serve},
};

/// The queues whose rows are compared.
const QUEUES: [&str; 8] = ["none", "q", "keyed", "blocked", "later", "dead", "ended", "moved"];

/// A command, and the request for the same: method, path behind `/api/v1/`, body. They run in this order. `ITEM0` and so on are the items of
/// `later`, `LETTER0` the dead letters, `BATCH` is the batch.
const TWINS: &[(&str, &str)] = &[
    ("peek q -k 9", "GET queues/q/items"),
    ("peek q --state ready -k 2", "GET queues/q/items?limit=2"),
    ("pause q --reason why", r#"PUT queues/q/pause {"reason":"why"}"#),
    ("pause q --reason why", r#"PUT queues/q/pause {"reason":"why"}"#),
    ("pause none", "PUT queues/none/pause"),
    ("resume q", "DELETE queues/q/pause"),
    ("resume q", "DELETE queues/q/pause"),
    ("resume none", "DELETE queues/none/pause"),
    (
        "limits set keyed a --running 1 --create",
        r#"PUT queues/keyed/limits?create=true {"pattern":"a","running":1}"#,
    ),
    (
        "limits set keyed a --rate 5/s --burst 2 --weight 3",
        r#"PUT queues/keyed/limits {"pattern":"a","rate":"5/s","burst":2,"weight":3}"#,
    ),
    ("limits set keyed --queue --running 7", r#"PUT queues/keyed/limits {"whole_queue":true,"running":7}"#),
    ("limits set keyed a", r#"PUT queues/keyed/limits {"pattern":"a"}"#),
    ("limits set keyed a --burst 2", r#"PUT queues/keyed/limits {"pattern":"a","burst":2}"#),
    ("limits set none a --running 1", r#"PUT queues/none/limits {"pattern":"a","running":1}"#),
    ("limits set q a --running 1", r#"PUT queues/q/limits {"pattern":"a","running":1}"#),
    ("limits list keyed", "GET queues/keyed/limits"),
    ("limits list q", "GET queues/q/limits"),
    ("limits list none", "GET queues/none/limits"),
    ("limits remove keyed a", "DELETE queues/keyed/limits?pattern=a"),
    ("limits remove keyed a", "DELETE queues/keyed/limits?pattern=a"),
    ("limits remove none a", "DELETE queues/none/limits?pattern=a"),
    ("limits held blocked", "GET queues/blocked/held"),
    ("limits held blocked -n 1", "GET queues/blocked/held?limit=1"),
    ("limits unblock blocked a", r#"POST queues/blocked/unblock {"key":"a"}"#),
    ("limits unblock blocked a", r#"POST queues/blocked/unblock {"key":"a"}"#),
    (
        "schedule add q nightly x --cron @daily",
        r#"PUT queues/q/schedules/nightly {"cron":"@daily","payload":"x"}"#,
    ),
    (
        "schedule add q nightly x --cron @daily",
        r#"PUT queues/q/schedules/nightly {"cron":"@daily","payload":"x"}"#,
    ),
    ("schedule add q wrong --cron nonsense", r#"PUT queues/q/schedules/wrong {"cron":"nonsense"}"#),
    ("schedule list q", "GET queues/q/schedules"),
    ("schedule show q nightly", "GET queues/q/schedules/nightly"),
    ("schedule show q none", "GET queues/q/schedules/none"),
    ("schedule pause q nightly", "POST queues/q/schedules/nightly/pause"),
    ("schedule resume q nightly", "POST queues/q/schedules/nightly/resume"),
    ("schedule fire q nightly", "POST queues/q/schedules/nightly/fire"),
    ("schedule history q nightly", "GET queues/q/schedules/nightly/history"),
    ("schedule remove q nightly", "DELETE queues/q/schedules/nightly"),
    ("schedule remove q nightly", "DELETE queues/q/schedules/nightly"),
    ("item show later ITEM0", "GET queues/later/items/ITEM0"),
    ("item show later --unique once", "GET queues/later/items/ITEM0"),
    ("item show later LETTER0", "GET queues/later/items/LETTER0"),
    ("item show none ITEM0", "GET queues/none/items/ITEM0"),
    ("item wait later ITEM0 --for 1ms", "GET queues/later/items/ITEM0?wait_ms=1"),
    ("why later ITEM0", "GET queues/later/items/ITEM0"),
    ("peek later --state scheduled", "GET queues/later/items?state=scheduled"),
    ("peek dead --state dead", "GET queues/dead/items?state=dead"),
    ("peek q --state ready --after nowhere", "GET queues/q/items?after=nowhere"),
    ("len later", "GET queues/later"),
    (
        "item reschedule later ITEM0 --delay 2h",
        r#"POST queues/later/items/ITEM0/reschedule {"delay_ms":7200000}"#,
    ),
    ("item edit-payload later ITEM0 --payload x", r#"PUT queues/later/items/ITEM0/payload {"payload":"x"}"#),
    ("requeue later --unique once", "POST queues/later/items/ITEM0/requeue"),
    ("requeue later ITEM0", "POST queues/later/items/ITEM0/requeue"),
    ("item reschedule later LETTER0 --now", r#"POST queues/later/items/LETTER0/reschedule {"now":true}"#),
    ("item cancel later ITEM1", "POST queues/later/items/ITEM1/cancel"),
    ("item cancel later ITEM1", "POST queues/later/items/ITEM1/cancel"),
    (
        "item cancel later --attribute a=b --yes",
        r#"POST queues/later/cancel {"confirm":"later","attribute":{"name":"a","value":"b"}}"#,
    ),
    ("requeue later ITEM2", "POST queues/later/items/ITEM2/requeue"),
    ("requeue later ITEM2", "POST queues/later/items/ITEM2/requeue"),
    ("delete later --item ITEM2 --yes", "DELETE queues/later/items/ITEM2"),
    ("delete later --item ITEM2 --yes", "DELETE queues/later/items/ITEM2"),
    ("requeue later --waiting --dead", r#"POST queues/later/requeue {"waiting":true,"dead":true}"#),
    ("move q moved -n 1", r#"POST queues/q/move {"to":"moved","limit":1}"#),
    ("move q q -n 1", r#"POST queues/q/move {"to":"q","limit":1}"#),
    ("dead list dead", "GET queues/dead/dead"),
    ("dead show dead LETTER0", "GET queues/dead/dead/LETTER0"),
    ("requeue dead LETTER0", "POST queues/dead/items/LETTER0/requeue"),
    ("requeue dead LETTER0", "POST queues/dead/items/LETTER0/requeue"),
    ("dead purge dead LETTER1 --yes", "DELETE queues/dead/dead/LETTER1"),
    ("dead purge dead LETTER1 --yes", "DELETE queues/dead/dead/LETTER1"),
    ("requeue dead --dead", r#"POST queues/dead/requeue {"dead":true}"#),
    ("requeue none --dead", r#"POST queues/none/requeue {"dead":true}"#),
    ("dead purge dead --all --yes", r#"POST queues/dead/dead/purge {"confirm":"dead"}"#),
    ("batch list later", "GET queues/later/batches"),
    ("batch show BATCH", "GET queues/later/batches/BATCH"),
    ("batch commit BATCH", "POST queues/later/batches/BATCH/commit"),
    ("batch cancel BATCH", "DELETE queues/later/batches/BATCH"),
    ("batch cancel BATCH", "DELETE queues/later/batches/BATCH"),
    ("history ended", "GET queues/ended/ended"),
    ("token new shop --scope push", r#"POST tokens {"name":"shop","scopes":["push"]}"#),
    ("token new shop --scope push", r#"POST tokens {"name":"shop","scopes":["push"]}"#),
    ("token list", "GET tokens"),
    ("token revoke shop", "DELETE tokens/shop"),
    ("token revoke shop", "DELETE tokens/shop"),
    ("delete moved --yes", "DELETE queues/moved?confirm=moved"),
    ("delete moved --yes", "DELETE queues/moved?confirm=moved"),
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

/// What the words of [`TWINS`] stand for.
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

/// One of the two databases.
struct Twin {
    db: Database,
    open: foundationdb::Database,
    rows: Rows,
    records: usize,
}

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

impl Twin {
    fn copy_of(prepared: &Database) -> Self {
        let db = Database::embedded();
        let copied =
            Command::new("cp").arg("-r").arg(prepared.file("data")).arg(db.file("data")).status().unwrap();
        assert!(copied.success());
        let open = db.open();
        let rows = rows(&open);
        let records = records(&db).len();
        Self { db, open, rows, records }
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
        let mut records = records(&self.db);
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

/// The records, the oldest first.
fn records(db: &Database) -> Vec<Value> {
    let text = run(db, &["audit", "--json", "-n", "1000"]).ok();
    let mut records: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for record in &mut records {
        let record = record.as_object_mut().unwrap();
        ["at", "id", "who", "address"].iter().for_each(|field| drop(record.remove(*field)));
    }
    records.iter().map(|record| masked(record, db)).collect()
}

/// What a command answers: its lines as JSON, or its refusal.
fn of_command(ran: &Ran, db: &Database) -> Result<Vec<Value>, String> {
    match ran.code {
        // 75 is for a wait that is over.
        Some(0 | 75) => {
            Ok(ran.stdout.lines().map(|line| masked(&serde_json::from_str(line).unwrap(), db)).collect())
        }
        code => Err(names(&format!("{}: {}", code.unwrap_or(-1), ran.stderr.trim_end()), db)),
    }
}

/// What a request is answered with.
fn of_request(reply: &Reply, db: &Database) -> Result<Vec<Value>, String> {
    let body = if reply.body.is_empty() { Value::Null } else { reply.json() };
    match (&body, reply.status) {
        (Value::Null, 200..300) => Ok(Vec::new()),
        (_, 200..300) => Ok(vec![masked(&body, db)]),
        (_, status) => {
            let error = |key: &str| body["error"][key].as_str().unwrap_or_default();
            Err(names(&format!("{status} {}: {}; {}", error("code"), error("message"), error("fix")), db))
        }
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

/// JSON without ids and times.
fn masked(value: &Value, db: &Database) -> Value {
    match value {
        Value::String(text) => names(text, db).into(),
        Value::Array(values) => values.iter().map(|value| masked(value, db)).collect(),
        Value::Object(object) => object.iter().map(|(key, value)| (key.clone(), masked(value, db))).collect(),
        Value::Number(number) if number.is_f64() => "SECONDS".into(),
        other => other.clone(),
    }
}

/// Whether a list has the same elements: by a command, each has a line; over HTTP they are in one object.
fn is_same(lines: &[Value], answer: &[Value]) -> bool {
    let listed = |object: &Value| {
        let lists = object.as_object().into_iter().flatten().filter_map(|(_, value)| value.as_array());
        lists.map(Vec::as_slice).any(|list| list == lines)
    };
    lines == answer || matches!(answer, [object] if listed(object))
}

fn send(at: &Address, line: &str) -> Reply {
    let mut words = line.splitn(3, ' ');
    let (method, path) = (words.next().unwrap(), words.next().unwrap());
    let request = at.request(method, &format!("/api/v1/{path}"));
    match words.next() {
        Some(body) => request.json(&serde_json::from_str(body).unwrap()).send(),
        None if method == "POST" && path.ends_with("/commit") => request.json(&serde_json::json!({})).send(),
        None => request.send(),
    }
}

#[test]
fn a_command_and_its_request_answer_and_change_the_same() {
    let prepared = prepared();
    let ids = ids(&prepared);
    let (mut ours, mut theirs) = (Twin::copy_of(&prepared), Twin::copy_of(&prepared));
    let served = serve(&theirs.db, "[queues.unused]\nhandler = 'log'\n");
    let mut differences = String::new();
    let mut told = |text: &str| differences.extend([text, "\n"]);
    for (command, request) in TWINS {
        told(&format!("\n$ kvqueue {command}\n> {request}"));
        let with_ids =
            |line: &str| ids.iter().fold(line.to_owned(), |line, (word, id)| line.replace(word, id));
        let line = with_ids(command) + " --json";
        let ran = run(&ours.db, &line.split(' ').collect::<Vec<_>>());
        let reply = send(&served.at, &with_ids(request));
        let (left, right) = (of_command(&ran, &ours.db), of_request(&reply, &theirs.db));
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
            told(&format!("  {}\n  {}", shown(&left), shown(&right)));
        }
        let ((our_rows, our_records), (their_rows, their_records)) = (ours.changes(), theirs.changes());
        if our_rows != their_rows {
            told(&format!("  rows: {our_rows:?}\n  rows: {their_rows:?}"));
        }
        if our_records != their_records {
            let shown = |records: &[Value]| records.iter().map(Value::to_string).collect::<String>();
            told(&format!("  audit: {}\n  audit: {}", shown(&our_records), shown(&their_records)));
        }
    }
    insta::assert_snapshot!(differences.trim_start());
}

/// The commands that a daemon can carry out, whose URL is then in place of the database.
const BY_URL: &[&str] = &[
    "pause ",
    "resume ",
    "limits ",
    "token list",
    "token revoke",
    "requeue ",
    "item cancel ",
    "item reschedule ",
    "item edit-payload ",
    "dead ",
    "delete ",
    "move ",
    "item show ",
    "item wait ",
    "why ",
    "history ",
    "peek ",
    "len ",
    "schedule ",
    "batch ",
];

#[test]
fn a_command_by_the_url_of_a_daemon_answers_and_changes_the_same() {
    let prepared = prepared();
    let (mut ours, mut theirs) = (Twin::copy_of(&prepared), Twin::copy_of(&prepared));
    let served = serve(&theirs.db, "[queues.unused]\nhandler = 'log'\n");
    let daemon = Database::at(format!("http://{}", served.at.tcp()), String::new());
    let commands = TWINS.iter().map(|(command, _)| *command);
    for command in commands.filter(|command| BY_URL.iter().any(|it| command.starts_with(it))) {
        for line in [command.to_owned(), format!("{command} --json")] {
            let words: Vec<_> = line.split(' ').collect();
            let (here, there) = (run(&ours.db, &words), run(&daemon, &words));
            let said = |ran: &Ran| (ran.code, without_clock(&names(&ran.stdout, &ours.db)));
            assert_eq!(said(&there), said(&here), "{line}: {there:?} {here:?}");
            let refusal = here.stderr.trim().trim_start_matches("kvqueue: ");
            assert!(here.code == Some(0) || there.stderr.contains(refusal), "{line}: {there:?} {here:?}");
            assert_eq!(theirs.changes(), ours.changes(), "{line}");
        }
    }
    let refused = run(&daemon, &["pop", "q"]).failed(69);
    assert!(refused.contains("this is the URL of a daemon"), "{refused}");
}
