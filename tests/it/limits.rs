//! The rules of keyed queues, changed while daemons run.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Database, Served, freeze, kvqueue, run, serve, serve_with, wait_until};

const KEYED: [&str; 2] = ["--kind", "keyed"];

/// A daemon whose consumers hold each item until there is a file `go`, and note its key before.
fn holding(db: &Database) -> Served {
    let config = db.file("kvqueue.toml");
    let script = "echo \"$KVQUEUE_KEY\" >> begun; while ! test -e go; do sleep 0.02; done";
    let text = format!(
        "[queues.q]\nkind = 'keyed'\nhandler = 'exec'\npoll-interval = '1h'\nconsumers = [{{ k = 1, count = 8 }}]\n[queues.q.handler-config]\ncommand = ['sh', '-c', '''{script}''']\n"
    );
    std::fs::write(&config, text).unwrap();
    let mut command = kvqueue(db, &["run", "--config", config.to_str().unwrap()]);
    command.current_dir(db.directory.path());
    serve_with(command, false)
}

/// The keys of the items that have begun, sorted.
fn begun(db: &Database) -> Vec<String> {
    let text = std::fs::read_to_string(db.file("begun")).unwrap_or_default();
    let mut keys: Vec<_> = text.lines().map(str::to_owned).collect();
    keys.sort();
    keys
}

fn push(db: &Database, key: &str, count: usize) {
    let items = vec!["x"; count];
    run(db, &[&["push", "q", "--key", key][..], &KEYED, &items].concat()).ok();
}

fn len(db: &Database) -> String {
    run(db, &[&["len", "q"][..], &KEYED].concat()).ok()
}

#[test]
fn limits_hold_over_all_daemons_and_changes_wake_idle_ones() {
    let db = Database::new();
    run(&db, &["limits", "set", "q", "tenant-*", "--running", "2", "--create"]).ok();
    run(&db, &["limits", "set", "q", "stopped", "--running", "0"]).ok();
    let daemons = [holding(&db), holding(&db)];
    push(&db, "tenant-7", 5);
    push(&db, "stopped", 1);
    push(&db, "free", 3);
    wait_until("the items within the limits have begun", || begun(&db).len() == 5);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(begun(&db), ["free", "free", "free", "tenant-7", "tenant-7"]);
    // Idle consumers would look by themselves in an hour.
    run(&db, &["limits", "set", "q", "stopped", "--running", "1"]).ok();
    wait_until("a raised limit lets the item run", || begun(&db).contains(&"stopped".to_owned()));
    run(&db, &["limits", "remove", "q", "tenant-*"]).ok();
    wait_until("without a rule all run", || begun(&db).len() == 9);
    std::fs::write(db.file("go"), "").unwrap();
    wait_until("all are done", || len(&db) == "0\n");
    for served in daemons {
        served.daemon.signal(Signal::TERM);
        assert_eq!(served.daemon.end().code, Some(0));
    }
}

#[test]
fn limits_are_read_and_changed_over_http() {
    let db = Database::new();
    let served =
        serve(&db, "[queues.q]\nhandler = 'pull'\nkind = 'keyed'\n[queues.plain]\nhandler = 'pull'\n");
    let path = "/api/v1/queues/q/limits";
    let put = |body: &Value| {
        let request = served.at.request("PUT", path).header("Content-Type", "application/json");
        request.body(body.to_string()).send()
    };
    let rules = || served.at.get(path).is(200)["rules"].clone();
    assert_eq!(rules(), json!([]));
    put(&json!({"pattern": "tenant-*", "running": 4, "weight": 2})).is(200);
    put(&json!({"pattern": "tenant-*", "running": 1})).is(200);
    put(&json!({"pattern_base64": "/w==", "ordered": true, "on_dead": "block"})).is(200);
    put(&json!({"whole_queue": true, "running": 0})).is(200);
    let expected = json!([
        {"whole_queue": true, "running": 0},
        {"pattern": "tenant-*", "running": 1},
        {"pattern_base64": "/w==", "ordered": true, "on_dead": "block"},
    ]);
    assert_eq!(rules(), expected, "a rule replaces the whole rule");
    for wrong in [
        json!({"running": 1}),
        json!({"pattern": "a"}),
        json!({"pattern": "", "running": 1}),
        json!({"pattern": "x".repeat(257), "running": 1}),
        json!({"pattern": "a", "whole_queue": true, "running": 1}),
        json!({"whole_queue": true, "weight": 1}),
        json!({"pattern": "a", "weight": 0}),
        json!({"pattern": "a", "running": -1}),
        json!({"pattern": "a", "running": 4_294_967_296_u64}),
        json!({"pattern_base64": "%", "running": 1}),
        json!({"pattern": "a", "on_dead": "stop"}),
        json!({"whole_queue": true, "running": 1, "on_dead": "block"}),
    ] {
        assert_eq!(put(&wrong).error(400), "bad_request", "{wrong}");
    }
    let delete = |query: &str| served.at.request("DELETE", &format!("{path}?{query}")).send();
    assert_eq!(delete("").error(400), "bad_request");
    assert_eq!(delete("pattern=a").error(404), "not_found");
    delete("pattern=tenant-*").is(200);
    delete("pattern_base64=%2Fw%3D%3D").is(200);
    delete("whole_queue=true").is(200);
    assert_eq!(rules(), json!([]));
    assert_eq!(served.at.get("/api/v1/queues/plain/limits").error(409), "other_kind");
    run(&db, &["push", "fifo", "x"]).ok();
    assert_eq!(served.at.get("/api/v1/queues/fifo/limits").error(409), "other_kind");
    let put = served.at.request("PUT", "/api/v1/queues/fifo/limits");
    let put = put.header("Content-Type", "application/json").body(r#"{"pattern": "a", "running": 1}"#);
    assert_eq!(put.send().error(409), "other_kind");
}

#[test]
fn changes_of_limits_are_in_the_audit_trail() {
    let db = Database::new();
    run(
        &db,
        &[
            "limits",
            "set",
            "q",
            "a",
            "--running",
            "3",
            "--weight",
            "2",
            "--ordered",
            "--on-dead",
            "block",
            "--create",
        ],
    )
    .ok();
    run(&db, &["limits", "remove", "q", "a"]).ok();
    run(&db, &["limits", "remove", "q", "a"]).failed(1);
    run(&db, &["limits", "set", "q", "--queue", "--running", "9", "--create"]).ok();
    let records = run(&db, &["audit", "--json"]).ok();
    let details: Vec<_> = records
        .lines()
        .map(|line| {
            let record: Value = serde_json::from_str(line).unwrap();
            assert_eq!((&record["action"], &record["queue"]), (&json!("queue.limits"), &json!("q")));
            record["details"].clone()
        })
        .collect();
    let expected = [
        json!({"pattern": "a", "running": 3, "weight": 2, "ordered": true, "on_dead": "block"}),
        json!({"pattern": "a", "removed": true}),
        json!({"whole_queue": true, "running": 9}),
    ];
    assert_eq!(details, expected);
}

/// A rule is set whole, so that the same command always gives the same rule.
#[test]
fn a_rule_that_is_replaced_says_what_it_has_lost() {
    let db = Database::new();
    let set = |words: &str| {
        let words: Vec<_> = format!("limits set q --create {words}").split(' ').map(str::to_owned).collect();
        run(&db, &words.iter().map(String::as_str).collect::<Vec<_>>()).ok()
    };
    let all = "noisy --running 2 --weight 3 --ordered --on-dead block";
    assert_eq!(set(all), "set noisy: 2 running, weight 3, ordered, on dead block\n");
    assert_eq!(set(all), "set noisy: 2 running, weight 3, ordered, on dead block\n");
    let told = set("noisy --rate 10/s --running 1");
    assert_eq!(told, "set noisy: 1 running, rate 10/1s; no longer: weight 3, ordered, on dead block\n");
    let told: Value = serde_json::from_str(&set("noisy --weight 2 --json")).unwrap();
    let expected =
        json!({"queue": "q", "pattern": "noisy", "weight": 2, "dropped": {"running": 1, "rate": "10/1s"}});
    assert_eq!(told, expected);
}

#[test]
fn limits_of_a_frozen_queue_cannot_be_changed() {
    let db = Database::new();
    run(&db, &["limits", "set", "q", "a", "--running", "3", "--create"]).ok();
    freeze(&db);
    let said = run(&db, &["limits", "remove", "q", "a"]).failed(1);
    assert!(said.contains("is frozen"), "{said}");
    let served = serve(&db, "[queues.q]\nhandler = 'pull'\nkind = 'keyed'\n");
    let delete = || served.at.request("DELETE", "/api/v1/queues/q/limits?pattern=a").send();
    assert_eq!(delete().error(409), "frozen");
    assert_eq!(run(&db, &["limits", "list", "q", "--json"]).ok().lines().count(), 1);
}

#[test]
fn an_empty_pattern_is_refused_with_what_to_write() {
    let db = Database::new();
    let refused = run(&db, &["limits", "set", "q", "", "--running", "1", "--create"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("name keys, as in tenant-*"), "{refused:?}");
}
