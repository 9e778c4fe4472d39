//! The messages while queues are moved.

use std::{
    cell::RefCell,
    io::{self, IsTerminal},
    time::{Duration, Instant},
};

use indicatif::{HumanCount, ProgressBar, ProgressStyle};

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

    /// A phase of moving a queue has begun.
    pub(super) fn phase(&self, queue: &str, phase: &str) {
        if self.wants_lines {
            output::note(format_args!("{queue}: {phase}"));
        }
    }

    /// So far a phase has come.
    pub(super) fn rows(&self, queue: &str, phase: &str, rows: u64, bytes: u64) {
        if self.wants_lines {
            output::note(format_args!("{queue}: {phase}, {rows} rows"));
        }
        let Some(bar) = &self.bar else { return };
        if bar.borrow().is_hidden() && self.started.elapsed() >= PATIENCE {
            let style = ProgressStyle::with_template("{msg} {spinner} {binary_bytes}, {elapsed}");
            let shown = ProgressBar::new_spinner().with_style(style.expect("the template is correct"));
            *bar.borrow_mut() = shown.with_elapsed(self.started.elapsed());
        }
        bar.borrow().set_message(format!("{queue}: {phase}, {} rows", HumanCount(rows)));
        bar.borrow().set_position(bytes);
    }

    /// A pass has found differences, which are none any more.
    pub(super) fn mended(&self, queue: &str, rows: u64) {
        self.note(format_args!(
            "{} changed while it was copied: {} rows were copied again, and all are compared once more",
            queue,
            HumanCount(rows)
        ));
    }

    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.borrow().finish_and_clear();
        }
    }
}
