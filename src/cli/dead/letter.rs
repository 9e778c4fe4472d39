//! A dead letter as it is printed.

use jiff::Timestamp;
use kvqueue_queue::{DeadLetter, Failure, Millis};
use serde_json::{Map, Value, json};

use crate::cli::output::insert_bytes;

/// A time of day for people and programs, as in RFC 3339; one out of range as the number that it is.
pub(super) fn time(at: Millis) -> String {
    let timestamp = i64::try_from(at).ok().and_then(|at| Timestamp::from_millisecond(at).ok());
    timestamp.map_or_else(|| format!("{at} ms"), |timestamp| format!("{timestamp:.3}"))
}

/// The first line of a text.
pub(super) fn one_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

/// All that is known, as an object; what a letter does not have is left out.
pub(super) fn object(letter: &DeadLetter) -> Value {
    let meta = &letter.meta;
    let mut object = Map::new();
    let mut insert = |key: &str, value: Value| {
        object.insert(key.to_owned(), value);
    };
    insert("id", json!(letter.id.to_string()));
    insert("died_at", json!(time(letter.died_at)));
    insert("reason", json!(letter.reason));
    insert("attempts", json!(meta.attempts));
    insert("crashes", json!(meta.crashes));
    let failure = |it: &Failure| json!({ "at": time(it.at), "attempt": it.attempt, "reason": it.reason });
    insert("failures", meta.failures.iter().map(failure).collect());
    insert("attributes", json!(meta.attributes));
    if let Some(at) = meta.enqueued_at {
        insert("enqueued_at", json!(time(at)));
    }
    if let Some(text) = &meta.content_type {
        insert("content_type", json!(text));
    }
    if let Some(text) = &meta.trace_parent {
        insert("trace_parent", json!(text));
    }
    if let Some(key) = &meta.unique {
        insert_bytes(&mut object, "unique", key);
    }
    if let Some(payload) = &letter.payload {
        insert_bytes(&mut object, "payload", payload);
    }
    Value::Object(object)
}

/// All that is known, as lines, and the payload behind an empty one.
pub(super) fn text(letter: &DeadLetter) -> Vec<u8> {
    let meta = &letter.meta;
    let mut lines = vec![
        ("id", letter.id.to_string()),
        ("died", time(letter.died_at)),
        ("reason", letter.reason.clone()),
        ("attempts", meta.attempts.to_string()),
    ];
    if meta.crashes > 0 {
        lines.push(("crashes", meta.crashes.to_string()));
    }
    for failure in &meta.failures {
        let text = format!("attempt {} at {}: {}", failure.attempt, time(failure.at), failure.reason);
        lines.push(("failure", text));
    }
    lines.extend(meta.attributes.iter().map(|(name, value)| ("attribute", format!("{name}={value}"))));
    lines.extend(meta.enqueued_at.map(|at| ("pushed", time(at))));
    lines.extend(meta.content_type.clone().map(|text| ("content type", text)));
    lines.extend(meta.trace_parent.clone().map(|text| ("trace parent", text)));
    lines.extend(meta.unique.as_ref().map(|key| ("unique key", key.escape_ascii().to_string())));
    let payload = letter.payload.as_deref().unwrap_or_default();
    lines.push(("payload", format!("{} bytes", payload.len())));
    let mut text: Vec<u8> =
        lines.iter().flat_map(|(name, value)| format!("{name:13}{value}\n").into_bytes()).collect();
    text.push(b'\n');
    text.extend_from_slice(payload);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_printed_to_the_millisecond() {
        assert_eq!(time(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(time(1_800_000_000_010), "2027-01-15T08:00:00.010Z");
        assert_eq!(time(u64::MAX), "18446744073709551615 ms");
    }
}
