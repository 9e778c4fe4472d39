//! `kvqueue export`, `import`, `move` and `requeue`: nothing is lost on the way, and nothing comes twice.

mod damage;
mod moves;
mod requeue;
mod round_trip;

use std::io::Write;

use serde_json::Value;
use twox_hash::xxhash3_128::Hasher;

use crate::support::{Database, Random, run};

/// The options of every kind of queue, and of every way to store its values.
const LAYOUTS: [&[&str]; 7] = [
    &[],
    &["--kind", "recipe"],
    &["--kind", "recipe", "--values", "tuple"],
    &["--kind", "keyed"],
    &["--kind", "priority"],
    &["--kind", "priority", "--end", "max"],
    &["--kind", "priority", "--end", "max", "--values", "tuple"],
];

/// Arguments, one list behind the other.
fn args<'a>(lists: &[&[&'a str]]) -> Vec<&'a str> {
    lists.concat()
}

/// A whole export of these lines, as the page specifies it.
fn export_of(lines: &[String]) -> String {
    let mut text = "{\"kvqueue_export\":1,\"queue\":\"q\",\"kind\":\"fifo\"}\n".to_owned();
    lines.iter().for_each(|line| text += &format!("{line}\n"));
    let sum = Hasher::oneshot(text.as_bytes());
    text + &format!("{{\"end\":true,\"items\":{},\"xxh3\":\"{sum:032x}\"}}\n", lines.len())
}

/// Puts an export next to the database.
fn file(db: &Database, name: &str, text: &str) -> String {
    let path = db.file(name);
    std::fs::File::create(&path).unwrap().write_all(text.as_bytes()).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Plain ready items.
fn plain(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{{\"state\":\"ready\",\"payload\":\"{n}\"}}")).collect()
}

/// Items of all states with whatever they can have in a queue of this layout, without those of one unique key.
fn any(random: &mut Random, count: usize, layout: &[&str]) -> Vec<String> {
    let item = |n| {
        let mut item = any_item(random, n, layout.contains(&"priority"));
        if layout.contains(&"keyed") {
            let (name, key) =
                random.choose(&[("key", ""), ("key", "a"), ("key", "a/é"), ("key_base64", "/wA=")]);
            item[name] = key.into();
        }
        item.to_string()
    };
    (0..count).map(item).collect()
}

fn any_item(random: &mut Random, n: usize, priorities: bool) -> Value {
    let mut item = serde_json::json!({ "state": random.choose(&["ready", "ready", "waiting", "dead"]) });
    let len = random.choose(&[0, 0, 1, 1, 10, 10, 300, 300, 300, 300, 100_001, 250_000]);
    if random.chance(500) {
        item["payload"] = format!("{n} é\n{}", "x".repeat(len)).into();
    } else {
        use base64::{Engine, prelude::BASE64_STANDARD};
        let bytes: Vec<u8> = [0xff, 0].into_iter().chain((0..len).map(|at| at as u8)).collect();
        item["payload_base64"] = BASE64_STANDARD.encode(bytes).into();
    }
    let failure = serde_json::json!({"at": "2026-01-01T00:00:00.123Z", "attempt": 1, "reason": "no\nway"});
    match item["state"].as_str().unwrap() {
        "waiting" => {
            item["due"] = random.choose(&["2100-01-01T00:00:00.000Z", "18446744073709551615"]).into();
        }
        "dead" if random.chance(900) => item["death"] = failure.clone(),
        "ready" if priorities => item["priority"] = random.choose(&[-7_i64, 0, 1, i64::MAX]).into(),
        _ => {}
    }
    if item["priority"] == 0 {
        item.as_object_mut().unwrap().remove("priority");
    }
    if random.chance(300) {
        item["attempts"] = 2.into();
        item["crashes"] = 1.into();
        item["failures"] = vec![failure; 2].into();
    }
    if random.chance(300) {
        item["attributes"] = serde_json::json!({"to": "ann", "": "", "sum": "1=1"});
        item["content_type"] = "text/plain".into();
        item["trace_parent"] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into();
        item["enqueued_at"] = "2026-01-01T00:00:00.000Z".into();
        item["fields"] = serde_json::json!([{"tag": 200, "base64": "AQI="}]);
    }
    match random.below(4) {
        0 => item["unique"] = format!("key {n}").into(),
        1 => item["unique_base64"] = format!("/wAAAAAAAA{n:02}", n = n % 100).into(),
        _ => {}
    }
    // Of one key there is one item.
    if item.get("unique_base64").is_some() && n >= 100 {
        item.as_object_mut().unwrap().remove("unique_base64");
    }
    item
}

/// The items that a queue exports, without their ids, sorted: states do not come in a fixed order of their own.
fn exported(db: &Database, args: &[&str]) -> Vec<String> {
    let mut items: Vec<_> = in_order(db, args).iter().map(Value::to_string).collect();
    items.sort();
    items
}

/// The same in their order.
fn in_order(db: &Database, args: &[&str]) -> Vec<Value> {
    let text = run(db, &[&["export", "q"], args].concat()).ok();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("{\"kvqueue_export\":1,"), "{}", lines[0]);
    let (end, items) = lines[1..].split_last().unwrap();
    let end: Value = serde_json::from_str(end).unwrap();
    assert_eq!(end["items"], items.len());
    items
        .iter()
        .map(|line| {
            let mut item: Value = serde_json::from_str(line).unwrap();
            assert!(item.as_object_mut().unwrap().remove("id").is_some());
            item
        })
        .collect()
}

/// The first items of a queue without their ids, in the order in which they would be taken.
fn peeked(db: &Database, args: &[&str]) -> Vec<Value> {
    let text = run(db, &[&["peek", "-k", "999", "--json"], args].concat()).ok();
    let item = |line: &str| {
        let mut item: Value = serde_json::from_str(line).unwrap();
        // Without a time of its own, an item has that of its id.
        item.as_object_mut().unwrap().retain(|name, _| !["id", "enqueued_at"].contains(&name.as_str()));
        item
    };
    text.lines().map(item).collect()
}

/// The same of lines that were imported.
fn normal(lines: &[String]) -> Vec<String> {
    let value = |line: &String| serde_json::from_str::<Value>(line).unwrap().to_string();
    let mut lines: Vec<_> = lines.iter().map(value).collect();
    lines.sort();
    lines
}

fn len(db: &Database, args: &[&str]) -> u64 {
    run(db, &[&["len"], args].concat()).ok().trim_end().parse().unwrap()
}
