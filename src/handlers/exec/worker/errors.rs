//! What a process writes to standard error goes to the log.

use std::sync::Arc;

use tokio::process::ChildStderr;
use tracing::Span;

use super::lines::{Line, Lines};
use crate::handlers::exec::{
    line_log::{LineLog, MAX_LOGGED_LINE},
    names::STDERR,
};

/// How many lines are read at the end of an item without waiting for more.
pub(super) const AT_ONCE: usize = 100;

/// The error output of a process.
pub(super) struct Errors {
    /// None after its end.
    lines: Option<Lines<ChildStderr>>,
    log: LineLog,
    /// What was logged since the item began.
    logged: String,
}

impl Errors {
    pub(super) fn new(from: ChildStderr, queue: Arc<str>, pid: Option<u32>, limit: u64) -> Self {
        let lines = Some(Lines::new(from, MAX_LOGGED_LINE));
        Self { lines, log: LineLog::new(STDERR, queue, pid, limit), logged: String::new() }
    }

    /// From here on, the lines belong to this span.
    pub(super) fn begin(&mut self, span: Span) {
        self.log.begin(span);
        self.logged.clear();
    }

    /// What was logged since the item began, as the end of a sentence: `: TEXT`, or nothing.
    pub(super) fn logged(&self) -> String {
        match self.logged.trim_end() {
            "" => String::new(),
            logged => format!(": {logged}"),
        }
    }

    /// Logs the next line. Never resolves after the last one. Nothing is lost if this is dropped
    /// half-way.
    pub(super) async fn next(&mut self) {
        let Some(lines) = &mut self.lines else { return std::future::pending().await };
        match lines.next().await {
            Some(line) => self.log(&line),
            None => self.lines = None,
        }
    }

    /// Logs all lines up to the last one.
    pub(super) async fn drain(&mut self) {
        while self.is_open() {
            self.next().await;
        }
    }

    /// Whether there may be more.
    pub(super) fn is_open(&self) -> bool {
        self.lines.is_some()
    }

    fn log(&mut self, Line { bytes, is_cut }: &Line) {
        if let Some(text) = self.log.log(bytes, *is_cut) {
            self.logged.push_str(&text);
            self.logged.push('\n');
        }
    }
}
