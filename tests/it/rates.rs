//! Rates of keyed queues.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::support::{Database, Served, kvqueue, run, serve, serve_with, wait_until};

const KEYED: [&str; 2] = ["--kind", "keyed"];

fn push(db: &Database, key: &str, count: usize) {
    run(db, &[&["push", "q", "--key", key][..], &KEYED, &vec!["x"; count]].concat()).ok();
}

/// A daemon whose handler notes the key of each item, and the time in nanoseconds. It would look by itself in an hour.
fn noting(db: &Database) -> Served {
    let config = db.file("kvqueue.toml");
    let text = "[queues.q]\nkind = 'keyed'\nhandler = 'exec'\npoll-interval = '1h'\nconsumers = [{ k = 1, count = 4 }]\n\
        handler-config.command = ['sh', '-c', 'echo \"$KVQUEUE_KEY $(date +%s%N)\" >> begun']\n";
    std::fs::write(&config, text).unwrap();
    let mut command = kvqueue(db, &["run", "--config", config.to_str().unwrap()]);
    command.current_dir(db.directory.path());
    serve_with(command, false)
}

/// When the items of a key have begun, in order.
fn begun(db: &Database, key: &str) -> Vec<Duration> {
    let text = std::fs::read_to_string(db.file("begun")).unwrap_or_default();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let pairs = whole.lines().map(|line| line.split_once(' ').unwrap());
    let times = pairs.filter(|(of, _)| *of == key).map(|(_, at)| Duration::from_nanos(at.parse().unwrap()));
    let mut times: Vec<_> = times.collect();
    times.sort();
    times
}

#[test]
fn a_rate_keeps_over_two_daemons_and_other_keys_do_not_wait() {
    let db = Database::new();
    run(&db, &["limits", "set", "q", "tenant-*", "--rate", "10/1s", "--burst", "4", "--create"]).ok();
    let daemons = [noting(&db), noting(&db)];
    push(&db, "tenant-7", 44);
    push(&db, "free", 9);
    wait_until("all items have begun", || begun(&db, "tenant-7").len() == 44);
    let times = begun(&db, "tenant-7");
    let (first, last) = (times[0], times[43]);
    // Four at once, and forty at ten in a second. Between a fetch and its command is some time.
    assert!(last - first > Duration::from_millis(2_500), "{:?}", last - first);
    let free = begun(&db, "free");
    assert!(free.len() == 9 && free[8] < last, "{free:?}");
    for served in daemons {
        served.daemon.signal(Signal::TERM);
        assert_eq!(served.daemon.end().code, Some(0));
    }
}

#[test]
fn a_worker_that_waits_for_a_lease_gets_the_next_item_when_the_rate_allows_it() {
    let db = Database::new();
    run(&db, &["limits", "set", "q", "--queue", "--rate", "1/2s", "--create"]).ok();
    let served = serve(&db, "[queues.q]\nhandler = 'pull'\nkind = 'keyed'\n");
    let lease = |wait_ms: u64| {
        let body = json!({"max": 9, "wait_ms": wait_ms});
        served.at.post("/api/v1/queues/q/lease", &body).is(200)["items"].as_array().unwrap().len()
    };
    // This one leaves a watch behind.
    assert_eq!(lease(10), 0);
    push(&db, "a", 3);
    assert_eq!(lease(20_000), 1);
    let began = Instant::now();
    assert_eq!(lease(10), 0);
    // Without the rate it would look at the queue every 30 seconds.
    assert_eq!((lease(20_000), lease(20_000)), (1, 1));
    assert!(began.elapsed() > Duration::from_secs(3), "{:?}", began.elapsed());
}

#[test]
fn rates_are_read_and_changed_over_http() {
    let db = Database::new();
    let served = serve(&db, "[queues.q]\nhandler = 'pull'\nkind = 'keyed'\n");
    let path = "/api/v1/queues/q/limits";
    let put = |body: &serde_json::Value| served.at.request("PUT", path).json(body).send();
    put(&json!({"whole_queue": true, "rate": "100/60s"})).is(200);
    put(&json!({"pattern": "a", "rate": "5/1s", "burst": 20, "running": 2})).is(200);
    let expected = json!([
        {"whole_queue": true, "rate": "100/1m"},
        {"pattern": "a", "running": 2, "rate": "5/1s", "burst": 20},
    ]);
    assert_eq!(served.at.get(path).is(200)["rules"], expected);
    let refused = |body: serde_json::Value| {
        let reply = put(&body);
        let message = reply.json()["error"]["message"].as_str().unwrap().to_owned();
        assert_eq!(reply.error(400), "bad_request", "{body}");
        message
    };
    insta::assert_snapshot!(refused(json!({"pattern": "a", "rate": "100"})), @r#"rate: "100" is not a rate; write items and a time, as in "100/1m" or "5/s""#);
    insta::assert_snapshot!(refused(json!({"pattern": "a", "rate": "1/1us"})), @r#"rate: "1/1us" is not possible: a rate is for a time from 1 ms to 365 days; choose one within that"#);
    insta::assert_snapshot!(refused(json!({"pattern": "a", "rate": "1/1s", "burst": 0})), @"burst is 0, and has to be 1 or more");
    insta::assert_snapshot!(refused(json!({"pattern": "a", "burst": 1})), @"burst is a part of a rate, and there is none");
    let records = run(&db, &["audit", "--json"]).ok();
    let last: serde_json::Value = serde_json::from_str(records.lines().last().unwrap()).unwrap();
    assert_eq!(last["details"], json!({"pattern": "a", "running": 2, "rate": "5/1s", "burst": 20}));
}
