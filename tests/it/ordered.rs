//! Ordered keys: retries hold them, dead letters block them, and operators let them go on.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Database, Served, kvqueue, run, serve_with, wait_until};

/// A keyed queue `blocked`, of whose keys each is blocked by a dead letter.
pub(crate) fn with_blocked(db: &Database, keys: &[&str]) {
    run(db, &["limits", "set", "blocked", "*", "--ordered", "--on-dead", "block", "--create"]).ok();
    for key in keys {
        run(db, &["push", "blocked", "x", "--key", key, "--kind", "keyed"]).ok();
    }
    let config = db.file("blocked.toml");
    let text = "[queues.blocked]\nkind = 'keyed'\nhandler = 'exec'\nretry.max-attempts = 1\nhandler-config.command = ['false']\n";
    std::fs::write(&config, text).unwrap();
    run(db, &["run", "--until-empty", "--config", config.to_str().unwrap()]).ok();
}

/// A daemon whose handler notes each attempt as `KEY ITEM ATTEMPT`. Items `bad` fail until there is a file `fixed`, items `twice` succeed at their second attempt.
fn noting(db: &Database, attempts: u32) -> Served {
    let config = db.file("kvqueue.toml");
    let script = "item=$(cat); echo \"$KVQUEUE_KEY $item $KVQUEUE_ATTEMPT\" >> tried\n\
        case $item in bad) test -e fixed ;; twice) test $KVQUEUE_ATTEMPT = 2 ;; esac";
    let text = format!(
        "http.listen = '127.0.0.1:0'\n[queues.q]\nkind = 'keyed'\nhandler = 'exec'\npoll-interval = '1h'\nconsumers = [{{ k = 2, count = 4 }}]\n\
         retry = {{ base = '300ms', max-attempts = {attempts} }}\n\
         [queues.q.handler-config]\ncommand = ['sh', '-c', '''{script}''']\n"
    );
    std::fs::write(&config, text).unwrap();
    let mut command = kvqueue(db, &["run", "--config", config.to_str().unwrap()]);
    command.current_dir(db.directory.path());
    serve_with(command, true)
}

/// What was tried of a key, in order.
fn tried(db: &Database, key: &str) -> Vec<String> {
    let text = std::fs::read_to_string(db.file("tried")).unwrap_or_default();
    let of_key = |line: &str| line.strip_prefix(&format!("{key} ")).map(str::to_owned);
    text.lines().filter_map(of_key).collect()
}

fn push(db: &Database, key: &str, items: &[&str]) {
    run(db, &[&["push", "q", "--kind", "keyed", "--key", key][..], items].concat()).ok();
}

fn rule(db: &Database, on_dead: &str) {
    run(db, &["limits", "set", "q", "account-*", "--ordered", "--on-dead", on_dead, "--create"]).ok();
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn held(db: &Database) -> Vec<Value> {
    lines(&run(db, &["limits", "held", "q", "--json"]).ok())
}

/// The id of the only dead letter.
fn letter(db: &Database) -> String {
    let letters = lines(&run(db, &["dead", "list", "q", "--kind", "keyed", "--json"]).ok());
    let [letter] = &letters[..] else { panic!("{letters:?}") };
    letter["id"].as_str().unwrap().to_owned()
}

fn stop(served: Served) {
    served.daemon.signal(Signal::TERM);
    assert_eq!(served.daemon.end().code, Some(0));
}

#[test]
fn a_retried_item_of_an_ordered_key_is_handled_before_those_behind_it() {
    let db = Database::new();
    rule(&db, "continue");
    push(&db, "account-1", &["a", "twice", "b", "bad", "c"]);
    push(&db, "account-2", &["x", "y"]);
    let served = noting(&db, 3);
    wait_until("all have run", || tried(&db, "account-1").len() == 8 && tried(&db, "account-2").len() == 2);
    let wanted = ["a 1", "twice 1", "twice 2", "b 1", "bad 1", "bad 2", "bad 3", "c 1"];
    assert_eq!(tried(&db, "account-1"), wanted, "a dead letter lets those behind it go on");
    assert_eq!(tried(&db, "account-2"), ["x 1", "y 1"]);
    assert_eq!(held(&db), Vec::<Value>::new());
    stop(served);
}

#[test]
fn a_dead_letter_blocks_its_key_until_an_operator_unblocks_it() {
    let db = Database::new();
    rule(&db, "block");
    push(&db, "account-1", &["bad", "b"]);
    push(&db, "account-2", &["x", "y"]);
    let served = noting(&db, 1);
    wait_until("the others have run", || tried(&db, "account-2").len() == 2);
    wait_until("the key is blocked", || held(&db).iter().any(|key| key["item_state"] == "dead"));
    let letter = letter(&db);
    let key = json!({"key": "account-1", "item": letter, "item_state": "dead"});
    assert_eq!(held(&db), std::slice::from_ref(&key));
    let blocked = |count: u32| {
        wait_until("the metric", || {
            let metrics = String::from_utf8(served.at.get("/metrics").body).unwrap();
            metrics.contains(&format!("kvqueue_blocked_keys{{queue=\"q\"}} {count}\n"))
        });
    };
    blocked(1);
    let status = run(&db, &["status", "--at", served.at.tcp()]).ok();
    assert!(status.contains("blocked keys: 1"), "{status}");
    let over_http = || served.at.get("/api/v1/queues/q/held").is(200);
    assert_eq!(over_http(), json!({"keys": [key], "next": null}));
    let waits = lines(&run(&db, &["peek", "q", "--kind", "keyed", "--json"]).ok());
    let why = run(&db, &["why", "q", "--kind", "keyed", waits[0]["id"].as_str().unwrap()]).ok();
    assert!(why.contains(&format!("it waits for item {letter}")) && why.contains("unblock"), "{why}");
    assert_eq!(tried(&db, "account-1"), ["bad 1"]);
    // Idle consumers would look by themselves in an hour.
    run(&db, &["limits", "unblock", "q", "account-1"]).ok();
    wait_until("the next item runs", || tried(&db, "account-1") == ["bad 1", "b 1"]);
    assert_eq!(over_http(), json!({"keys": [], "next": null}));
    blocked(0);
    run(&db, &["limits", "unblock", "q", "account-1"]).failed(1);
    assert_eq!(lines(&run(&db, &["audit", "--json"]).ok()).len(), 2, "the rule, and one that is unblocked");
    stop(served);
}

#[test]
fn a_key_that_is_blocked_goes_on_after_its_dead_letter() {
    let db = Database::new();
    rule(&db, "block");
    push(&db, "account-1", &["bad", "b"]);
    let served = noting(&db, 1);
    wait_until("the key is blocked", || held(&db).len() == 1 && held(&db)[0]["item_state"] == "dead");
    std::fs::write(db.file("fixed"), "").unwrap();
    run(&db, &["requeue", "q", "--kind", "keyed", &letter(&db)]).ok();
    wait_until("both have run", || tried(&db, "account-1").last() == Some(&"b 1".to_owned()));
    assert_eq!(tried(&db, "account-1").len(), 3, "the dead letter first: {:?}", tried(&db, "account-1"));
    stop(served);
}

#[test]
fn a_rule_may_make_an_exception_for_dead_letters() {
    let db = Database::new();
    rule(&db, "block");
    run(&db, &["limits", "set", "q", "account-2", "--on-dead", "continue"]).ok();
    push(&db, "account-1", &["bad", "b"]);
    push(&db, "account-2", &["bad", "b"]);
    let served = noting(&db, 1);
    wait_until("the exception goes on", || tried(&db, "account-2") == ["bad 1", "b 1"]);
    wait_until("the other is blocked", || held(&db).len() == 1);
    assert_eq!((&held(&db)[0]["key"], tried(&db, "account-1").len()), (&json!("account-1"), 1));
    stop(served);
}

#[test]
fn held_keys_are_listed_in_pages_and_unblocked_by_their_bytes() {
    let db = Database::new();
    with_blocked(&db, &["a", "b", "c"]);
    let served = crate::support::serve(&db, "[queues.blocked]\nhandler = 'pull'\nkind = 'keyed'\n");
    let post = |body: Value| {
        let request = served.at.request("POST", "/api/v1/queues/blocked/items");
        request.json(&body).send().is(201)
    };
    post(json!({"items": [{"payload": "x", "key_base64": "/w=="}]}));
    let leased = served.at.post("/api/v1/queues/blocked/lease", &json!({})).is(200);
    let acknowledge =
        format!("/api/v1/queues/blocked/leases/{}/acknowledge", leased["lease"].as_str().unwrap());
    let dead = json!({"id": leased["items"][0]["id"], "outcome": "dead", "reason": "bad"});
    served.at.post(&acknowledge, &json!({"outcomes": [dead]})).is(200);

    let (mut names, mut after) = (Vec::new(), String::new());
    loop {
        let page = served.at.get(&format!("/api/v1/queues/blocked/held?limit=2{after}")).is(200);
        let keys = page["keys"].as_array().unwrap();
        assert!(!keys.is_empty() && keys.len() <= 2, "{page}");
        names.extend(keys.iter().map(|key| key.get("key").unwrap_or(&key["key_base64"]).clone()));
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    assert_eq!(names, ["a", "b", "c", "/w=="]);
    let first = run(&db, &["limits", "held", "blocked", "-n", "1", "--json"]);
    let [key] = &lines(&first.stdout)[..] else { panic!("{first:?}") };
    assert!(first.stderr.contains(&format!("--after {}", key["item"].as_str().unwrap())), "{first:?}");

    let unblock = |body: &Value| served.at.post("/api/v1/queues/blocked/unblock", body);
    unblock(&json!({"key_base64": "/w=="})).is(200);
    assert_eq!(unblock(&json!({"key_base64": "/w=="})).error(404), "not_found");
    for wrong in [json!({}), json!({"key": "a", "key_base64": "YQ=="}), json!({"key_base64": "%"})] {
        assert_eq!(unblock(&wrong).error(400), "bad_request", "{wrong}");
    }
    let records = lines(&run(&db, &["audit", "--json"]).ok());
    let last = records.last().unwrap();
    assert_eq!(
        (&last["action"], &last["details"]),
        (&json!("queue.unblock"), &json!({"key_base64": "/w=="}))
    );
}
