//! What stderr shows while a push goes on.

use std::{
    io::IsTerminal,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};

use crate::cli::{globals::Globals, output::note};

/// A push that takes less long shows no bar.
const PATIENCE: Duration = Duration::from_secs(1);

/// A bar at a terminal; with -v, one line per transaction.
pub(super) struct Progress {
    started: Instant,
    /// Bytes of input, if known.
    size: Option<u64>,
    wants_bar: bool,
    wants_lines: bool,
    bytes: u64,
    bar: Option<ProgressBar>,
}

impl Progress {
    pub(super) fn new(globals: &Globals, size: Option<u64>) -> Self {
        let wants_lines = globals.verbose > 0;
        let wants_bar = !wants_lines && !globals.quiet && std::io::stderr().is_terminal();
        Self { started: Instant::now(), size, wants_bar, wants_lines, bytes: 0, bar: None }
    }

    /// So many items in all, and so many bytes since the last time, are stored.
    pub(super) fn acknowledged(&mut self, total: u64, bytes: usize) {
        self.bytes += bytes as u64;
        if self.wants_lines {
            note(format_args!("acknowledged {total}"));
        }
        if self.wants_bar && self.bar.is_none() && self.started.elapsed() >= PATIENCE {
            self.bar = Some(bar(self.size).with_elapsed(self.started.elapsed()));
        }
        if let Some(bar) = &self.bar {
            bar.set_message(total.to_string());
            bar.set_position(self.bytes);
        }
    }

    /// Prints something without disturbing the bar.
    pub(super) fn suspend(&self, print: impl FnOnce()) {
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    pub(super) fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

fn bar(size: Option<u64>) -> ProgressBar {
    let (bar, template) = match size {
        Some(size) => {
            (ProgressBar::new(size), "{msg} acknowledged {wide_bar} {binary_bytes_per_sec}, {eta} left")
        }
        None => {
            (ProgressBar::new_spinner(), "{msg} acknowledged {spinner} {binary_bytes_per_sec}, {elapsed}")
        }
    };
    bar.with_style(ProgressStyle::with_template(template).expect("the template is correct"))
}
