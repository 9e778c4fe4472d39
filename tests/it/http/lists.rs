//! Lists that are longer than one answer: following `next` gives all there is, once.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::{Database, Served, run, serve};

/// More than two answers have.
const MANY: usize = 230;
/// The most elements of one answer.
const PAGE: usize = 100;

/// A queue of each kind of list.
const QUEUES: &str = "[queues.work]\nhandler = 'pull'\nhistory = '1d'\nlease = '1h'\n\
    [queues.keyed]\nhandler = 'pull'\nkind = 'keyed'\nlease = '1h'\nretry.max-attempts = 1\n";

/// Takes up to so many items of a queue, and ends them in this way.
fn end(served: &Served, queue: &str, max: usize, outcome: &str) {
    let mut left = max;
    while left > 0 {
        let leased =
            served.at.post(&format!("/api/v1/queues/{queue}/lease"), &json!({"max": left.min(PAGE)})).is(200);
        let (lease, items) = (leased["lease"].as_str().unwrap(), leased["items"].as_array().unwrap());
        let outcome = |item: &Value| json!({"id": item["id"], "outcome": outcome, "reason": "no"});
        let outcomes: Vec<_> = items.iter().map(outcome).collect();
        let path = format!("/api/v1/queues/{queue}/leases/{lease}/acknowledge");
        served.at.post(&path, &json!({"outcomes": outcomes})).is(200);
        left -= items.len();
    }
}

/// How long each answer is until the list ends. Fails if an element is there twice.
fn answers(served: &Served, path: &str, list: &str) -> Vec<usize> {
    let (mut lengths, mut seen, mut after) = (Vec::new(), BTreeSet::new(), String::new());
    loop {
        let answer = served.at.get(&format!("{path}{after}")).is(200);
        let elements = answer[list].as_array().unwrap_or_else(|| panic!("{path}: {answer}"));
        lengths.push(elements.len());
        for element in elements {
            assert!(seen.insert(element.to_string()), "{path} has this twice: {element}");
        }
        let Some(next) = answer["next"].as_str() else { return lengths };
        let mark = if path.contains('?') { '&' } else { '?' };
        after = format!("{mark}after={next}");
    }
}

#[test]
fn every_list_goes_on_behind_its_first_answer() {
    let db = Database::new();
    run(&db, &["limits", "set", "keyed", "*", "--ordered", "--on-dead", "block", "--create"]).ok();
    let served = serve(&db, QUEUES);
    let push = |queue: &str, item: &dyn Fn(usize) -> Value| {
        let items: Vec<_> = (0..MANY).map(item).collect();
        served.at.post(&format!("/api/v1/queues/{queue}/items"), &json!({"items": items})).is(201);
    };
    push("keyed", &|n| json!({"payload": "x", "key": format!("key {n}")}));
    end(&served, "keyed", MANY, "dead");
    for outcome in ["done", "dead"] {
        push("work", &|n| json!({"payload": format!("{n}")}));
        end(&served, "work", MANY, outcome);
    }
    push("work", &|n| json!({"payload": format!("{n}"), "delay_ms": 3_600_000}));
    push("work", &|n| json!({"payload": format!("{n}")}));
    for n in 0..MANY {
        let schedule = format!("/api/v1/queues/work/schedules/{n}");
        served.at.request("PUT", &schedule).json(&json!({"cron": "@yearly"})).send().is(200);
        served.at.post("/api/v1/queues/work/batches", &json!({"then": {"payload": "x"}})).is(201);
    }
    let lists = [
        ("queues/work/items", "items"),
        ("queues/work/items?state=scheduled", "items"),
        ("queues/work/items?state=dead", "items"),
        ("queues/work/dead", "letters"),
        ("queues/work/ended?outcome=done", "items"),
        ("queues/work/schedules", "schedules"),
        ("queues/work/batches", "batches"),
        ("queues/keyed/held", "keys"),
    ];
    for (path, list) in lists {
        let lengths = answers(&served, &format!("/api/v1/{path}"), list);
        assert_eq!(lengths.iter().sum::<usize>(), MANY, "{path}: {lengths:?}");
        assert!(lengths.iter().all(|len| *len <= PAGE), "{path}: {lengths:?}");
    }
    let audit: usize = answers(&served, "/api/v1/audit", "records").iter().sum();
    assert!(audit >= MANY, "{audit}");
    // Commands follow `next` themselves.
    let batches = run(&db, &["batch", "list", "work", "-n", "1000", "--json"]).ok();
    assert_eq!(batches.lines().count(), MANY);
}
