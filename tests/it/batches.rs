//! Batches with daemons: the callback soon after the last end, over HTTP, and once although daemons are killed.
//!
//! ```sh
//! cargo test --test it batches                                      # 240 members
//! KVQUEUE_TEST_ITEMS=10000 cargo test --test it batches -- --nocapture
//! ```

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{
    Background, Database, PATIENCE, Random, kvqueue, run, run_with_input, serve, wait_until,
};

/// How many members the batch has, unless `KVQUEUE_TEST_ITEMS` says so.
const ITEMS: usize = 240;

/// Daemons, and consumers of each.
const DAEMONS: usize = 4;
const CONSUMERS: usize = 4;

/// How often a daemon is killed, and how often at most.
const KILL_EVERY: Duration = Duration::from_millis(1_500);
const KILLS: usize = 8;

/// A daemon pushes the callback in a second; a busy machine takes longer.
const SOON: Duration = Duration::from_secs(5);

/// The home of batches is for workers over HTTP, so callbacks stay in it.
const HOME: &str = "[queues.done]\nhandler = 'pull'\n";

fn new_batch(db: &Database, args: &[&str]) -> String {
    let args: Vec<_> = ["batch", "new", "--then", "done:all is done"].iter().chain(args).copied().collect();
    run(db, &args).ok().trim().to_owned()
}

/// The attributes of the callbacks.
fn callbacks(db: &Database) -> Vec<Value> {
    let items = run(db, &["peek", "done", "-k", "100", "--json"]).ok();
    items.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["attributes"].clone()).collect()
}

#[test]
fn a_daemon_pushes_the_callback_soon_after_the_last_end_or_at_the_deadline() {
    let db = Database::new();
    let config = format!("{HOME}[queues.work]\nhandler = 'log'\n");
    let path = db.file("batches.toml");
    fs::write(&path, config).unwrap();
    let mut daemon = Background::start(kvqueue(&db, &["run", "--config", path.to_str().unwrap()]));
    daemon.wait_for_event("ready");
    let id = new_batch(&db, &["--attr", "a=b"]);
    run(&db, &["push", "work", "one", "two", "--batch", &id]).ok();
    run(&db, &["push", "work", "three", "--batch", &id, "--delay", "1s"]).ok();
    run(&db, &["batch", "commit", &id]).ok();
    assert_eq!(callbacks(&db), [Value::Null; 0], "a member is scheduled");
    daemon.wait_for_event("batch_complete");
    let [callback] = &callbacks(&db)[..] else { panic!("it calls back once") };
    assert_eq!((&callback["batch"], &callback["a"]), (&json!(id), &json!("b")));
    assert_eq!((&callback["batch-outcome"], &callback["batch-done"]), (&json!("complete"), &json!("3")));
    // Without members.
    let id = new_batch(&db, &[]);
    let began = Instant::now();
    run(&db, &["batch", "commit", &id]).ok();
    wait_until("the empty batch calls back", || callbacks(&db).len() == 2);
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    let began = Instant::now();
    let id = new_batch(&db, &["--deadline", "1s"]);
    run(&db, &["push", "elsewhere", "one", "--batch", &id]).ok();
    wait_until("the deadline has passed", || callbacks(&db).len() == 3);
    let took = began.elapsed();
    assert!((Duration::from_secs(1)..SOON + Duration::from_secs(1)).contains(&took), "{took:?}");
    daemon.wait_for_event("batch_deadline");
    assert_eq!(callbacks(&db).iter().filter(|it| it["batch-outcome"] == "deadline").count(), 1);
}

/// The id of the only item that a push has pushed.
fn push_one(db: &Database, queue: &str, payload: &str) -> String {
    let pushed: Value =
        serde_json::from_str(&run(db, &["push", queue, payload, "--json"]).ok()).expect("it is JSON");
    pushed["ids"][0].as_str().unwrap().to_owned()
}

#[test]
fn an_item_is_pushed_after_others_whatever_they_are_doing() {
    let db = Database::new();
    let config =
        format!("{HOME}[queues.work]\nhandler = 'pull'\n[queues.kept]\nhandler = 'log'\nhistory = '1h'\n");
    let served = serve(&db, &config);
    let running = push_one(&db, "work", "running");
    let lease = served.at.post("/api/v1/queues/work/lease", &json!({"max": 1})).is(200);
    assert_eq!(lease["items"][0]["id"], running);
    let finished = push_one(&db, "kept", "finished");
    wait_until("the item is in the history", || !run(&db, &["history", "kept", "--json"]).ok().is_empty());
    let delayed = {
        let args = ["push", "work", "delayed", "--delay", "1h", "--json"];
        let pushed: Value = serde_json::from_str(&run(&db, &args).ok()).unwrap();
        pushed["ids"][0].as_str().unwrap().to_owned()
    };
    let (of_work, of_kept) = (format!("work:{running}"), format!("kept:{finished}"));
    let never = format!("work:{}", "0".repeat(24));
    let after = format!("work:{delayed}");
    let args = ["push", "done", "mail", "--attr", "a=b", "--after", &of_work, "--after", &of_kept];
    let args: Vec<&str> = args.into_iter().chain(["--after", &after, "--after", &never, "--json"]).collect();
    let refused = run(&db, &args).failed(1);
    assert!(refused.contains(&"0".repeat(24)) && refused.contains("--missing-ok"), "{refused}");
    // Twice is once.
    let args = [&args[..], &["--missing-ok", "--after", &after]].concat();
    let pushed: Value = serde_json::from_str(&run(&db, &args).ok()).unwrap();
    assert_eq!(
        (&pushed["waits_for"], &pushed["ended"], &pushed["gone"]),
        (&json!(2), &json!({"done": 1}), &json!(1))
    );
    let id = pushed["id"].as_str().unwrap();
    let shown: Value =
        serde_json::from_str(&run(&db, &["item", "show", "work", &delayed, "--json"]).ok()).unwrap();
    assert_eq!(shown["batches"], json!([id]));
    assert_eq!(callbacks(&db), [Value::Null; 0]);
    run(&db, &["item", "cancel", "work", &delayed]).ok();
    let path = format!("/api/v1/queues/work/leases/{}/acknowledge", lease["lease"].as_str().unwrap());
    let done = json!({"outcomes": [{"id": running, "outcome": "done"}]});
    served.at.post(&path, &done).is(200);
    wait_until("the item is pushed", || callbacks(&db).len() == 1);
    let [callback] = &callbacks(&db)[..] else { panic!("it is pushed once") };
    let of = |name: &str| callback[name].as_str().unwrap().to_owned();
    let counts = ["members", "done", "cancelled", "taken"].map(|what| of(&format!("batch-{what}")));
    assert_eq!(counts, ["3", "2", "1", "0"]);
    assert_eq!((of("batch").as_str(), of("a").as_str()), (id, "b"));
    // After nothing that is there: at once.
    let text = run(&db, &["push", "done", "now", "--after", &never, "--missing-ok"]).ok();
    assert!(text.contains("waits for nothing") && text.contains("1 is not in the queue"), "{text}");
    wait_until("the other item is pushed, too", || callbacks(&db).len() == 2);
    for wrong in [
        vec!["push", "done", "a", "b", "--after", &never],
        vec!["push", "done", "a", "--after", "work:x"],
        vec!["push", "done", "a", "--after", &never, "--delay", "1s"],
        vec!["push", "done", "a", "--deadline", "1h"],
        vec!["push", "done", "a", "--missing-ok"],
        vec!["push", "done", "a", "--after", &never, "--attr", "batch=1"],
    ] {
        run(&db, &wrong).failed(2);
    }
    let nowhere = format!("wrok:{running}");
    assert!(run(&db, &["push", "done", "a", "--after", &nowhere]).failed(1).contains("\"work\""));
}

#[test]
fn batches_are_made_committed_shown_and_cancelled_over_http() {
    let db = Database::new();
    let served = serve(&db, &format!("http.require-token = true\n{HOME}[queues.work]\nhandler = 'log'\n"));
    let token = |name: &str, queues: &[&str]| {
        let mut args = vec!["token", "new", name, "--scope", "push"];
        queues.iter().for_each(|queue| args.extend(["--queue", queue]));
        run(&db, &args).ok().trim().to_owned()
    };
    let (both, work) = (token("both", &["work", "done"]), token("work", &["work"]));
    let admin = {
        let args = ["token", "new", "admin", "--scope", "admin", "--scope", "read"];
        run(&db, &args).ok().trim().to_owned()
    };
    let ask = |token: &str, method: &str, path: &str, body: Option<Value>| {
        let request = served.at.request(method, path).header("authorization", &format!("Bearer {token}"));
        match body {
            Some(body) => request.json(&body).send(),
            None => request.send(),
        }
    };
    let of_home = "/api/v1/queues/done/batches";
    let new = json!({"then": {"payload_json": {"a": 1}, "attributes": {"k": "v"}}, "deadline_ms": 3_600_000});
    ask(&work, "POST", of_home, Some(new.clone())).is(403);
    let made = ask(&both, "POST", of_home, Some(new)).is(201);
    let id = made["id"].as_str().unwrap();
    let push = |token: &str, id: &str| {
        let body = json!({"items": [{"payload": "x", "batch": id}]});
        ask(token, "POST", "/api/v1/queues/elsewhere/items", Some(body.clone())).is(403);
        ask(token, "POST", "/api/v1/queues/work/items", Some(body))
    };
    // A member changes the batch of another queue, so the token has to be for that one, too.
    push(&work, id).is(403);
    push(&both, id).is(201);
    push(&both, "done").is(400);
    let one = format!("{of_home}/{id}");
    let shown = ask(&admin, "GET", &one, None).is(200);
    assert_eq!(
        (&shown["id"], &shown["queue"], &shown["state"]),
        (&json!(id), &json!("done"), &json!("open"))
    );
    assert_eq!(shown["counts"]["members"], 1);
    assert_eq!(shown["then"], json!({"payload": "{\"a\":1}", "attributes": {"k": "v"}}));
    assert!(shown["deadline"].is_string() && shown["committed"].is_null(), "{shown}");
    let listed = ask(&admin, "GET", &format!("{of_home}?limit=1"), None).is(200);
    assert_eq!((&listed["batches"][0]["id"], &listed["next"]), (&json!(id), &json!(null)));
    let rest = ask(&admin, "GET", &format!("{of_home}?after={id}"), None).is(200);
    assert_eq!(rest, json!({"batches": [], "next": null}));
    ask(&admin, "GET", &format!("/api/v1/queues/work/batches/{id}"), None).is(404);
    ask(&admin, "GET", &format!("{of_home}/none"), None).is(400);
    for wrong in [
        json!({}),
        json!({"then": {}}),
        json!({"then": {"payload": "x", "unique": "u"}}),
        json!({"then": {"payload": "x", "attributes": {"batch": "1"}}}),
        json!({"then": {"payload": "x"}, "deadline_ms": 0}),
        json!({"then": {"payload": "x", "priority": 3}}),
        json!({"then": {"payload": "x"}, "after": null}),
        json!({"then": {"payload": "x"}, "after": []}),
        json!({"then": {"payload": "x"}, "after": [{"id": "x"}]}),
        json!({"then": {"payload": "x"}, "after": [{"id": "x6b01"}]}),
        json!({"then": {"payload": "x"}, "missing": "ended"}),
    ] {
        ask(&both, "POST", of_home, Some(wrong)).is(400);
    }
    assert_eq!(
        ask(&both, "POST", &format!("{one}/commit"), None).is(200),
        json!({"id": id, "changed": true})
    );
    wait_until("the batch calls back", || callbacks(&db).len() == 1);
    ask(&both, "POST", &format!("{one}/commit"), None).is(404);
    // The queue of an item that is waited for changes, too.
    let after = json!({"then": {"payload": "x"}, "after": [{"id": "0".repeat(24), "queue": "elsewhere"}]});
    ask(&both, "POST", of_home, Some(after)).is(403);
    let after = json!({"then": {"payload": "x"}, "after": [{"id": "0".repeat(24), "queue": "work"}]});
    assert_eq!(ask(&both, "POST", of_home, Some(after)).is(409)["error"]["code"], "missing");
    assert_eq!(push(&both, id).is(409)["error"]["code"], "batch");
    let made = ask(&both, "POST", of_home, Some(json!({"then": {"payload": "never"}}))).is(201);
    let other = format!("{of_home}/{}", made["id"].as_str().unwrap());
    ask(&both, "DELETE", &other, None).is(403);
    assert_eq!(ask(&admin, "DELETE", &other, None).is(200)["counts"]["members"], 0);
    ask(&admin, "DELETE", &other, None).is(404);
    let metrics = served.at.request("GET", "/metrics").header("authorization", &format!("Bearer {admin}"));
    let metrics = String::from_utf8_lossy(&metrics.send().body).into_owned();
    let line = "kvqueue_batches_total{queue=\"done\",outcome=\"complete\"} 1";
    assert!(metrics.contains(line), "{metrics}");
}

#[test]
fn a_batch_of_many_members_calls_back_once_although_daemons_are_killed() {
    let given = std::env::var("KVQUEUE_TEST_ITEMS").ok().and_then(|items| items.parse().ok());
    let members: usize = given.unwrap_or(ITEMS);
    let (bad, once) = (members / 10, members / 10);
    let db = Database::new();
    let common = format!(
        "lease = '2s'\nconsumers = [{{ k = 5, count = {CONSUMERS} }}]\nretry = {{ max-attempts = 1000, base = '10ms', max = '100ms' }}\n"
    );
    let config = format!(
        "shutdown-timeout = '1s'\n{HOME}[queues.work]\nhandler = 'exec'\n{common}\
         handler-config.command = ['sh', '-c', 'read -r x; test \"$x\" != bad || exit 65']\n\
         [queues.once]\nhandler = 'log'\ndelivery = 'at-most-once'\n"
    );
    let path = db.file("daemon.toml");
    fs::write(&path, config).unwrap();
    let start = || Background::start(kvqueue(&db, &["run", "--config", path.to_str().unwrap(), "-q"]));
    let id = new_batch(&db, &[]);
    let lines = |payload: &str, n: usize| format!("{payload}\n").repeat(n);
    let push = |queue: &str, lines: String| {
        run_with_input(&db, &["push", queue, "--lines", "-", "--batch", &id], lines).ok();
    };
    let mut daemons: Vec<_> = (0..DAEMONS).map(|_| start()).collect();
    push("work", lines("bad", bad));
    push("once", lines("taken", once));
    let mut random = Random::new();
    push("work", lines("good", members - bad - once));
    run(&db, &["batch", "commit", &id]).ok();
    let (began, mut kills, mut kill_at) = (Instant::now(), 0, Instant::now() + KILL_EVERY / 3);
    while callbacks(&db).is_empty() {
        let left = || run(&db, &["batch", "show", &id]).stdout;
        assert!(began.elapsed() < 10 * PATIENCE, "it does not call back: {}", left());
        if Instant::now() >= kill_at && kills < KILLS {
            let which = random.below(DAEMONS as u64) as usize;
            daemons[which].signal(Signal::KILL);
            daemons[which] = start();
            kills += 1;
            kill_at = Instant::now() + KILL_EVERY;
        }
        thread::sleep(Duration::from_millis(100));
    }
    let took = began.elapsed();
    // A second callback would come from a sweeper that takes over.
    thread::sleep(Duration::from_secs(4));
    let [callback] = &callbacks(&db)[..] else { panic!("it calls back once: {:?}", callbacks(&db)) };
    let number = |name: &str| callback[name].as_str().unwrap().parse::<usize>().unwrap();
    let names = ["batch-members", "batch-done", "batch-dead", "batch-taken", "batch-cancelled"];
    assert_eq!(names.map(number), [members, members - bad - once, bad, once, 0], "{callback}");
    for (queue, dead) in [("work", bad), ("once", 0)] {
        assert_eq!(run(&db, &["len", queue]).ok(), "0\n");
        let listed = run(&db, &["dead", "list", queue, "-n", "1000000", "--json"]).ok();
        assert_eq!(listed.lines().count(), dead);
    }
    run(&db, &["batch", "show", &id]).failed(1);
    println!("{members} members, {} consumers, {kills} daemons killed, {took:?}", DAEMONS * CONSUMERS);
}
