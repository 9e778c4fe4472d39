//! The progress on stderr while many items are pushed, moved, exported or imported.

use std::{
    io::IsTerminal,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};

use super::{globals::Globals, output::note};

/// The shortest time that shows a progress bar.
const PATIENCE: Duration = Duration::from_secs(1);

/// How much there is to do, if that is known.
#[derive(Clone, Copy, Debug)]
pub(super) enum Size {
    /// Bytes of input.
    Bytes(Option<u64>),
    Items(u64),
}

/// A bar at a terminal; with -v, one line per transaction.
pub(super) struct Progress {
    started: Instant,
    /// The operation on the items, in two forms.
    verb: &'static str,
    size: Size,
    wants_bar: bool,
    wants_lines: bool,
    bytes: u64,
    bar: Option<ProgressBar>,
}

impl Progress {
    pub(super) fn new(globals: &Globals, verb: &'static str, size: Size) -> Self {
        let wants_lines = globals.verbose > 0;
        let wants_bar = !wants_lines && !globals.quiet && std::io::stderr().is_terminal();
        Self { started: Instant::now(), verb, size, wants_bar, wants_lines, bytes: 0, bar: None }
    }

    /// Reports the number of items done in all, and of bytes done since the last call.
    pub(super) fn done(&mut self, total: u64, bytes: usize) {
        self.bytes += bytes as u64;
        if self.wants_lines {
            note(format_args!("{} {total}", self.verb));
        }
        if self.wants_bar && self.bar.is_none() && self.started.elapsed() >= PATIENCE {
            self.bar = Some(bar(self.verb, self.size).with_elapsed(self.started.elapsed()));
        }
        if let Some(bar) = &self.bar {
            bar.set_message(total.to_string());
            bar.set_position(match self.size {
                Size::Bytes(_) => self.bytes,
                Size::Items(_) => total,
            });
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

fn bar(verb: &str, size: Size) -> ProgressBar {
    let (bar, template) = match size {
        Size::Bytes(Some(size)) => (
            ProgressBar::new(size),
            format!("{{msg}} {verb} {{wide_bar}} {{binary_bytes_per_sec}}, {{eta}} left"),
        ),
        Size::Bytes(None) => (
            ProgressBar::new_spinner(),
            format!("{{msg}} {verb} {{spinner}} {{binary_bytes_per_sec}}, {{elapsed}}"),
        ),
        Size::Items(items) => {
            (ProgressBar::new(items), format!("{{msg}} {verb} {{wide_bar}} {{per_sec}}, {{eta}} left"))
        }
    };
    bar.with_style(ProgressStyle::with_template(&template).expect("the template is correct"))
}
