//! Lines that commands write, in the log.

use std::{borrow::Cow, sync::Arc};

use tracing::Span;

/// The longest line that is logged whole, in bytes.
pub(super) const MAX_LOGGED_LINE: usize = 4 << 10;

/// Logs the lines of one stream of a command: of each item, and of each time between two items, as many bytes as the limit says.
pub(super) struct LineLog {
    stream: &'static str,
    queue: Arc<str>,
    pid: Option<u32>,
    limit: usize,
    left: usize,
    /// The item's.
    span: Span,
}

impl LineLog {
    pub(super) fn new(stream: &'static str, queue: Arc<str>, pid: Option<u32>, limit: u64) -> Self {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        Self { stream, queue, pid, limit, left: limit, span: Span::none() }
    }

    /// From here on, the lines belong to this span.
    pub(super) fn begin(&mut self, span: Span) {
        self.left = self.limit;
        self.span = span;
    }

    /// Logs a line without its end, and returns what is logged of it. `is_cut`: it was longer.
    pub(super) fn log<'l>(&mut self, line: &'l [u8], is_cut: bool) -> Option<Cow<'l, str>> {
        if self.left == 0 {
            return None;
        }
        let shown = &line[..line.len().min(self.left)];
        // The end of the line counts, so that empty lines are bounded as well.
        self.left = self.left.saturating_sub(shown.len() + 1);
        let text = String::from_utf8_lossy(shown);
        let (stream, pid) = (self.stream, self.pid);
        let queue = self.span.is_none().then_some(&*self.queue);
        let _in_span = self.span.enter();
        tracing::info!(
            event = "command_output",
            queue,
            pid,
            stream,
            line = &*text,
            is_cut = is_cut || shown.len() < line.len(),
            "output of a command"
        );
        if self.left == 0 {
            tracing::info!(
                event = "command_output_cut",
                queue,
                pid,
                stream,
                "the rest of the output is not logged (stderr-limit)"
            );
        }
        Some(text)
    }
}
