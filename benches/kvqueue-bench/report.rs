//! What came of a cell: one line of JSON, or a table.

use std::{
    io::{self, Write},
    time::Duration,
};

use comfy_table::{Table, presets::UTF8_FULL_CONDENSED};
use serde_json::{Map, Value, json};

use super::{
    ground::Ground,
    latency::Latency,
    options::{Common, Work},
    tally::Faults,
};

/// What a cell has measured, by the names that JSON has for it.
#[derive(Debug)]
pub(super) struct Report(Map<String, Value>);

impl Report {
    pub(super) fn new(cell: &str, ground: &Ground, common: &Common) -> Self {
        Self(Map::new())
            .set("cell", cell)
            .set("engine", ground.engine())
            .set("version", env!("CARGO_PKG_VERSION"))
            .set("payload", common.payload)
    }

    #[must_use]
    pub(super) fn set(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.0.insert(key.to_owned(), value.into());
        self
    }

    /// Who handled the items.
    #[must_use]
    pub(super) fn work(self, work: &Work) -> Self {
        self.set("workers", work.workers)
            .set("k", work.k)
            .set("delivery", json!(work.delivery()))
            .set("fetch_strategy", json!(work.fetch_strategy()))
            .set("handler", json!(work.handler()))
            .set("baseline", work.baseline)
    }

    /// The number of items and the time that they took.
    #[must_use]
    pub(super) fn rate(self, items: u64, time: Duration) -> Self {
        let seconds = time.as_secs_f64();
        self.set("items", items).set("seconds", rounded(seconds, 6)).set("per_second", rate(items, time))
    }

    #[must_use]
    pub(super) fn latency(self, key: &str, nanos: impl IntoIterator<Item = u64>) -> Self {
        self.set(key, Latency::of(nanos).json())
    }

    #[must_use]
    pub(super) fn faults(self, faults: Faults) -> Self {
        let Faults { lost, repeated, invented } = faults;
        let report = self.set("lost", lost).set("repeated", repeated);
        if invented > 0 { report.set("invented", invented) } else { report }
    }

    /// Whether nothing was lost and nothing came twice.
    pub(super) fn is_clean(&self) -> bool {
        ["lost", "repeated", "invented"]
            .iter()
            .all(|key| self.0.get(*key).is_none_or(|value| *value == json!(0)))
    }

    pub(super) fn print(&self, json: bool) -> io::Result<()> {
        let text = if json { String::new() } else { self.table().to_string() };
        print(json, &text, &self.0)
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_preset(UTF8_FULL_CONDENSED);
        let first = ["cell", "items", "seconds", "per_second", "latency_us", "lost", "repeated"];
        let rest = self.0.keys().map(String::as_str).filter(|key| !first.contains(key));
        for key in first.into_iter().chain(rest) {
            if let Some(value) = self.0.get(key) {
                table.add_row([key.replace('_', " "), text(value)]);
            }
        }
        table
    }
}

/// A value as a person reads it.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        Value::Bool(yes) => if *yes { "yes" } else { "no" }.to_owned(),
        Value::Array(values) => values.iter().map(text).collect::<Vec<_>>().join("\n"),
        Value::Object(fields) => {
            let field =
                |(key, value): (&String, &Value)| format!("{} {}", key.replace('_', "."), text(value));
            fields.iter().map(field).collect::<Vec<_>>().join(", ")
        }
        Value::Number(number) => match number.as_f64() {
            Some(number) if number.abs() >= 1_000.0 => format!("{number:.0}"),
            _ => number.to_string(),
        },
    }
}

/// Prints `text` and a newline, or `object` as JSON.
pub(super) fn print(json: bool, text: &str, object: &impl serde::Serialize) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if json {
        serde_json::to_writer(&mut out, object)?;
        out.write_all(b"\n")?;
    } else {
        writeln!(out, "{text}")?;
    }
    out.flush()
}

/// Items a second.
pub(super) fn rate(items: u64, time: Duration) -> f64 {
    rounded(items as f64 / time.as_secs_f64().max(1e-9), 1)
}

/// Rounded to this number of places.
pub(super) fn rounded(value: f64, places: i32) -> f64 {
    let factor = 10_f64.powi(places);
    (value * factor).round() / factor
}
