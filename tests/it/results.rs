//! Results that handlers give with finished items: from Rust, commands, and workers over HTTP. Webhooks have theirs in `webhook`.

use std::fs;

use serde_json::{Value, json};

use crate::support::{Background, Database, first_id, helper, run, serve};

const LONGEST: usize = 90_000;

/// Runs a daemon with this configuration until the queue is empty. Returns its log.
fn burn_down(db: &Database, config: &str) -> String {
    let path = db.file("results.toml");
    fs::write(&path, config).unwrap();
    let ran = run(db, &["run", "--config", path.to_str().unwrap(), "--until-empty"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    ran.stderr
}

fn shown(db: &Database, id: &str) -> Value {
    serde_json::from_str(&run(db, &["item", "show", "q", id, "--json"]).ok()).unwrap()
}

/// The ended items, the oldest first.
fn history(db: &Database) -> Vec<Value> {
    let text = run(db, &["history", "q", "--json"]).ok();
    let mut items: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    items.reverse();
    items
}

/// Each ended item as `item show` prints it, the oldest first.
fn all_shown(db: &Database) -> Vec<Value> {
    history(db).iter().map(|item| shown(db, item["id"].as_str().unwrap())).collect()
}

#[test]
fn the_standard_output_of_a_command_is_the_result_of_a_done_item_if_the_queue_asks_for_it() {
    let db = Database::new();
    run(&db, &["push", "q", "good", "bad", "raw"]).ok();
    let script = "payload=$(cat); case $payload in bad) echo no; exit 65 ;; raw) printf \"\\377\" ;; *) echo it is $payload ;; esac";
    let config = format!(
        "[queues.q]\nhandler = 'exec'\nhistory = '1h'\nconsumers = 1\n[queues.q.handler-config]\nresult = 'stdout'\ncommand = ['sh', '-c', '''{script}''']\n"
    );
    burn_down(&db, &config);
    let items = all_shown(&db);
    let [good, bad, raw] = &items[..] else { panic!("{items:?}") };
    assert_eq!((&good["result"], &good["result_bytes"]), (&json!("it is good\n"), &json!(11)));
    assert_eq!((&bad["state"], bad.get("result"), bad.get("result_bytes")), (&json!("dead"), None, None));
    assert_eq!((&raw["result_base64"], raw.get("result")), (&json!("/w=="), None));
    // Lists have the lengths alone.
    assert_eq!((history(&db)[0].get("result"), &history(&db)[0]["result_bytes"]), (None, &json!(11)));
    let text = run(&db, &["item", "show", "q", good["id"].as_str().unwrap()]).ok();
    assert!(text.ends_with("result       11 bytes\n\nit is good\n\n"), "{text:?}");
    let served = serve(&db, "[queues.q]\nhandler = 'pull'\nhistory = '1h'\n");
    let item = served.at.get(&format!("/api/v1/queues/q/items/{}", raw["id"].as_str().unwrap())).is(200);
    assert_eq!(&item, raw);
}

#[test]
fn a_command_with_too_much_output_is_done_and_its_result_is_reported_as_too_long() {
    let db = Database::new();
    run(&db, &["push", "q", "90000", "90001", "300000"]).ok();
    let config = "[queues.q]\nhandler = 'exec'\nhistory = '1h'\nconsumers = 1\n[queues.q.handler-config]\nresult = 'stdout'\ncommand = ['sh', '-c', 'head -c $(cat) /dev/zero | tr \"\\0\" r']\n";
    let log = burn_down(&db, config);
    let items = all_shown(&db);
    assert_eq!(items[0]["result"].as_str().unwrap(), "r".repeat(LONGEST));
    for item in &items[1..] {
        assert_eq!((&item["outcome"], &item["result_too_long"]), (&json!("done"), &json!(true)), "{item}");
        assert!(item.get("result").is_none() && item.get("result_bytes").is_none(), "{item}");
    }
    assert_eq!(crate::support::events(&log, "result_too_long"), 2, "{log}");
    let text = run(&db, &["item", "show", "q", items[1]["id"].as_str().unwrap()]).ok();
    assert!(text.contains("result       more than 90000 bytes, not kept"), "{text}");
}

#[test]
fn a_process_that_stays_writes_results_with_its_outcomes() {
    let db = Database::new();
    run(&db, &["push", "q", "a"]).ok();
    let script = "echo \"{\\\"kvqueue\\\":1}\"; read hello; while read line; do id=${line#*\\\"id\\\":\\\"}; echo \"{\\\"id\\\":\\\"${id%%\\\"*}\\\",\\\"outcome\\\":\\\"done\\\",\\\"result\\\":\\\"of a process\\\"}\"; done";
    let config = format!(
        "[queues.q]\nhandler = 'exec'\nhistory = '1h'\nconsumers = 1\n[queues.q.handler-config]\nmode = 'worker'\ncommand = ['sh', '-c', '''{script}''']\n"
    );
    burn_down(&db, &config);
    assert_eq!(all_shown(&db)[0]["result"], "of a process");
}

#[test]
fn a_rust_handler_returns_its_result() {
    for delivery in ["at-least-once", "exactly-once", "at-most-once"] {
        let db = Database::new();
        run(&db, &["push", "q", "hello", "-", "x"]).ok();
        let path = db.file("echo.toml");
        let config =
            format!("[queues.q]\nhandler = 'echo'\nhistory = '1h'\nconsumers = 1\ndelivery = '{delivery}'\n");
        fs::write(&path, config).unwrap();
        let mut command = helper(&db, "results::daemon");
        command.arg(&path);
        Background::start(command).end().ok();
        let items = all_shown(&db);
        let [hello, none, long] = &items[..] else { panic!("{items:?}") };
        assert!(none.get("result").is_none() && none.get("result_bytes").is_none(), "{none}");
        if delivery == "at-most-once" {
            assert_eq!((&hello["outcome"], hello.get("result")), (&json!("taken"), None), "{hello}");
        } else {
            assert_eq!((&hello["outcome"], &hello["result"]), (&json!("done"), &json!("hello")), "{hello}");
            assert_eq!(
                (&long["outcome"], &long["result_too_long"]),
                (&json!("done"), &json!(true)),
                "{long}"
            );
        }
    }
}

#[test]
fn a_worker_over_http_gives_results_and_is_refused_if_they_are_too_long() {
    let db = Database::new();
    run(&db, &["push", "q", "a", "b"]).ok();
    let waited = first_id(&db, "q");
    let served = serve(&db, "[queues.q]\nhandler = 'pull'\nhistory = '1h'\n");
    let leased = served.at.post("/api/v1/queues/q/lease", &json!({"max": 2})).is(200);
    let lease = leased["lease"].as_str().unwrap();
    let [first, second] = [0, 1].map(|index| leased["items"][index]["id"].as_str().unwrap().to_owned());
    assert_eq!(first, waited);
    let acknowledge = |outcomes: Value| {
        served
            .at
            .post(&format!("/api/v1/queues/q/leases/{lease}/acknowledge"), &json!({"outcomes": outcomes}))
    };
    let long = "r".repeat(LONGEST + 1);
    let refused = acknowledge(json!([{"id": first, "outcome": "done", "result": long}])).is(413);
    assert!(refused["error"]["message"].as_str().unwrap().contains("90001 bytes"), "{refused}");
    acknowledge(json!([{"id": first, "outcome": "retry", "result": "r"}])).is(400);
    acknowledge(json!([{"id": first, "outcome": "done", "result_base64": "r"}])).is(400);
    // Nothing was written, and the lease is still there.
    let path = format!("/api/v1/queues/q/items/{first}?wait_ms=30000");
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| served.at.get(&path).is(200));
        let done = acknowledge(json!([
            {"id": first, "outcome": "done", "result": "r".repeat(LONGEST)},
            {"id": second, "outcome": "done", "result_base64": "/w=="},
        ]));
        assert_eq!(done.is(200)["acknowledged"], 2);
        assert_eq!(waits.join().unwrap()["result"].as_str().unwrap().len(), LONGEST);
    });
    assert_eq!(shown(&db, &second)["result_base64"], "/w==");
}

#[test]
fn a_queue_without_a_history_drops_results_and_its_settings_do_not_ask_for_them() {
    let db = Database::new();
    run(&db, &["push", "q", "a"]).ok();
    let served = serve(&db, "[queues.q]\nhandler = 'pull'\n");
    let leased = served.at.post("/api/v1/queues/q/lease", &json!({})).is(200);
    let (lease, id) = (leased["lease"].as_str().unwrap(), &leased["items"][0]["id"]);
    let body = json!({"outcomes": [{"id": id, "outcome": "done", "result": "r"}]});
    served.at.post(&format!("/api/v1/queues/q/leases/{lease}/acknowledge"), &body).is(200);
    served.at.get(&format!("/api/v1/queues/q/items/{}", id.as_str().unwrap())).is(404);
    let path = db.file("wrong.toml");
    let check = |history: &str| {
        let config = format!(
            "[queues.q]\nhandler = 'exec'\n{history}\n[queues.q.handler-config]\ncommand = ['true']\nresult = 'stdout'\n"
        );
        fs::write(&path, config).unwrap();
        run(&db, &["config", "check", "--config", path.to_str().unwrap()])
    };
    for history in ["", "history = '0s'"] {
        let problem = check(history).failed(78);
        assert!(
            problem.contains("queues.q.handler-config.result") && problem.contains("queues.q.history"),
            "{problem}"
        );
    }
    check("history = '1h'").ok();
}
