//! Keyed queues: an item's key is seen wherever the item is.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Database, kvqueue, run, run_with_input, serve, serve_with, wait_until};

const KEYED: [&str; 2] = ["--kind", "keyed"];

fn keyed(db: &Database, args: &[&str]) -> String {
    run(db, &[args, &KEYED].concat()).ok()
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The key and the payload of each item.
fn pairs(items: &[Value]) -> Vec<(&str, &str)> {
    items.iter().map(|it| (it["key"].as_str().unwrap(), it["payload"].as_str().unwrap())).collect()
}

fn write_config(db: &Database, text: &str) -> String {
    let config = db.file("kvqueue.toml");
    std::fs::write(&config, text).unwrap();
    config.to_str().unwrap().to_owned()
}

#[test]
fn commands_show_the_key_of_an_item() {
    let db = Database::new();
    keyed(&db, &["push", "q", "one", "--key", "tenant-7"]);
    keyed(&db, &["push", "q", "two"]);
    let items = lines(&keyed(&db, &["peek", "q", "-k", "9", "--json"]));
    assert_eq!(pairs(&items), [("", "two"), ("tenant-7", "one")]);
    let table = keyed(&db, &["peek", "q", "--state", "ready"]);
    assert!(table.contains("key") && table.contains("tenant-7"), "{table}");
    let config = write_config(
        &db,
        "[queues.q]\nkind = 'keyed'\nhandler = 'exec'\nhandler-config.command = ['sh', '-c', 'exit 65']\n",
    );
    run(&db, &["run", "--config", &config, "--until-empty"]).ok();
    let letters = lines(&keyed(&db, &["dead", "list", "q", "--json"]));
    let letter = letters.iter().find(|it| it["key"] == "tenant-7").unwrap();
    assert!(keyed(&db, &["dead", "list", "q"]).contains("tenant-7"));
    let shown = keyed(&db, &["dead", "show", "q", letter["id"].as_str().unwrap()]);
    assert!(shown.contains("\nkey          tenant-7\n"), "{shown}");
}

#[test]
fn a_key_is_refused_where_there_are_none() {
    let db = Database::new();
    insta::assert_snapshot!(run(&db, &["push", "q", "x", "--key", "a"]).failed(2), @r#"kvqueue: cannot push an item with a key to a queue of kind fifo: it has no keys; leave the key out, or set kind = "keyed" for the queue"#);
    let long = "x".repeat(257);
    insta::assert_snapshot!(run(&db, &["push", "q", "x", "--key", &long, "--kind", "keyed"]).failed(2), @"kvqueue: key of an item has 257 bytes, at most 256 are possible; shorten it");
    insta::assert_snapshot!(run(&db, &["peek", "q", "--kind", "keyed", "--values", "raw"]).failed(2), @"kvqueue: values is for kind recipe and kind priority; add kind, or leave it out");
}

#[test]
fn export_and_import_keep_keys_and_other_kinds_drop_them() {
    let db = Database::new();
    for (payload, key) in [("1", "b"), ("2", "a"), ("3", "b")] {
        keyed(&db, &["push", "q", payload, "--key", key]);
    }
    let text = keyed(&db, &["export", "q"]);
    let to = Database::new();
    run_with_input(&to, &[&["import", "q"][..], &KEYED].concat(), text.clone()).ok();
    let items = lines(&keyed(&to, &["peek", "q", "-k", "9", "--json"]));
    assert_eq!(pairs(&items), [("a", "2"), ("b", "1"), ("b", "3")]);
    let ran = run_with_input(&to, &["import", "fifo"], text);
    insta::assert_snapshot!(ran.stderr, @"kvqueue: this is an export of a keyed queue, and the queue is none: the items go in without their keys, key by key");
    assert_eq!(run(&to, &["peek", "fifo", "-k", "9"]).ok(), "2\n1\n3\n");
    run(&to, &["move", "q", "plain", "--all", "--kind", "keyed"]).ok();
    assert_eq!(run(&to, &["peek", "plain", "-k", "9"]).ok(), "2\n1\n3\n");
    run(&to, &["move", "plain", "r", "--all", "--to-kind", "keyed"]).ok();
    let items = lines(&keyed(&to, &["peek", "r", "-k", "9", "--json"]));
    assert_eq!(pairs(&items), [("", "2"), ("", "1"), ("", "3")]);
}

#[test]
fn handlers_get_the_key() {
    let db = Database::new();
    keyed(&db, &["push", "q", "x", "--key", "tenant-7/host"]);
    let config = write_config(
        &db,
        "[queues.q]\nkind = 'keyed'\nhandler = 'exec'\nhandler-config.command = ['sh', '-c', 'echo \"$KVQUEUE_KEY\" > key']\n",
    );
    let mut command = kvqueue(&db, &["run", "--until-empty", "--config", &config]);
    assert!(command.current_dir(db.directory.path()).status().unwrap().success());
    assert_eq!(std::fs::read_to_string(db.file("key")).unwrap(), "tenant-7/host\n");
}

#[test]
fn keys_travel_over_http() {
    let db = Database::new();
    let served =
        serve(&db, "[queues.q]\nhandler = 'pull'\nkind = 'keyed'\n[queues.plain]\nhandler = 'pull'\n");
    let push = |queue: &str, item: Value| {
        served.at.post(&format!("/api/v1/queues/{queue}/items"), &json!({ "items": [item] }))
    };
    push("q", json!({"payload": "a", "key": "tenant-7"})).is(201);
    push("q", json!({"payload": "b", "key_base64": "/w=="})).is(201);
    push("q", json!({"payload": "c"})).is(201);
    assert_eq!(push("q", json!({"payload": "d", "key": "a", "key_base64": ""})).error(400), "bad_request");
    assert_eq!(push("q", json!({"payload": "d", "key_base64": "%"})).error(400), "bad_request");
    assert_eq!(push("plain", json!({"payload": "d", "key": "a"})).error(409), "no_keys");
    let listed = served.at.get("/api/v1/queues/q/items").is(200)["items"].clone();
    let keys = |items: &Value| -> Vec<(Value, Value)> {
        let items = items.as_array().unwrap();
        let mut keys: Vec<_> = items.iter().map(|it| (it["key"].clone(), it["key_base64"].clone())).collect();
        keys.sort_by_key(|it| format!("{it:?}"));
        keys
    };
    let expected =
        vec![(Value::Null, json!("/w==")), (json!(""), Value::Null), (json!("tenant-7"), Value::Null)];
    assert_eq!(keys(&listed), expected);
    let path = format!("/api/v1/queues/q/items/{}", listed[0]["id"].as_str().unwrap());
    assert_eq!(served.at.get(&path).is(200)["key"], listed[0]["key"]);
    let leased = served.at.post("/api/v1/queues/q/lease", &json!({"max": 9})).is(200);
    assert_eq!(keys(&leased["items"]), expected);
    let outcomes: Vec<_> = leased["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| json!({"id": it["id"], "outcome": "dead", "reason": "no"}))
        .collect();
    let path = format!("/api/v1/queues/q/leases/{}/acknowledge", leased["lease"].as_str().unwrap());
    served.at.post(&path, &json!({ "outcomes": outcomes })).is(200);
    let letters = served.at.get("/api/v1/queues/q/dead").is(200);
    let letters = if letters["letters"].is_array() { &letters["letters"] } else { &letters["items"] };
    assert_eq!(keys(letters), expected);
}

#[test]
fn an_idle_daemon_takes_the_items_of_a_new_key_at_once() {
    let db = Database::new();
    let config = write_config(&db, "[queues.q]\nkind = 'keyed'\nhandler = 'log'\npoll-interval = '1h'\n");
    let served = serve_with(kvqueue(&db, &["run", "--config", &config]), false);
    for key in ["a", "b", "a"] {
        keyed(&db, &["push", "q", "x", "--key", key]);
        wait_until("it is handled", || keyed(&db, &["len", "q"]) == "0\n");
    }
    served.daemon.signal(Signal::TERM);
    assert_eq!(served.daemon.end().code, Some(0));
}

#[test]
fn why_says_what_an_item_waits_for() {
    let db = Database::new();
    let ids = |key: &str| -> Vec<String> {
        let items = lines(&keyed(&db, &["peek", "q", "-k", "99", "--json"]));
        let of = items.iter().filter(|it| it["key"] == key);
        of.map(|it| it["id"].as_str().unwrap().to_owned()).collect()
    };
    keyed(&db, &["push", "q", "one", "two", "three", "--key", "t/a"]);
    keyed(&db, &["push", "q", "four", "--key", "u"]);
    let (a, u) = (ids("t/a"), ids("u"));
    let why = |id: &str| keyed(&db, &["why", "q", id]);
    insta::assert_snapshot!(why(&a[2]), @"it waits for its turn: 2 items of its key and 0 keys before it");
    insta::assert_snapshot!(why(&u[0]), @"it waits for its turn: 0 items of its key and 1 key before it");
    run(&db, &["limits", "set", "q", "t", "--running", "0"]).ok();
    insta::assert_snapshot!(why(&a[0]), @"it waits for a slot of t: 0 of 0 running, 0 items of its key before it");
    run(&db, &["pause", "q", "--reason", "a release"]).ok();
    insta::assert_snapshot!(why(&u[0]), @"the queue is paused, a release; it waits for its turn: 0 items of its key and 1 key before it");
    let told: Value = serde_json::from_str(&keyed(&db, &["why", "q", &a[1], "--json"])).unwrap();
    assert_eq!(told["waiting"]["scope"], "t");
    assert_eq!(told["waiting"]["items_before"], json!({ "at_least": 1, "exact": true }));
    let gone = run(&db, &["why", "q", "000000000000000000000000", "--kind", "keyed"]).failed(1);
    assert!(gone.contains("is not the id") || gone.contains("has no item"), "{gone}");
}

#[test]
fn why_says_it_of_items_without_keys_in_every_state() {
    let db = Database::new();
    run(&db, &["push", "q", "one", "two"]).ok();
    run(&db, &["push", "q", "later", "--delay", "1h"]).ok();
    let config = write_config(
        &db,
        "[queues.q]\nhandler = 'exec'\nretry.max-attempts = 1\nhandler-config.command = ['sh', '-c', 'exit 1']\n",
    );
    let id = |state: &str, at: usize| {
        let items = lines(&run(&db, &["peek", "q", "--state", state, "--json"]).ok());
        items[at]["id"].as_str().unwrap().to_owned()
    };
    let why = |id: &str| run(&db, &["why", "q", id]).ok();
    insta::assert_snapshot!(why(&id("ready", 1)), @"it waits for its turn: 1 item before it");
    assert!(why(&id("scheduled", 0)).starts_with("it was pushed for a later time: it is ready in 59m"));
    run(&db, &["delete", "q", "--item", &id("scheduled", 0), "--yes"]).ok();
    run(&db, &["run", "--config", &config, "--until-empty"]).ok();
    insta::assert_snapshot!(why(&id("dead", 0)), @"it is a dead letter after 1 attempt, and is not tried again until it is requeued");
    insta::assert_snapshot!(run(&db, &["why", "q", "000000000000000000000000"]).failed(1), @r#"kvqueue: queue "q" has no item 000000000000000000000000; it has ended, or was never there"#);
}
