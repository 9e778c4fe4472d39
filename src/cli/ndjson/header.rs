//! The first line: `{"kvqueue_export":1,...}`.

use kvqueue_queue::{End, Kind, Queue};
use serde_json::{Map, Value, json};

use super::FORMAT;
use crate::cli::output::insert_bytes;

/// The queue of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) struct Header {
    /// The kind's name, as it is written in a configuration.
    pub(in crate::cli) kind: String,
}

impl Header {
    /// The line for a queue, without a newline. `states`: those whose items follow.
    pub(in crate::cli) fn line(queue: &Queue, states: &[&str], exported_at: &str) -> String {
        let mut object = Map::new();
        insert_bytes(&mut object, "queue", queue.name());
        object.insert("kind".to_owned(), json!(queue.kind().to_string()));
        if let Kind::Priority(end, _) = queue.kind() {
            object.insert("end".to_owned(), json!(if end == End::Max { "max" } else { "min" }));
        }
        object.insert("states".to_owned(), json!(states));
        object.insert("exported_at".to_owned(), json!(exported_at));
        let rest = Value::Object(object).to_string();
        // First, so that it is seen at once what this is.
        format!("{{\"kvqueue_export\":{FORMAT},{}", &rest[1..])
    }

    /// Reads the line. Its other fields are for people.
    pub(super) fn parse(line: &[u8]) -> Result<Self, String> {
        let help = "this is no export of kvqueue; items by the line are for `kvqueue push --lines`";
        let Ok(Value::Object(object)) = serde_json::from_slice(line) else { return Err(help.to_owned()) };
        match object.get("kvqueue_export").map(Value::as_u64) {
            Some(Some(format)) if format == u64::from(FORMAT) => {}
            Some(_) => {
                let found = &object["kvqueue_export"];
                return Err(format!(
                    "this is an export of format {found}, and this version of kvqueue reads format {FORMAT}; use a newer one"
                ));
            }
            None => return Err(help.to_owned()),
        }
        let kind = object.get("kind").and_then(Value::as_str).unwrap_or("fifo").to_owned();
        Ok(Self { kind })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_header_has_format_and_kind() {
        let queue = Queue::of_kind(b"", b"q", Kind::Priority(End::Max, kvqueue_queue::Packing::Raw)).unwrap();
        let line = Header::line(&queue, &["ready"], "2026-01-01T00:00:00.000Z");
        assert!(line.starts_with("{\"kvqueue_export\":1,"), "{line}");
        assert_eq!(Header::parse(line.as_bytes()), Ok(Header { kind: "priority".to_owned() }));
        assert!(Header::parse(b"{\"kvqueue_export\":2}").unwrap_err().contains("of format 2"));
        for wrong in ["", "[]", "{}", "text", "{\"kvqueue_export\":"] {
            assert!(Header::parse(wrong.as_bytes()).unwrap_err().starts_with("this is no export"), "{wrong}");
        }
    }
}
