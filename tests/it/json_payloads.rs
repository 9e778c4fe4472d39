//! JSON that is pushed comes out byte for byte, whichever way it went in.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use crate::support::{Database, Ran, Random, Served, first_id, kvqueue, run, serve, wait_until};

/// The ways in, each with a queue of its name.
const WAYS: [&str; 13] = [
    "argument",
    "file",
    "lines",
    "edit",
    "after",
    "schedule",
    "http-text",
    "http-base64",
    "http-json",
    "http-edit",
    "http-schedule",
    "http-schedule-text",
    "http-batch",
];

/// Texts that are not what a parser makes of them.
const TEXTS: [&str; 8] = [
    r#"{"z":123456789012345678901234567890,"a":1.10,"t":"\u00e9"}"#,
    r#"{ "b": 1.0, "a": 12345678901234567890, "b": -0 }"#,
    "1e400",
    "[1E+2,\n\t0.1000000000000000055511151231257827 ]",
    r#""\/\ud83d\ude00 é \u0000 \u2028""#,
    r#"{"":{"":[]}}"#,
    "1.0",
    "-0.0",
];

/// A JSON text.
fn text(random: &mut Random, depth: usize) -> String {
    let blank = |random: &mut Random| random.choose(&["", "", "", " ", "\n", "\t "]).to_owned();
    let numbers =
        ["0", "-0", "1.0", "1.10", "1e400", "-1e-400", "18446744073709551616", "1E+2", "0.30000000000000004"];
    let strings = [r#""""#, r#""a""#, r#""\u0061""#, r#""é""#, r#""\/""#, r#""\u00e9\n""#, r#""kvqueue""#];
    let kinds = if depth == 0 { 3 } else { 5 };
    match random.below(kinds) {
        0 => random.choose(&numbers).to_owned(),
        1 => random.choose(&strings).to_owned(),
        2 => random.choose(&["true", "false"]).to_owned(),
        kind => {
            let (open, close) = if kind == 3 { ('[', ']') } else { ('{', '}') };
            let members: Vec<String> = (0..random.below(4))
                .map(|_| {
                    let key = format!("{}{}:", random.choose(&strings), blank(random));
                    let key = if kind == 3 { String::new() } else { key };
                    format!("{}{key}{}{}", blank(random), text(random, depth - 1), blank(random))
                })
                .collect();
            format!("{open}{}{}{close}", blank(random), members.join(","))
        }
    }
}

fn pushed(served: &Served, path: &str, method: &str, body: String) -> Value {
    let request = served.at.request(method, path).header("Content-Type", "application/json");
    let reply = request.body(body).send();
    assert!((200..300).contains(&reply.status), "{path}: {reply:?}");
    if reply.body.is_empty() { Value::Null } else { reply.json() }
}

/// A command whose last argument is a text, which may begin with a dash.
fn with_text(db: &Database, words: &[&str], text: &str) {
    let ran: Ran = kvqueue(db, words).args(["--", text]).output().unwrap().into();
    ran.ok();
}

/// Pushes a text in one way.
fn push(db: &Database, served: &Served, way: &str, text: &str) {
    let file = db.file("payload");
    std::fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    let queue = format!("/api/v1/queues/{way}");
    let (items, schedule) = (format!("{queue}/items"), format!("{queue}/schedules/s"));
    let quoted = json!(text).to_string();
    let http = |path: &str, method: &str, body: String| pushed(served, path, method, body);
    match way {
        "argument" => with_text(db, &["push", way], text),
        "file" => _ = run(db, &["push", way, "--file", file]).ok(),
        "lines" => _ = run(db, &["push", way, "--lines", file]).ok(),
        "edit" => {
            run(db, &["push", way, "before"]).ok();
            run(db, &["item", "edit-payload", way, &first_id(db, way), "--file", file]).ok();
        }
        "after" => with_text(db, &["push", way, "--after", &"0".repeat(24), "--missing-ok"], text),
        "schedule" => {
            with_text(db, &["schedule", "add", way, "s", "--create", "--every", "365d"], text);
            run(db, &["schedule", "fire", way, "s"]).ok();
        }
        "http-text" => _ = http(&items, "POST", format!(r#"{{"items":[{{"payload":{quoted}}}]}}"#)),
        "http-base64" => {
            let text = BASE64_STANDARD.encode(text);
            http(&items, "POST", format!(r#"{{"items":[{{"payload_base64":"{text}"}}]}}"#));
        }
        "http-json" => _ = http(&items, "POST", format!(r#"{{"items":[{{"payload_json": {text} }}]}}"#)),
        "http-edit" => {
            run(db, &["push", way, "before"]).ok();
            let path = format!("{items}/{}/payload", first_id(db, way));
            http(&path, "PUT", format!(r#"{{"payload":{quoted}}}"#));
        }
        "http-schedule" | "http-schedule-text" => {
            let payload = match way {
                "http-schedule" => format!(r#""payload_json": {text} "#),
                _ => format!(r#""content_type":"application/json","payload":{quoted}"#),
            };
            http(&schedule, "PUT", format!(r#"{{"every":"365d",{payload}}}"#));
            // As it is shown, it is the same schedule.
            let shown = served.at.get(&schedule).is(200)["definition"].clone();
            assert_eq!(http(&schedule, "PUT", shown.to_string())["effect"], "unchanged", "{text}: {shown}");
            http(&format!("{schedule}/fire"), "POST", String::new());
        }
        _ => {
            let then = format!(r#"{{"then":{{"payload_json":{text}}}}}"#);
            let batch = http(&format!("{queue}/batches"), "POST", then)["id"].as_str().unwrap().to_owned();
            http(&format!("{queue}/batches/{batch}/commit"), "POST", String::new());
        }
    }
}

/// The payload of a queue's only item, which is deleted.
fn taken(db: &Database, queue: &str) -> String {
    let item: Value = serde_json::from_str(&run(db, &["pop", queue, "--json"]).ok()).unwrap();
    item["payload"].as_str().unwrap().to_owned()
}

#[test]
fn json_comes_out_as_it_was_pushed_in_every_way() {
    let db = Database::new();
    let table = |way: &str| format!("[queues.{way}]\nhandler = 'pull'\n");
    let served = serve(&db, &WAYS.map(table).concat());
    let mut random = Random::new();
    let texts = TEXTS.map(str::to_owned).into_iter();
    let texts: Vec<String> = texts.chain((0..2).map(|_| text(&mut random, 3))).collect();
    for way in WAYS {
        for text in &texts {
            if way == "lines" && text.contains('\n') {
                continue;
            }
            push(&db, &served, way, text);
            if way == "after" || way == "http-batch" {
                wait_until("the batch calls back", || run(&db, &["len", way]).ok() == "1\n");
            }
            assert_eq!(taken(&db, way), *text, "{way}");
        }
    }
    // HTTP alone is fast enough for many.
    let texts: Vec<String> = (0..40).map(|_| text(&mut random, 4)).collect();
    for way in ["http-json", "http-schedule"] {
        texts.iter().for_each(|text| push(&db, &served, way, text));
        let items = run(&db, &["peek", way, "-k", "100", "--json"]).ok();
        let items = items.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let payloads: Vec<_> = items.map(|item| item["payload"].as_str().unwrap().to_owned()).collect();
        assert!(payloads == texts, "{way}: {payloads:?} are not {texts:?}");
    }
}
