//! kvqueue itself: every cell is a `kvqueue bench`, a process of its own, on the embedded engine or on a cluster.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Map, Value};

use super::{Place, Size, System};
use crate::cell::{
    Cell, FLOOD_PRODUCERS, IDLE_WORKERS, PAYLOAD, PICKUP_EVERY_MS, SUSTAINED_EACH, SUSTAINED_K,
    SUSTAINED_RATE,
};
use crate::cells;
use crate::error::Error;
use crate::outcome::{CONFLICTS, CPU, Outcome, PER_SECOND, PUSHES_PER_SECOND, RESIDENT};
use crate::process::Program;

/// Which of kvqueue's promises, or whose algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// At-least-once, the default.
    Default,
    /// At-most-once: only the cells that work a queue off.
    AtMostOnce,
    /// Exactly-once: only the cells that work a queue off.
    ExactlyOnce,
    /// One producer for all clients: only the cells in which several push single items, as fast as they can.
    Shared,
    /// The algorithm of the program that kvqueue follows: only the cells in which items are taken.
    Seed,
}

/// A FoundationDB cluster.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// Its cluster file.
    pub file: PathBuf,
    /// FoundationDB's client library, if not the system's.
    pub library: Option<PathBuf>,
}

/// kvqueue in one of its modes, on one engine.
pub struct KvQueue {
    place: Place,
    program: PathBuf,
    name: String,
    mode: Mode,
    cluster: Option<Cluster>,
}

impl KvQueue {
    /// The program `program`; without a cluster, on the embedded engine in a directory below `place`.
    pub fn new(place: Place, program: &Path, mode: Mode, cluster: Option<Cluster>) -> Result<Self, Error> {
        std::fs::create_dir_all(&place.directory).map_err(Error::io("cannot make kvqueue's directory"))?;
        let engine = if cluster.is_some() { "cluster" } else { "kvqueue" };
        let suffix = match mode {
            Mode::Default => "",
            Mode::AtMostOnce => "-amo",
            Mode::ExactlyOnce => "-eo",
            Mode::Shared => "-shared",
            Mode::Seed => "-seed",
        };
        Ok(Self { place, program: program.to_owned(), name: format!("{engine}{suffix}"), mode, cluster })
    }

    fn arguments(&self, cell: Cell, size: Size) -> Vec<String> {
        let options: Vec<(&str, String)> = match cell {
            Cell::Push { clients, .. } if self.mode == Mode::Shared => {
                vec![("--clients", clients.to_string())]
            }
            Cell::Push { clients, batch } => {
                vec![("--clients", clients.to_string()), ("--batch", batch.to_string())]
            }
            Cell::Burn { workers, k } | Cell::Pull { workers, k } => {
                vec![
                    ("--workers", workers.to_string()),
                    ("--k", k.to_string()),
                    ("--items", size.items.to_string()),
                ]
            }
            Cell::Sustained => vec![
                ("--rate", SUSTAINED_RATE.to_string()),
                ("--producers", SUSTAINED_EACH.to_string()),
                ("--workers", SUSTAINED_EACH.to_string()),
                ("--k", SUSTAINED_K.to_string()),
            ],
            Cell::Pickup => vec![
                ("--every", format!("{PICKUP_EVERY_MS}ms")),
                ("--count", cells::pickup_count(size.seconds).to_string()),
            ],
            Cell::Idle => vec![("--queues", "1".to_owned()), ("--workers", IDLE_WORKERS.to_string())],
            Cell::Flood { workers, k } => vec![
                ("--workers", workers.to_string()),
                ("--k", k.to_string()),
                ("--producers", FLOOD_PRODUCERS.to_string()),
            ],
        };
        let seconds =
            if cell == Cell::Sustained { cells::sustained_seconds(size.seconds) } else { size.seconds };
        let mut arguments = vec!["bench".to_owned(), cell.family().to_owned(), "--json".to_owned()];
        arguments.extend([
            "--payload".to_owned(),
            PAYLOAD.to_string(),
            "--seconds".to_owned(),
            seconds.to_string(),
        ]);
        arguments.extend(options.into_iter().flat_map(|(name, value)| [name.to_owned(), value]));
        arguments.extend(self.mode_arguments(cell));
        arguments
    }

    fn mode_arguments(&self, cell: Cell) -> Vec<String> {
        let delivery = |name: &str| vec!["--delivery".to_owned(), name.to_owned()];
        match (self.mode, cell) {
            (Mode::Seed, _) => vec!["--baseline".to_owned()],
            (Mode::Shared, _) => vec!["--shared".to_owned()],
            (Mode::Default, Cell::Burn { .. }) => delivery("at-least-once"),
            (Mode::AtMostOnce, _) => delivery("at-most-once"),
            (Mode::ExactlyOnce, _) => delivery("exactly-once"),
            (Mode::Default, _) => Vec::new(),
        }
    }
}

impl System for KvQueue {
    fn name(&self) -> &str {
        &self.name
    }

    fn setup(&self) -> String {
        let mode = match self.mode {
            Mode::Default => "at-least-once, the default",
            Mode::AtMostOnce => "at-most-once",
            Mode::ExactlyOnce => "exactly-once",
            Mode::Shared => "one producer for all clients, whose pushes share transactions (`--shared`)",
            Mode::Seed => "the seed's algorithm: pop K from the front, at-most-once, watch (`--baseline`)",
        };
        let engine = if self.cluster.is_some() { "a FoundationDB cluster" } else { "the embedded engine" };
        format!("`kvqueue bench` on {engine}; {mode}")
    }

    fn runs(&self, cell: Cell) -> bool {
        let burn = matches!(cell, Cell::Burn { .. });
        let taken = burn || matches!(cell, Cell::Flood { .. } | Cell::Pickup);
        let shared = matches!(cell, Cell::Push { clients: 2.., batch: 1 } | Cell::Flood { .. });
        match (self.mode, &self.cluster) {
            (Mode::Shared, None) => shared,
            (Mode::Shared, Some(_)) => shared && crate::cell::next_to_seed().contains(&cell),
            (Mode::Default, None) => true,
            (Mode::AtMostOnce | Mode::ExactlyOnce, None) => burn,
            (Mode::Default, Some(_)) => crate::cell::next_to_seed().contains(&cell),
            (Mode::AtMostOnce | Mode::ExactlyOnce, Some(_)) => {
                burn && crate::cell::next_to_seed().contains(&cell)
            }
            (Mode::Seed, _) => taken && crate::cell::next_to_seed().contains(&cell),
        }
    }

    fn run(&mut self, cell: Cell, size: Size) -> Result<Outcome, Error> {
        let program = Program::new(&self.program, Signal::TERM, None).with(|command| {
            command.args(self.arguments(cell, size));
            match &self.cluster {
                None => command.arg("--dir").arg(&self.place.directory),
                Some(Cluster { file, library: None }) => command.arg("--database").arg(file),
                Some(Cluster { file, library: Some(library) }) => {
                    command.arg("--database").arg(file).env("FDB_CLIENT_LIB", library)
                }
            };
        });
        let output = self.place.directory.join("output");
        let said = self.place.processes.run(program, &output, cells::LIMIT + Duration::from_secs(5))?;
        let line = said.trim();
        let report: Map<String, Value> = serde_json::from_str(line).map_err(|_| Error::Unexpected {
            peer: "kvqueue bench",
            answer: line.to_owned(),
            expected: "a line of JSON",
        })?;
        Ok(outcome(cell, &report))
    }
}

/// The figures of a report of `kvqueue bench`, by the names that all systems share.
fn outcome(cell: Cell, report: &Map<String, Value>) -> Outcome {
    let count = |name: &str| report.get(name).and_then(Value::as_u64).unwrap_or(0);
    let mut outcome = Outcome {
        lost: count("lost"),
        repeated: count("repeated") + count("invented"),
        ..Outcome::default()
    };
    let latency = if matches!(cell, Cell::Push { .. } | Cell::Flood { .. }) { "call" } else { "start" };
    for (name, value) in report {
        match (name.as_str(), value) {
            (PER_SECOND, _) if matches!(cell, Cell::Pickup | Cell::Idle) => {}
            (PER_SECOND | PUSHES_PER_SECOND | CONFLICTS, Value::Number(number)) => {
                outcome = outcome.with(name, number.as_f64().unwrap_or(0.0));
            }
            ("cpu_seconds_per_second", Value::Number(number)) => {
                outcome = outcome.with(CPU, number.as_f64().unwrap_or(0.0) * 100.0);
            }
            ("resident_kb", Value::Number(number)) => {
                outcome = outcome.with(RESIDENT, number.as_f64().unwrap_or(0.0));
            }
            ("latency_us", Value::Object(quantiles)) => outcome = with_quantiles(outcome, latency, quantiles),
            ("ack_us", Value::Object(quantiles)) => outcome = with_quantiles(outcome, "ack", quantiles),
            _ => {}
        }
    }
    outcome
}

fn with_quantiles(outcome: Outcome, prefix: &str, quantiles: &Map<String, Value>) -> Outcome {
    quantiles.iter().fold(outcome, |outcome, (name, value)| match value.as_f64() {
        Some(value) => outcome.with(&format!("{prefix}_{name}_us"), value),
        None => outcome,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::outcome::START_P50;

    fn report(value: &Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn a_report_becomes_figures() {
        let said = json!({
            "cell": "pickup", "per_second": 5.0, "lost": 1, "repeated": 2, "latency_us": { "p50": 300.5, "max": 9 },
        });
        let outcome = outcome(Cell::Pickup, &report(&said));
        assert_eq!((outcome.lost, outcome.repeated), (1, 2));
        assert!((outcome.figures[START_P50] - 300.5).abs() < 1e-9);
        assert!(!outcome.figures.contains_key(PER_SECOND));
    }

    #[test]
    fn idle_cost_is_in_percent_of_a_core_and_kilobytes() {
        let outcome =
            outcome(Cell::Idle, &report(&json!({ "cpu_seconds_per_second": 0.02, "resident_kb": 9000 })));
        assert!((outcome.figures[CPU] - 2.0).abs() < 1e-9);
        assert!((outcome.figures[RESIDENT] - 9000.0).abs() < 1e-9);
    }

    #[test]
    fn each_mode_selects_its_command_line_options() {
        let place =
            Place { directory: std::env::temp_dir(), processes: crate::process::Processes::default() };
        let burn = Cell::Burn { workers: 16, k: 1 };
        let size = Size { seconds: 1.0, items: 7 };
        let arguments =
            |mode| KvQueue::new(place.clone(), Path::new("x"), mode, None).unwrap().arguments(burn, size);
        assert!(arguments(Mode::Default).join(" ").contains("--items 7 --delivery at-least-once"));
        assert!(arguments(Mode::Seed).join(" ").ends_with("--items 7 --baseline"));
    }
}
