//! What a process writes to standard error goes to the log.

use std::sync::Arc;

use tokio::process::ChildStderr;
use tracing::Span;

use super::lines::{Line, Lines};

/// The longest line that is logged whole, in bytes.
const MAX_LOGGED_LINE: usize = 4 << 10;

/// How many lines are read at the end of an item without waiting for more.
pub(super) const AT_ONCE: usize = 100;

/// The error output of a process. Of each item, and of each time between two items, the log gets
/// this many bytes.
pub(super) struct Errors {
    /// None after its end.
    lines: Option<Lines<ChildStderr>>,
    queue: Arc<str>,
    pid: Option<u32>,
    limit: usize,
    left: usize,
    /// What was logged since the item began.
    logged: String,
    /// The item's.
    span: Span,
}

impl Errors {
    pub(super) fn new(from: ChildStderr, queue: Arc<str>, pid: Option<u32>, limit: u64) -> Self {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let lines = Some(Lines::new(from, MAX_LOGGED_LINE));
        Self { lines, queue, pid, limit, left: limit, logged: String::new(), span: Span::none() }
    }

    /// From here on, the lines belong to this span.
    pub(super) fn begin(&mut self, span: Span) {
        self.left = self.limit;
        self.logged.clear();
        self.span = span;
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
        if self.left == 0 {
            return;
        }
        let shown = &bytes[..bytes.len().min(self.left)];
        // The end of the line counts, so that empty lines are bounded as well.
        self.left = self.left.saturating_sub(shown.len() + 1);
        let text = String::from_utf8_lossy(shown);
        self.logged.push_str(&text);
        self.logged.push('\n');
        let is_cut = *is_cut || shown.len() < bytes.len();
        let queue = self.span.is_none().then_some(&*self.queue);
        let _in_span = self.span.enter();
        tracing::info!(
            event = "worker_stderr",
            queue,
            pid = self.pid,
            line = &*text,
            is_cut,
            "standard error"
        );
        if self.left == 0 {
            tracing::info!(
                event = "worker_stderr_cut",
                queue,
                pid = self.pid,
                "the rest of the standard error is not logged (stderr-limit)"
            );
        }
    }
}
