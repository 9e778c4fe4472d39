//! The first line of an export, `{"kvqueue_export":1,...}`, and the last one: how many items there were, and a checksum of all
//! lines before it.

use kvqueue_queue::{End as TakeEnd, Kind, Queue};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use twox_hash::xxhash3_128::Hasher;

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
            object.insert("end".to_owned(), json!(if end == TakeEnd::Max { "max" } else { "min" }));
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

/// Counts and sums up lines, of an export that is written or read.
pub(in crate::cli) struct Tally {
    hash: Hasher,
    items: u64,
}

/// The last line of an export.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct End {
    end: bool,
    items: u64,
    xxh3: String,
}

impl Tally {
    pub(in crate::cli) fn new() -> Self {
        Self { hash: Hasher::new(), items: 0 }
    }

    /// A line that is not an item's, such as the header, without its newline.
    pub(in crate::cli) fn add_line(&mut self, line: &[u8]) {
        self.hash.write(line);
        self.hash.write(b"\n");
    }

    /// An item's line, without its newline.
    pub(in crate::cli) fn add_item(&mut self, line: &[u8]) {
        self.add_line(line);
        self.items += 1;
    }

    pub(in crate::cli) fn items(&self) -> u64 {
        self.items
    }

    /// The last line, without a newline.
    pub(in crate::cli) fn end(&self) -> String {
        let (items, sum) = (self.items, self.sum());
        format!("{{\"end\":true,\"items\":{items},\"xxh3\":\"{sum}\"}}")
    }

    /// Whether what was read is what the last line says.
    pub(super) fn check(&self, end: &End) -> Result<(), String> {
        if end.items != self.items {
            return Err(format!(
                "this says that there are {} items, and there are {}: lines are missing or were added",
                end.items, self.items
            ));
        }
        if end.xxh3 != self.sum() {
            return Err(
                "the checksum here is not that of the lines before it: one of them was changed".to_owned()
            );
        }
        Ok(())
    }

    fn sum(&self) -> String {
        format!("{:032x}", self.hash.finish_128())
    }
}

impl End {
    /// Reads the last line; `None` if the line is an item.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        serde_json::from_slice::<Self>(line).ok().filter(|end| end.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_header_has_format_and_kind() {
        let queue =
            Queue::of_kind(b"", b"q", Kind::Priority(TakeEnd::Max, kvqueue_queue::Packing::Raw)).unwrap();
        let line = Header::line(&queue, &["ready"], "2026-01-01T00:00:00.000Z");
        assert!(line.starts_with("{\"kvqueue_export\":1,"), "{line}");
        assert_eq!(Header::parse(line.as_bytes()), Ok(Header { kind: "priority".to_owned() }));
        assert!(Header::parse(b"{\"kvqueue_export\":2}").unwrap_err().contains("of format 2"));
        for wrong in ["", "[]", "{}", "text", "{\"kvqueue_export\":"] {
            assert!(Header::parse(wrong.as_bytes()).unwrap_err().starts_with("this is no export"), "{wrong}");
        }
    }

    #[test]
    fn missing_or_changed_lines_are_detected_by_the_end_line() {
        let tally = |header: &str, items: &[&str]| {
            let mut tally = Tally::new();
            tally.add_line(header.as_bytes());
            items.iter().for_each(|item| tally.add_item(item.as_bytes()));
            tally
        };
        let end = End::parse(tally("h", &["a", "b"]).end().as_bytes()).unwrap();
        assert_eq!(tally("h", &["a", "b"]).check(&end), Ok(()));
        assert!(tally("h", &["a"]).check(&end).unwrap_err().contains("there are 2 items, and there are 1"));
        for (header, items) in [("h", ["a", "c"]), ("g", ["a", "b"]), ("h", ["b", "a"])] {
            assert!(tally(header, &items).check(&end).unwrap_err().starts_with("the checksum"));
        }
        assert!(End::parse(b"{\"state\":\"ready\",\"payload\":\"a\"}").is_none());
    }
}
