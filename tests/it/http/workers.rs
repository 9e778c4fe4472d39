//! Workers that lease items over HTTP are seen: on the API, in the status, in the metrics.

use std::{process::Command, thread};

use serde_json::{Value, json};

use crate::support::{Background, Database, Ran, Served, clean, kvqueue, run, serve, wait_until};

const PULL: &str = "[queues.q]\nhandler = 'pull'\n";

const AGENT: &str = "worker\u{202e}/1.0";

fn send(served: &Served, token: &str, method: &str, path: &str, body: &Value) -> Value {
    let request = served.at.request(method, path).header("Authorization", &format!("Bearer {token}"));
    let request = request.header("User-Agent", AGENT);
    let reply = if body.is_null() { request.send() } else { request.json(body).send() };
    assert_eq!(reply.status, 200, "{method} {path}: {reply:?}");
    if reply.head.contains("json") { reply.json() } else { String::from_utf8_lossy(&reply.body).into() }
}

#[test]
fn a_lease_is_shown_with_its_worker_until_it_is_over() {
    let db = Database::new();
    run(&db, &["push", "q", "a", "b"]).ok();
    let served = serve(&db, &format!("http.require-token = true\n{PULL}"));
    let token = run(&db, &["token", "new", "ci", "--scope", "work,read"]).ok();
    let ask = |method: &str, path: &str, body: &Value| send(&served, token.trim(), method, path, body);
    let workers = || ask("GET", "/api/v1/workers", &Value::Null);
    assert_eq!(workers(), json!({"workers": [], "omitted": 0}));
    let leased = ask("POST", "/api/v1/queues/q/lease", &json!({"max": 2, "lease_ms": 60_000}));
    let lease = leased["lease"].as_str().unwrap();
    let found = workers()["workers"].clone();
    let [worker] = &found.as_array().unwrap()[..] else { panic!("{found}") };
    assert_eq!(
        (&worker["queue"], &worker["state"], &worker["items"]),
        (&json!("q"), &json!("working"), &json!(2))
    );
    assert_eq!(worker["who"], json!({"kind": "token", "name": "ci"}));
    assert_eq!(worker["user_agent"], String::from_utf8_lossy(AGENT.as_bytes()).as_ref());
    assert!(worker["address"].as_str().unwrap().starts_with("127.0.0.1:"), "{worker}");
    // Enough to tell it, and not enough to use it.
    let shown = worker["lease"].as_str().unwrap();
    let [session, number, signature] = lease.split('-').collect::<Vec<_>>()[..] else { panic!("{lease}") };
    assert_eq!(shown, format!("…{}-{number}", &session[session.len() - 8..]));
    assert!(!found.to_string().contains(signature), "{found}");
    let expires = worker["expires_in_seconds"].as_f64().unwrap();
    assert!((30.0..=60.0).contains(&expires), "{worker}");
    let of_queue = || ask("GET", "/api/v1/queues/q", &Value::Null)["workers"].clone();
    assert_eq!(of_queue(), json!({"waiting": 0, "working": 1}));
    // Another daemon knows nothing of it, until it gets a heartbeat.
    let other = serve(&db, &format!("http.require-token = true\n{PULL}"));
    let there = |method: &str, path: &str| send(&other, token.trim(), method, path, &Value::Null);
    assert_eq!(there("GET", "/api/v1/workers")["workers"], json!([]));
    there("POST", &format!("/api/v1/queues/q/leases/{lease}/extend"));
    let heard = there("GET", "/api/v1/workers")["workers"][0].clone();
    assert!(heard["items"] == 2 && heard["expires_in_seconds"].as_f64() > Some(30.0), "{heard}");
    // A terminal shows the name of its program without the character that would turn the line around.
    let text = status(&db, &served, token.trim());
    let line = text.lines().find(|line| line.contains("token ci")).unwrap_or_else(|| panic!("{text}"));
    assert!(line.contains(shown) && !line.contains('\u{202e}'), "{line}");
    let acknowledge = format!("/api/v1/queues/q/leases/{lease}/acknowledge");
    let done = json!({"outcomes": [{"id": leased["items"][0]["id"], "outcome": "done"}]});
    ask("POST", &acknowledge, &done);
    assert_eq!(workers()["workers"][0]["items"], 1);
    ask("POST", &acknowledge, &json!({"release_rest": true}));
    assert_eq!((workers()["workers"].clone(), of_queue()), (json!([]), json!({"waiting": 0, "working": 0})));
}

fn status(db: &Database, served: &Served, token: &str) -> String {
    let mut command = kvqueue(db, &["status", "--at", served.at.tcp()]);
    let ran = command.env("KVQUEUE_TOKEN", token).output().unwrap();
    String::from_utf8(ran.stdout).unwrap()
}

#[test]
fn workers_that_wait_are_counted() {
    let db = Database::new();
    let served = serve(&db, PULL);
    let metrics = || String::from_utf8(served.at.get("/metrics").body).unwrap();
    let gauge = |state: &str, number: usize| {
        metrics().contains(&format!("kvqueue_remote_workers{{queue=\"q\",state=\"{state}\"}} {number}\n"))
    };
    assert!(gauge("waiting", 0) && gauge("working", 0), "{}", metrics());
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                served.at.post("/api/v1/queues/q/lease", &json!({"wait_ms": 30_000, "lease_ms": 1_000}))
            });
        }
        wait_until("two workers wait", || gauge("waiting", 2));
        let workers = served.at.get("/api/v1/workers?queue=q").is(200)["workers"].clone();
        assert_eq!((&workers[0]["state"], &workers[0]["lease"]), (&json!("waiting"), &Value::Null));
        assert_eq!(served.at.get("/api/v1/workers?queue=r").is(200)["workers"], json!([]));
        run(&db, &["push", "q", "one", "two"]).ok();
        wait_until("nobody waits", || gauge("waiting", 0));
    });
    // Nobody extends the leases.
    wait_until("the leases have expired", || gauge("working", 0));
}

/// The session of the lease is the daemon's; the work is done elsewhere.
#[test]
fn an_item_names_the_worker_that_has_it() {
    let db = Database::new();
    run(&db, &["push", "q", "a"]).ok();
    let config = db.file("kvqueue.toml");
    let served = serve(&db, PULL);
    std::fs::write(&config, format!("http.listen = '{}'\n{PULL}", served.at.tcp())).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvqueue"));
    clean(&mut command, &db);
    command.args(["work", "q", "--url", &format!("http://{}", served.at.tcp())]);
    command.args(["--", "sh", "-c", "sleep 60"]).env_remove("KVQUEUE_HTTP__LISTEN");
    let worker = Background::start(command);
    let running = || served.at.get("/api/v1/queues/q/items?state=running").is(200)["items"].clone();
    wait_until("the item is leased", || running().as_array().is_some_and(|items| !items.is_empty()));
    let item = running()[0].clone();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let agent = format!("kvqueue-work/{} {}/{}", env!("CARGO_PKG_VERSION"), host.trim(), worker.pid());
    assert_eq!(item["worker"]["user_agent"], agent, "{item}");
    let id = item["id"].as_str().unwrap();
    let told = |words: &[&str]| -> Ran {
        let words = [words, &["--config", config.to_str().unwrap()]].concat();
        kvqueue(&db, &words).env_remove("KVQUEUE_HTTP__LISTEN").output().unwrap().into()
    };
    for words in [&["peek", "q", "--state", "running"][..], &["item", "show", "q", id]] {
        let json: Value = serde_json::from_str(&told(&[words, &["--json"]].concat()).ok()).unwrap();
        assert_eq!(json["worker"], item["worker"], "{words:?}");
        let text = told(words).ok();
        // A table may break the lines of a cell.
        assert!(text.contains("anyone at 127.0.0.1:") && text.contains("kvqueue-work/"), "{text}");
        assert!(!text.contains(&format!("process {}", served.daemon.pid())), "{text}");
    }
    // Without the daemon, what the database knows is shown.
    drop((worker, served));
    let text = told(&["item", "show", "q", id]).ok();
    assert!(text.contains("process ") && !text.contains("anyone"), "{text}");
}
