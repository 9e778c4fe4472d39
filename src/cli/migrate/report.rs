//! The messages while queues are moved, and after each.

use std::{
    cell::RefCell,
    io::{self, IsTerminal},
    time::{Duration, Instant},
};

use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};
use kvqueue_queue::migration::Tally;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::{moving::Moving, rows::Compared};
use crate::cli::{globals::Globals, output};

/// The shortest time that shows a progress bar.
const PATIENCE: Duration = Duration::from_secs(1);

/// stderr: a bar at a terminal; with -v a line for each transaction.
pub(super) struct Report {
    started: Instant,
    is_quiet: bool,
    wants_lines: bool,
    bar: Option<RefCell<ProgressBar>>,
}

impl Report {
    pub(super) fn new(globals: &Globals) -> Self {
        let wants_lines = globals.verbose > 0;
        let is_terminal = io::stderr().is_terminal();
        let bar =
            (!wants_lines && !globals.quiet && is_terminal).then(|| RefCell::new(ProgressBar::hidden()));
        Self { started: Instant::now(), is_quiet: globals.quiet, wants_lines, bar }
    }

    /// Something that a person may want to know, but with -q.
    pub(super) fn note(&self, text: std::fmt::Arguments<'_>) {
        if self.is_quiet {
            return;
        }
        match &self.bar {
            Some(bar) => bar.borrow().suspend(|| output::note(text)),
            None => output::note(text),
        }
    }

    /// A phase has begun.
    pub(super) fn phase(&self, moving: &Moving<'_>, phase: &str) {
        if self.wants_lines {
            output::note(format_args!("{}: {phase}", moving.name()));
        }
    }

    /// So far a phase has come.
    pub(super) fn rows(&self, moving: &Moving<'_>, phase: &str, rows: u64, bytes: u64) {
        if self.wants_lines {
            output::note(format_args!("{}: {phase}, {rows} rows", moving.name()));
        }
        let Some(bar) = &self.bar else { return };
        if bar.borrow().is_hidden() && self.started.elapsed() >= PATIENCE {
            let style = ProgressStyle::with_template("{msg} {spinner} {binary_bytes}, {elapsed}");
            let shown = ProgressBar::new_spinner().with_style(style.expect("the template is correct"));
            *bar.borrow_mut() = shown.with_elapsed(self.started.elapsed());
        }
        bar.borrow().set_message(format!("{}: {phase}, {} rows", moving.name(), HumanCount(rows)));
        bar.borrow().set_position(bytes);
    }

    /// A pass has found differences, which are none any more.
    pub(super) fn mended(&self, moving: &Moving<'_>, rows: u64) {
        self.note(format_args!(
            "{} changed while it was copied: {} rows were copied again, and all are compared once more",
            moving.name(),
            HumanCount(rows)
        ));
    }

    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.borrow().finish_and_clear();
        }
    }
}

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
