//! The content of the database at the end: `kvqueue len`, and a helper that looks at dead letters, effects and keys.

use std::process::Stdio;

use serde_json::{Value, json};

use super::{arena::Arena, ledger::Rest, payload::Name, plan::Queue};
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

fn rest(place: usize, found: &Value, len: &Value) -> Rest {
    let count = |state: &str| len[state].as_u64().unwrap_or_else(|| panic!("{state} of {len}"));
    let letters = found["letters"].as_array().unwrap().iter();
    let letters = letters.map(|letter| {
        let payload = letter["payload"].as_str().unwrap();
        Name::read(payload, letter["time"].as_str()).map_err(|_| payload.chars().take(100).collect())
    });
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
        letters: letters.collect(),
        effects: effects.collect(),
        keys: serde_json::from_value(found["keys"].clone()).unwrap(),
    }
}
