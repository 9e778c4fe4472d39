//! Handlers that ask for a pause: commands, and workers over HTTP.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Database, Served, kvqueue, run, serve, serve_with, wait_until};

/// How long the commands and the worker ask for.
const PAUSE: Duration = Duration::from_secs(3);

/// A process that takes one item after the other, and asks for a pause once.
const PROCESS: &str = r#"read -r hello; echo '{"kvqueue": 1}'
while read -r line; do
    id=${line#'{"id":"'}; id=${id%%'"'*}
    if test -e open; then echo "$line" >> done; echo "{\"id\":\"$id\",\"outcome\":\"done\"}"
    else touch open; echo "{\"id\":\"$id\",\"outcome\":\"throttle\",\"scope\":\"tenant\",\"after_ms\":3000,\"reason\":\"slow down\"}"; fi
done"#;

/// A daemon whose command asks for a pause for items `busy`, as long as there is no file `open`. It notes each other item: its payload, key
/// and attempt.
fn serve_command(db: &Database, queue: &str, scope: &str) -> Served {
    let script = "item=$(cat); if test \"$item\" = busy && ! test -e open; then touch open; echo slow down >&2; exit 76; fi; \
        echo \"$item $KVQUEUE_KEY $KVQUEUE_ATTEMPT\" >> done";
    let text = format!(
        "[queues.q]\nhandler = 'exec'\npoll-interval = '1h'\nconsumers = [{{ k = 1 }}]\n{queue}\n[queues.q.handler-config]\n\
         command = ['sh', '-c', \"\"\"{script}\"\"\"]\nthrottle-exit-codes = [76]\nthrottle-for = '3s'\nthrottle-scope = '{scope}'\n",
        script = script.replace('"', "\\\"")
    );
    serve_in_directory(db, &text)
}

/// A daemon whose commands run in the directory of the test.
fn serve_in_directory(db: &Database, text: &str) -> Served {
    let config = db.file("kvqueue.toml");
    std::fs::write(&config, text).unwrap();
    let mut command = kvqueue(db, &["run", "--config", config.to_str().unwrap()]);
    command.current_dir(db.directory.path());
    serve_with(command, false)
}

fn done(db: &Database) -> Vec<String> {
    let text = std::fs::read_to_string(db.file("done")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn push(db: &Database, item: &str, options: &[&str]) {
    run(db, &[&["push", "q", item], options].concat()).ok();
}

fn figure(served: &Served, outcome: &str) -> String {
    let metrics = String::from_utf8(served.at.get("/metrics").body).unwrap();
    let name = format!("kvqueue_items_finished_total{{queue=\"q\",outcome=\"{outcome}\"}} ");
    let line = metrics.lines().find_map(|line| line.strip_prefix(&name));
    line.unwrap_or_else(|| panic!("no {name}")).to_owned()
}

#[test]
fn an_exit_code_holds_all_keys_of_a_tenant() {
    let db = Database::new();
    let mut served = serve_command(&db, "kind = 'keyed'", "tenant");
    let push = |item: &str, key: &str| push(&db, item, &["--kind", "keyed", "--key", key]);
    push("busy", "t/1");
    let event: Value = serde_json::from_str(&served.daemon.wait_for_event("item_throttled")).unwrap();
    let began = Instant::now();
    assert_eq!((&event["scope"], &event["wait_ms"]), (&json!("tenant"), &json!(3_000)), "{event}");
    assert!(event["reason"].as_str().unwrap().ends_with("slow down"), "{event}");
    push("x", "t/2");
    push("y", "u/1");
    wait_until("another tenant goes on", || done(&db).contains(&"y u/1 1".to_owned()));
    wait_until("the tenant goes on", || done(&db).len() == 3);
    assert!(began.elapsed() > PAUSE / 2, "{:?}", began.elapsed());
    assert_eq!(done(&db)[0], "y u/1 1");
    assert!(done(&db).contains(&"busy t/1 1".to_owned()), "no attempt is spent: {:?}", done(&db));
    wait_until("it is counted", || figure(&served, "throttled") == "1" && figure(&served, "done") == "3");
    served.daemon.signal(Signal::TERM);
    let ended = served.daemon.end();
    assert_eq!((ended.code, ended.events("handler_unavailable")), (Some(0), 0), "{ended:?}");
}

#[test]
fn a_process_that_stays_holds_a_tenant() {
    let db = Database::new();
    let text = format!(
        "[queues.q]\nkind = 'keyed'\nhandler = 'exec'\npoll-interval = '1h'\n[queues.q.handler-config]\nmode = 'worker'\n\
         command = ['sh', '-c', '''{PROCESS}''']\n"
    );
    let mut served = serve_in_directory(&db, &text);
    push(&db, "busy", &["--kind", "keyed", "--key", "t/1"]);
    let event: Value = serde_json::from_str(&served.daemon.wait_for_event("item_throttled")).unwrap();
    let began = Instant::now();
    assert_eq!((&event["scope"], &event["reason"]), (&json!("tenant"), &json!("slow down")), "{event}");
    wait_until("it is tried again", || done(&db).len() == 1);
    assert!(began.elapsed() > PAUSE / 2, "{:?}", began.elapsed());
    assert!(done(&db)[0].contains("\"attempt\":1"), "{:?}", done(&db));
}

#[test]
fn in_a_queue_without_keys_the_item_alone_waits() {
    let db = Database::new();
    let mut served = serve_command(&db, "", "queue");
    push(&db, "busy", &[]);
    served.daemon.wait_for_event("item_throttled");
    let began = Instant::now();
    push(&db, "x", &[]);
    wait_until("both are done", || done(&db).len() == 2);
    assert_eq!(done(&db), ["x  1", "busy  1"]);
    assert!(began.elapsed() > PAUSE / 2, "{:?}", began.elapsed());
}

#[test]
fn with_at_most_once_delivery_the_item_stays_with_its_consumer() {
    let db = Database::new();
    let mut served = serve_command(&db, "delivery = 'at-most-once'", "key");
    push(&db, "busy", &[]);
    served.daemon.wait_for_event("item_throttled");
    let began = Instant::now();
    wait_until("it is done", || done(&db) == ["busy  1"]);
    assert!(began.elapsed() > PAUSE / 2, "{:?}", began.elapsed());
    assert_eq!(figure(&served, "lost"), "0");
}

#[test]
fn a_worker_over_http_holds_a_tenant() {
    let db = Database::new();
    let served = serve(&db, "[queues.q]\nhandler = 'pull'\nkind = 'keyed'\n");
    let push = |item: &str, key: &str| push(&db, item, &["--kind", "keyed", "--key", key]);
    let lease = |wait_ms: u64| {
        served.at.post("/api/v1/queues/q/lease", &json!({"max": 9, "wait_ms": wait_ms})).is(200)
    };
    let payloads = |leased: &Value| -> Vec<String> {
        let items = leased["items"].as_array().unwrap();
        items
            .iter()
            .map(|item| format!("{} {}", item["payload"].as_str().unwrap(), item["attempt"]))
            .collect()
    };
    let acknowledge = |leased: &Value, outcome: Value| {
        let mut outcome = outcome;
        outcome["id"] = leased["items"][0]["id"].clone();
        let path = format!("/api/v1/queues/q/leases/{}/acknowledge", leased["lease"].as_str().unwrap());
        served.at.post(&path, &json!({ "outcomes": [outcome] }))
    };
    push("busy", "t/1");
    let leased = lease(0);
    for wrong in [
        json!({"outcome": "throttle"}),
        json!({"outcome": "throttle", "after_ms": 86_400_001_u64}),
        json!({"outcome": "throttle", "after_ms": 1, "scope": "all"}),
        json!({"outcome": "release", "scope": "key"}),
    ] {
        assert_eq!(acknowledge(&leased, wrong.clone()).error(400), "bad_request", "{wrong}");
    }
    acknowledge(&leased, json!({"outcome": "throttle", "scope": "tenant", "after_ms": PAUSE.as_millis()}))
        .is(200);
    let began = Instant::now();
    push("x", "t/2");
    push("y", "u/1");
    assert_eq!(payloads(&lease(0)), ["y 1"]);
    let mut rest = payloads(&lease(20_000));
    assert!(began.elapsed() > PAUSE / 2, "{:?}", began.elapsed());
    if rest.len() == 1 {
        rest.extend(payloads(&lease(20_000)));
    }
    rest.sort();
    assert_eq!(rest, ["busy 1", "x 1"]);
}
