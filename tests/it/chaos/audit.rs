//! The content of the database at the end: `kvqueue len`, and a helper that looks at dead letters, effects and keys.

use std::{collections::BTreeMap, process::Stdio};

use serde_json::{Value, json};

use super::{
    arena::Arena,
    ledger::{Ended, Rest},
    payload::Name,
    plan::Queue,
};
use crate::support::{Ran, helper};

/// Looks at what is left of the queues.
pub(super) fn audit(arena: &Arena) -> Vec<Rest> {
    let names: Vec<_> = arena.queues.iter().map(|queue| json!([queue.name, queue.kind])).collect();
    let mut command = helper(&arena.db, "chaos::audit");
    command.arg(Value::from(names).to_string()).stdin(Stdio::null());
    let ran: Ran = command.output().unwrap().into();
    let said = ran.stdout.lines().find(|line| line.starts_with('[')).unwrap_or_else(|| panic!("{ran:?}"));
    let found: Vec<Value> = serde_json::from_str(said).unwrap();
    let found = found.iter().zip(0..);
    found.map(|(found, place)| rest(place, found, &len(arena, &arena.queues[place]))).collect()
}

fn len(arena: &Arena, queue: &Queue) -> Value {
    serde_json::from_str(&arena.answer(&["len", &queue.name, "--json"])).unwrap()
}

/// What the history of a queue has, the oldest first.
pub(super) fn history(arena: &Arena, queue: &Queue) -> Vec<Ended> {
    let printed = arena.answer(&["history", &queue.name, "-n", "1000000", "--json"]);
    let ended = |line: &str| {
        let item: Value = serde_json::from_str(line).unwrap();
        let text = |key: &str| item[key].as_str().unwrap().to_owned();
        let errand = item["attributes"]["errand"].as_str().map(|number| number.parse().unwrap());
        Ended { id: text("id"), outcome: text("outcome"), errand }
    };
    printed.lines().rev().map(ended).collect()
}

fn rest(place: usize, found: &Value, len: &Value) -> Rest {
    let count = |state: &str| len[state].as_u64().unwrap_or_else(|| panic!("{state} of {len}"));
    let letters = found["letters"].as_array().unwrap().iter();
    let (mut names, mut letter_ids) = (Vec::new(), BTreeMap::new());
    for letter in letters {
        let payload = letter["payload"].as_str().unwrap();
        let name = Name::read(payload, letter["time"].as_str());
        letter_ids.extend(name.as_ref().ok().map(|name| (*name, letter["id"].as_str().unwrap().to_owned())));
        names.push(name.map_err(|_| payload.chars().take(100).collect()));
    }
    let effects = found["effects"].as_array().unwrap().iter();
    let effects = effects.map(|effect| {
        let number = |at: usize| effect[at].as_u64().unwrap();
        (Name { queue: place, producer: number(0), place: number(1) }, number(2))
    });
    Rest {
        ready: count("ready"),
        running: count("running"),
        waiting: count("waiting"),
        dead: count("dead"),
        done: count("done"),
        letters: names,
        letter_ids,
        effects: effects.collect(),
        keys: serde_json::from_value(found["keys"].clone()).unwrap(),
    }
}
