//! Items, batches and schedules as JSON has them, and the same as lines for people.

use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{base::text::one_line, status::Worker};

/// A field's name and its value, as a command prints them.
pub(super) type Line = (&'static str, String);

/// The most characters of a payload, of a reason and of a worker in a table.
pub(super) const MOST: usize = 60;

/// The most characters of a key in a table.
const KEY: usize = 40;

/// What is known of an item, a batch or a schedule.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct JsonObject(pub(super) Map<String, Value>);

impl JsonObject {
    pub(super) fn of(value: Value) -> Self {
        match value {
            Value::Object(object) => Self(object),
            _ => Self(Map::new()),
        }
    }

    pub(super) fn get(&self, field: &str) -> &Value {
        self.0.get(field).unwrap_or(&Value::Null)
    }

    /// A field as a text.
    pub(super) fn text_of(&self, field: &str) -> Option<String> {
        Some(text(self.0.get(field)?))
    }

    /// The same in a table: empty if it has none.
    pub(super) fn cell(&self, field: &str) -> String {
        self.text_of(field).unwrap_or_default()
    }

    /// The bytes of a field that is a text, or in base 64 under another name.
    pub(super) fn bytes_of(&self, field: &str) -> Option<Vec<u8>> {
        match self.get(field).as_str() {
            Some(text) => Some(text.as_bytes().to_vec()),
            None => BASE64_STANDARD.decode(self.get(&format!("{field}_base64")).as_str()?).ok(),
        }
    }

    /// The same, for people.
    fn printable(&self, field: &str) -> Option<String> {
        Some(self.bytes_of(field)?.escape_ascii().to_string())
    }

    /// Those of these fields that it has. Each pair is the name of a line and of its field.
    pub(super) fn lines(&self, fields: &[(&'static str, &str)]) -> impl Iterator<Item = Line> {
        fields.iter().filter_map(|(name, field)| Some((*name, self.text_of(field)?)))
    }

    /// Its key in a table; empty if its queue has no keys.
    pub(super) fn key_cell(&self) -> Option<String> {
        Some(one_line(&String::from_utf8_lossy(&self.bytes_of("key")?), KEY))
    }

    pub(super) fn key(&self) -> Option<Line> {
        Some(("key", self.printable("key")?))
    }

    /// Who has its lease: a worker over HTTP or a consumer of the daemon that answers, or else the process whose session leased it.
    pub(super) fn holder(&self) -> Option<String> {
        let lease = self.get("lease").as_object()?;
        if let Ok(worker) = Worker::deserialize(self.get("worker")) {
            return Some(one_line(&worker.to_string(), 2 * MOST));
        }
        if let Some(consumer) = self.get("handled_by")["consumer"].as_u64() {
            return Some(format!("consumer {consumer} of the daemon"));
        }
        let session = text(&lease["session"]);
        Some(match lease["process"].as_u64() {
            Some(process) => format!("process {process} (…{})", session.get(24..).unwrap_or_default()),
            None => format!("session {session}"),
        })
    }

    /// How old its lease is.
    pub(super) fn lease(&self) -> String {
        let lease = self.get("lease");
        let seconds = |field: &str| {
            lease[field].as_f64().map(|seconds| Duration::from_secs_f64(seconds.max(0.0)).as_secs())
        };
        let extended = seconds("extended_age").unwrap_or_default();
        match seconds("expires_in") {
            Some(left) => format!("extended {extended} s ago, {left} s left"),
            None => format!("expired, extended {extended} s ago"),
        }
    }

    /// A number of attempts, as in "2 of 20" if it is known how many there may be.
    pub(super) fn of_most(&self, field: &str) -> String {
        match (self.text_of(field), self.text_of("max_attempts")) {
            (Some(attempts), Some(most)) => format!("{attempts} of {most}"),
            (attempts, _) => attempts.unwrap_or_default(),
        }
    }

    pub(super) fn attributes(&self) -> impl Iterator<Item = Line> {
        let attributes = self.get("attributes").as_object().into_iter().flatten();
        attributes.map(|(name, value)| ("attribute", format!("{name}={}", text(value))))
    }

    /// How its attempts ended.
    fn failures(&self) -> impl Iterator<Item = Line> {
        self.get("failures").as_array().into_iter().flatten().map(|it| {
            let attempt = match it["attempt"].as_u64() {
                Some(0) | None => "no attempt".to_owned(),
                Some(number) => format!("attempt {number}"),
            };
            let before = if it["before_retry"] == true { ", before it was retried," } else { "" };
            ("failure", format!("{attempt}{before} at {}: {}", text(&it["at"]), text(&it["reason"])))
        })
    }

    /// What was pushed with it, and how its attempts ended.
    pub(super) fn about(&self) -> Vec<Line> {
        let mut lines = Vec::new();
        lines.extend(self.text_of("crashes").filter(|crashes| crashes != "0").map(|it| ("crashes", it)));
        lines.extend(self.failures());
        lines.extend(self.key());
        lines.extend(self.lines(&[("pushed", "enqueued_at")]));
        lines.extend(self.attributes());
        lines.extend(self.lines(&[
            ("content type", "content_type"),
            ("trace parent", "trace_parent"),
            ("expires", "expires_at"),
        ]));
        lines.extend(self.printable("unique").map(|key| ("unique key", key)));
        lines.extend(self.lines(&[("unique until", "unique_until")]));
        let batches = self.get("batches").as_array().into_iter().flatten();
        lines.extend(batches.map(|batch| ("batch", text(batch))));
        lines
    }

    /// How long its payload is, and the payload, unless it cannot be read.
    pub(super) fn payload(&self) -> (Line, Option<Vec<u8>>) {
        let payload = self.bytes_of("payload");
        let length = payload.as_ref().map(|payload| format!("{} bytes", payload.len()));
        (("payload", length.unwrap_or_else(|| "cannot be read".to_owned())), payload)
    }

    /// Why its payload is not shown, or not all of it. `what` is what it is, as in "dead letter".
    pub(super) fn problem(&self, what: &str) -> Option<String> {
        let id = self.text_of("id")?;
        if let Some(why) = self.text_of("unreadable") {
            return Some(format!("cannot show the payload of {what} {id}: {why}"));
        }
        (*self.get("cut") == true).then(|| {
            let (bytes, part) = (text(self.get("bytes")), self.payload().1.unwrap_or_default().len());
            format!("a daemon gives the first {part} of the {bytes} bytes of {what} {id}; ask the database itself for all")
        })
    }
}

/// Gives a type that is a [`JsonObject`] a schema, which is written by hand in `docs/openapi.json`.
macro_rules! schema {
    ($type:ident, $schema:tt) => {
        impl schemars::JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!($schema)
            }
        }
    };
}

pub(super) use schema;

/// A value as a text: a string without its quotation marks.
pub(super) fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
