//! Data on stdout: text lines, or JSON objects one per line.

use std::io::{self, Write};

use base64::{Engine, prelude::BASE64_STANDARD};
use jiff::Timestamp;
use kvqueue_queue::{Item, Meta, Millis};
use serde_json::{Map, Value, json};

/// Prints `text` and a newline, or `object` as JSON.
pub(super) fn line(json: bool, text: &[u8], object: &Value) -> io::Result<()> {
    let mut out = io::stdout().lock();
    write_line(&mut out, json, text, object)?;
    out.flush()
}

/// Prints items in one go: payload and newline each, or objects as [`item`] makes them.
pub(super) fn items(json: bool, items: &[Item]) -> io::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    for item in items {
        let object = if json { self::item(item) } else { Value::Null };
        write_line(&mut out, json, &item.payload, &object)?;
    }
    out.flush()
}

/// An item: `id`, `payload`, and what else there is: `attempt` from the second on, and what goes beside the payload.
pub(super) fn item(item: &Item) -> Value {
    let mut object = Map::new();
    object.insert("id".to_owned(), json!(item.id.to_string()));
    insert_bytes(&mut object, "payload", &item.payload);
    if item.attempt > 1 {
        object.insert("attempt".to_owned(), item.attempt.into());
    }
    if let Some(meta) = &item.meta {
        insert_meta(&mut object, meta);
    }
    Value::Object(object)
}

/// Adds what a producer gave an item beside its payload.
pub(super) fn insert_meta(object: &mut Map<String, Value>, meta: &Meta) {
    if !meta.attributes.is_empty() {
        object.insert("attributes".to_owned(), json!(meta.attributes));
    }
    let enqueued_at = meta.enqueued_at.map(time);
    let texts = [
        ("content_type", &meta.content_type),
        ("trace_parent", &meta.trace_parent),
        ("enqueued_at", &enqueued_at),
    ];
    for (key, text) in texts {
        if let Some(text) = text {
            object.insert(key.to_owned(), json!(text));
        }
    }
    if let Some(key) = &meta.unique {
        insert_bytes(object, "unique", key);
    }
}

/// A time in RFC 3339, to the millisecond; or the number itself if it is beyond the calendar.
pub(super) fn time(millis: Millis) -> String {
    let time = i64::try_from(millis).ok().and_then(|millis| Timestamp::from_millisecond(millis).ok());
    time.map_or_else(|| millis.to_string(), |time| format!("{time:.3}"))
}

/// Prints a message on stderr. Without a stderr there is nobody to tell.
pub(super) fn note(text: std::fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Adds bytes under `key` if they are UTF-8, in base 64 under `key_base64` if not.
pub(super) fn insert_bytes(object: &mut Map<String, Value>, key: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => object.insert(key.to_owned(), json!(text)),
        Err(_) => object.insert(format!("{key}_base64"), json!(BASE64_STANDARD.encode(bytes))),
    };
}

/// An object that begins with the queue's name.
pub(super) fn about(queue: &[u8], key: &str, value: impl Into<Value>) -> Value {
    let mut object = Map::new();
    insert_bytes(&mut object, "queue", queue);
    object.insert(key.to_owned(), value.into());
    Value::Object(object)
}

fn write_line(out: &mut impl Write, json: bool, text: &[u8], object: &Value) -> io::Result<()> {
    if json {
        writeln!(out, "{object}")
    } else {
        out.write_all(text)?;
        out.write_all(b"\n")
    }
}

#[cfg(test)]
mod tests {
    use kvqueue_queue::ItemId;

    use super::*;

    #[test]
    fn an_item_shows_what_there_is_of_it() {
        let id: ItemId = "x01".parse().unwrap();
        let item = Item { id, payload: "a".into(), attempt: 1, meta: None };
        assert_eq!(super::item(&item), json!({"id": "x01", "payload": "a"}));
        let mut meta = Meta::default();
        meta.attributes.insert("k".to_owned(), "v".to_owned());
        meta.enqueued_at = Some(1_700_000_000_500);
        meta.unique = Some(b"\xff".to_vec());
        let item = Item { payload: b"\xff".as_slice().into(), attempt: 2, meta: Some(meta.into()), ..item };
        let expected = json!({
            "id": "x01",
            "payload_base64": "/w==",
            "attempt": 2,
            "attributes": {"k": "v"},
            "enqueued_at": "2023-11-14T22:13:20.500Z",
            "unique_base64": "/w==",
        });
        assert_eq!(super::item(&item), expected);
        assert_eq!(time(u64::MAX), u64::MAX.to_string());
    }

    #[test]
    fn bytes_that_are_not_text_are_encoded() {
        assert_eq!(about(b"q", "len", 3), json!({"queue": "q", "len": 3}));
        assert_eq!(about(b"\xff", "len", 3), json!({"queue_base64": "/w==", "len": 3}));
    }
}
