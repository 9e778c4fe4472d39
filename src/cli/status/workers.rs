//! Workers of other programs as lines for a terminal. Pure.

use std::fmt;

use serde::Deserialize;

use super::{
    format::{age, fitting},
    text::{Line, Mood},
};

/// The most workers that are shown.
const MOST: usize = 20;

/// The longest text in a column.
const CELL: usize = 40;

/// A lease of a worker, or a worker that waits.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::cli) struct Worker {
    queue: String,
    who: Who,
    address: Option<String>,
    user_agent: Option<String>,
    for_seconds: f64,
    lease: Option<String>,
    items: Option<u64>,
    heartbeat_seconds: Option<f64>,
    expires_in_seconds: Option<f64>,
}

/// Who it is, from where, and which program.
impl fmt::Display for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fit = |text: &str| fitting(text, CELL);
        write!(f, "{}", fit(&self.who.to_string()))?;
        if let Some(address) = &self.address {
            write!(f, " at {}", fit(address))?;
        }
        match &self.user_agent {
            Some(agent) => write!(f, " ({})", fit(agent)),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{} {name}", self.kind),
            None => f.write_str(&self.kind),
        }
    }
}

/// Who sends its requests.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Who {
    kind: String,
    name: Option<String>,
}

/// How many workers of a queue there are.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::cli) struct Counts {
    waiting: usize,
    working: usize,
}

const COLUMNS: [&str; 9] =
    ["QUEUE", "WORKER", "ADDRESS", "PROGRAM", "LEASE", "ITEMS", "FOR", "HEARTBEAT", "EXPIRES"];

/// A table of workers, if there are any. `omitted` more are not known.
pub(in crate::cli) fn lines(workers: &[Worker], omitted: usize) -> Vec<Line> {
    if workers.is_empty() {
        return Vec::new();
    }
    let rows: Vec<_> = workers.iter().take(MOST).map(cells).collect();
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).chain([COLUMNS[at].len()]).max();
    let widths: Vec<_> = (0..COLUMNS.len()).map(|at| width(at).unwrap_or_default()).collect();
    let line = |cells: &[String], mood| {
        let cells = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        Line::new(cells.collect::<Vec<_>>().join("  "), mood)
    };
    let head = line(&COLUMNS.map(str::to_owned), Mood::Quiet);
    let rest = workers.len() - rows.len() + omitted;
    let more = (rest > 0).then(|| Line::new(format!("and {rest} more workers"), Mood::Quiet));
    let rows = rows.iter().map(|row| line(row, Mood::Plain));
    [Line::default(), head].into_iter().chain(rows).chain(more).collect()
}

fn cells(worker: &Worker) -> [String; COLUMNS.len()] {
    let fit = |text: &str| fitting(text, CELL);
    let known = |text: &Option<String>| text.as_deref().map_or_else(|| "-".to_owned(), fit);
    [
        fit(&worker.queue),
        fit(&worker.who.to_string()),
        known(&worker.address),
        known(&worker.user_agent),
        worker.lease.as_deref().map_or_else(|| "waits".to_owned(), fit),
        worker.items.map_or_else(|| "-".to_owned(), |items| items.to_string()),
        age(worker.for_seconds),
        worker.heartbeat_seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{} ago", age(seconds))),
        worker.expires_in_seconds.map_or_else(|| "-".to_owned(), |seconds| format!("in {}", age(seconds))),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn workers_are_shown_with_what_they_have() {
        let worker = |value| serde_json::from_value::<Worker>(value).unwrap();
        let workers = [
            worker(json!({
                "queue": "mail", "state": "working", "who": { "kind": "token", "name": "ci" }, "address": "10.0.0.7:5123",
                "user_agent": "worker\u{1b}[2J/1", "for_seconds": 12.0, "lease": "0193ab12…-57", "items": 10,
                "heartbeat_seconds": 2.0, "expires_in_seconds": 28.0, "new": 1,
            })),
            worker(
                json!({ "queue": "mail", "state": "waiting", "who": { "kind": "anyone" }, "for_seconds": 3.0, "lease": null }),
            ),
        ];
        let shown = lines(&workers, 29);
        let shown: String = shown[1..].iter().map(|line| line.show(false, 200) + "\n").collect();
        insta::assert_snapshot!(shown, @r"
        QUEUE  WORKER    ADDRESS        PROGRAM            LEASE         ITEMS  FOR   HEARTBEAT  EXPIRES
        mail   token ci  10.0.0.7:5123  worker\u{1b}[2J/1  0193ab12…-57  10     12 s  2 s ago    in 28 s
        mail   anyone    -              -                  waits         -      3 s   -          -
        and 29 more workers
        ");
        assert!(lines(&[], 0).is_empty());
    }
}
