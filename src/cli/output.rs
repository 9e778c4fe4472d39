//! Data on stdout: text lines, or JSON objects one per line.

use std::io::{self, Write};

use base64::{Engine, prelude::BASE64_STANDARD};
use kvqueue_queue::Item;
use serde_json::{Map, Value, json};

/// Prints `text` and a newline, or `object` as JSON.
pub(super) fn line(json: bool, text: &[u8], object: &Value) -> io::Result<()> {
    let mut out = io::stdout().lock();
    write_line(&mut out, json, text, object)?;
    out.flush()
}

/// Prints items in one go: payload and newline each, or objects with `id` and `payload`.
pub(super) fn items(json: bool, items: &[Item]) -> io::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    for item in items {
        let mut object = Map::new();
        object.insert("id".to_owned(), json!(item.id.to_string()));
        insert_bytes(&mut object, "payload", &item.payload);
        write_line(&mut out, json, &item.payload, &Value::Object(object))?;
    }
    out.flush()
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
    use super::*;

    #[test]
    fn bytes_that_are_not_text_are_encoded() {
        assert_eq!(about(b"q", "len", 3), json!({"queue": "q", "len": 3}));
        assert_eq!(about(b"\xff", "len", 3), json!({"queue_base64": "/w==", "len": 3}));
    }
}
