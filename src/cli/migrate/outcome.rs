//! What is printed of a queue that was moved, or compared.

use std::io;

use indicatif::{HumanBytes, HumanCount};
use kvqueue_queue::migration::Tally;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::{moving::Moving, rows::Compared};
use crate::cli::output;

/// Prints what became of a queue that was moved.
pub(super) fn moved(json: bool, moving: &Moving<'_>, compared: Option<&Compared>) -> io::Result<()> {
    let run = Uuid::from_bytes(moving.run).to_string();
    let mut object = about(moving, "moved");
    object.insert("run".to_owned(), json!(run));
    let Some(compared) = compared else {
        let text = format!("{}: it is at the target, where an earlier run has brought it", moving.name());
        return output::line(json, text.as_bytes(), &Value::Object(object));
    };
    let checksum = format!("{:032x}", compared.source.checksum());
    insert(&mut object, &compared.source.tally);
    object.insert("xxh3".to_owned(), json!(checksum));
    let text = format!(
        "{}: {}; checksum {checksum}, the same at both ends",
        moving.name(),
        described(&compared.source.tally)
    );
    output::line(json, text.as_bytes(), &Value::Object(object))
}

/// Prints how two ends compare; true if they are the same.
pub(super) fn compared(json: bool, moving: &Moving<'_>, compared: &Compared) -> io::Result<bool> {
    let Compared { source, target, differing } = compared;
    let is_same = *differing == 0 && source.checksum() == target.checksum();
    let checksums = [source, target].map(|sum| format!("{:032x}", sum.checksum()));
    let mut object = about(moving, "same");
    object.insert("same".to_owned(), json!(is_same));
    object.insert("differing".to_owned(), json!(differing));
    for (name, sum, checksum) in [("source", source, &checksums[0]), ("target", target, &checksums[1])] {
        let mut end = Map::new();
        insert(&mut end, &sum.tally);
        end.insert("xxh3".to_owned(), json!(checksum));
        object.insert(name.to_owned(), Value::Object(end));
    }
    let text = if is_same {
        format!(
            "{}: {}; checksum {}, the same at both ends",
            moving.name(),
            described(&source.tally),
            checksums[0]
        )
    } else {
        format!(
            "{}: {} rows differ; the source has {}, checksum {}; the target {}, checksum {}",
            moving.name(),
            HumanCount(*differing),
            described(&source.tally),
            checksums[0],
            described(&target.tally),
            checksums[1]
        )
    };
    output::line(json, text.as_bytes(), &Value::Object(object))?;
    Ok(is_same)
}

fn about(moving: &Moving<'_>, what: &str) -> Map<String, Value> {
    match output::about(moving.queue.name(), what, true) {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}

fn insert(object: &mut Map<String, Value>, tally: &Tally) {
    let Tally { rows, bytes, ready, waiting, dead, running } = *tally;
    let numbers = [
        ("items", tally.items()),
        ("ready", ready),
        ("waiting", waiting),
        ("dead", dead),
        ("running", running),
        ("rows", rows),
        ("bytes", bytes),
    ];
    for (name, number) in numbers {
        object.insert(name.to_owned(), json!(number));
    }
}

/// Items by their states, rows and bytes, in words.
fn described(tally: &Tally) -> String {
    let states = [
        (tally.ready, "ready"),
        (tally.waiting, "waiting"),
        (tally.dead, "dead"),
        (tally.running, "running"),
    ];
    let states: Vec<_> = states
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, state)| format!("{} {state}", HumanCount(*count)))
        .collect();
    let states = if states.is_empty() { String::new() } else { format!(" ({})", states.join(", ")) };
    let Tally { rows, bytes, .. } = *tally;
    let items = output::items_of(HumanCount(tally.items()));
    let plural = if rows == 1 { "" } else { "s" };
    format!("{items}{states} in {} row{plural}, {}", HumanCount(rows), HumanBytes(bytes))
}
