//! What handlers report about the progress of running items.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Background, Database, first_id, helper, kvqueue, pipe, run, serve, wait_until};

fn shown(db: &Database, id: &str) -> Value {
    serde_json::from_str(&run(db, &["item", "show", "q", id, "--json"]).ok()).unwrap()
}

/// Waits until an item has this progress, whatever its time.
fn wait_for(db: &Database, id: &str, percent: &Value, message: &Value) {
    wait_until("the progress is shown", || {
        let progress = &shown(db, id)["progress"];
        assert!(progress.is_null() || progress["at"].is_string(), "{progress}");
        (&progress["percent"], &progress["message"]) == (percent, message)
    });
}

#[test]
fn a_rust_handler_reports_progress_with_the_extensions_of_its_lease() {
    for delivery in ["at-least-once", "exactly-once"] {
        let db = Database::new();
        run(&db, &["push", "q", "x"]).ok();
        let id = first_id(&db, "q");
        let path = db.file("slow.toml");
        let settings = format!("handler = 'slow'\nlease = '1s'\ndelivery = '{delivery}'");
        fs::write(&path, format!("shutdown-timeout = '100ms'\n[queues.q]\n{settings}\n")).unwrap();
        let mut command = helper(&db, "results::slow");
        command.arg(&path);
        let daemon = Background::start(command);
        wait_for(&db, &id, &json!(50), &json!("half way"));
        let text = run(&db, &["item", "show", "q", &id]).ok();
        assert!(text.contains("progress     50 %, half way, at "), "{text}");
        daemon.signal(Signal::TERM);
        daemon.end();
        // The item is back, and its next attempt begins without.
        assert!(shown(&db, &id).get("progress").is_none());
    }
}

#[test]
fn a_command_reports_progress_on_its_standard_error() {
    let db = Database::new();
    pipe(&db, "gate");
    run(&db, &["push", "q", "x"]).ok();
    let id = first_id(&db, "q");
    let at = db.directory.path().display();
    let script = format!(
        "cd '{at}'; echo first >&2; echo kvqueue-progress 7% step one >&2; read line < gate; exit 65"
    );
    let served = serve(
        &db,
        &format!(
            "[queues.q]\nhandler = 'exec'\nlease = '1s'\n[queues.q.handler-config]\nprogress = 'stderr'\ncommand = ['sh', '-c', '''{script}''']\n"
        ),
    );
    wait_for(&db, &id, &json!(7), &json!("step one"));
    let waited = served.at.get(&format!("/api/v1/queues/q/items/{id}?wait_ms=100")).is(200);
    assert_eq!(
        (&waited["state"], &waited["progress"]["percent"]),
        (&json!("running"), &json!(7)),
        "{waited}"
    );
    fs::write(db.file("gate"), "go\n").unwrap();
    wait_until("the item is dead", || shown(&db, &id)["state"] == "dead");
    let dead = shown(&db, &id);
    // The line is not a part of the reason.
    assert!(dead["reason"].as_str().unwrap().ends_with(": first"), "{dead}");
    assert!(dead.get("progress").is_none(), "{dead}");
}

#[test]
fn the_last_line_of_a_command_is_its_progress_and_all_lines_can_be_logged() {
    let db = Database::new();
    pipe(&db, "gate");
    run(&db, &["push", "q", "x"]).ok();
    let id = first_id(&db, "q");
    let at = db.directory.path().display();
    let script =
        format!("cd '{at}'; echo first; echo last; echo; read line < gate; echo wrong >&2; printf unended");
    let path = db.file("chatty.toml");
    let text = format!(
        "log.format = 'json'\n[queues.q]\nhandler = 'exec'\nlease = '1s'\n[queues.q.handler-config]\nlog-output = true\ncommand = ['sh', '-c', \"\"\"{script}\"\"\"]\n"
    );
    fs::write(&path, text).unwrap();
    let daemon =
        Background::start(kvqueue(&db, &["run", "--until-empty", "--config", path.to_str().unwrap()]));
    wait_for(&db, &id, &Value::Null, &json!("last"));
    fs::write(db.file("gate"), "go\n").unwrap();
    let events: Vec<Value> =
        daemon.end().stderr.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let expected =
        [("stderr", "wrong"), ("stdout", "first"), ("stdout", "last"), ("stdout", ""), ("stdout", "unended")];
    assert_eq!(output_lines(&events, &id), expected);
}

#[test]
fn lines_of_a_result_are_logged_and_are_no_progress() {
    let db = Database::new();
    run(&db, &["push", "q", "x"]).ok();
    let id = first_id(&db, "q");
    let path = db.file("result.toml");
    let text = "log.format = 'json'\n[queues.q]\nhandler = 'exec'\nhistory = '1h'\nretry.max-attempts = 1\n[queues.q.handler-config]\nlog-output = true\nresult = 'stdout'\ncommand = ['sh', '-c', 'echo out; echo err >&2; exit 1']\n";
    fs::write(&path, text).unwrap();
    let ran = run(&db, &["run", "--until-empty", "--config", path.to_str().unwrap()]);
    let events: Vec<Value> = ran.stderr.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    assert_eq!(output_lines(&events, &id), [("stderr", "err"), ("stdout", "out")]);
    let dead = shown(&db, &id);
    assert!(dead["reason"].as_str().unwrap().ends_with(": err"), "{dead}");
}

/// The streams and lines of an item's command in a log.
fn output_lines<'a>(events: &'a [Value], id: &str) -> Vec<(&'a str, &'a str)> {
    let mut logged = Vec::new();
    for event in events.iter().filter(|event| event["event"] == "command_output") {
        assert_eq!(event["item"], json!(id), "{event}");
        logged.push((event["stream"].as_str().unwrap(), event["line"].as_str().unwrap()));
    }
    logged.sort_by_key(|(stream, _)| *stream);
    logged
}

#[test]
fn a_process_that_stays_reports_progress_with_its_heartbeats() {
    let db = Database::new();
    run(&db, &["push", "q", "x"]).ok();
    let id = first_id(&db, "q");
    let script = "echo \"{\\\"kvqueue\\\":1}\"; read hello; read line; id=${line#*\\\"id\\\":\\\"}; echo \"{\\\"heartbeat\\\":\\\"${id%%\\\"*}\\\",\\\"percent\\\":99.9,\\\"message\\\":\\\"soon\\\"}\"; read more";
    let _served = serve(
        &db,
        &format!(
            "shutdown-timeout = '100ms'\n[queues.q]\nhandler = 'exec'\nlease = '1s'\n[queues.q.handler-config]\nmode = 'worker'\ncommand = ['sh', '-c', '''{script}''']\n"
        ),
    );
    wait_for(&db, &id, &json!(99), &json!("soon"));
}

#[test]
fn a_worker_over_http_reports_progress_when_it_extends_its_lease() {
    let db = Database::new();
    run(&db, &["push", "q", "a", "b"]).ok();
    let served = serve(&db, "[queues.q]\nhandler = 'pull'\n");
    let leased = served.at.post("/api/v1/queues/q/lease", &json!({"max": 2, "lease_ms": 60_000})).is(200);
    let lease = leased["lease"].as_str().unwrap();
    let [first, second] = [0, 1].map(|index| leased["items"][index]["id"].as_str().unwrap().to_owned());
    let path = format!("/api/v1/queues/q/leases/{lease}");
    let extend = |body: Value| served.at.post(&format!("{path}/extend"), &body);
    extend(json!({"progress": [{"id": first, "percent": 20}, {"id": second, "message": "waits"}]})).is(200);
    wait_for(&db, &first, &json!(20), &Value::Null);
    wait_for(&db, &second, &Value::Null, &json!("waits"));
    // Without news it stays, and so it does after a request that is refused.
    served.at.request("POST", &format!("{path}/extend")).send().is(200);
    extend(json!({})).is(200);
    extend(json!({"progress": [{"id": first, "percent": 101}]})).is(400);
    extend(json!({"progress": [{"id": "000000000000000100020003", "percent": 1}]})).is(404);
    extend(json!({"progres": []})).is(400);
    wait_for(&db, &first, &json!(20), &Value::Null);
    let done = json!({"outcomes": [{"id": first, "outcome": "done"}]});
    served.at.post(&format!("{path}/acknowledge"), &done).is(200);
    extend(
        json!({"progress": [{"id": first, "percent": 30}, {"id": second, "percent": 40, "message": "runs"}]}),
    )
    .is(200);
    wait_for(&db, &second, &json!(40), &json!("runs"));
    let items = served.at.get("/api/v1/queues/q/items?state=running").is(200);
    assert_eq!(items["items"][0]["progress"]["message"], "runs", "{items}");
    served.at.post(&format!("{path}/acknowledge"), &json!({"release_rest": true})).is(200);
    assert!(shown(&db, &second).get("progress").is_none());
}
