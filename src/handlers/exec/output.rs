//! What a command for one item writes, while it runs: its lines go to the log, the last one is the progress of the item, and what it has written to its
//! standard error is the reason of its failure.

use std::sync::{Arc, Mutex, PoisonError};

use kvqueue_queue::{MAX_PROGRESS_MESSAGE, MAX_RESULT};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::{
    line_log::{LineLog, MAX_LOGGED_LINE},
    progress::ProgressLines,
};
use crate::handlers::ProgressReporter;

/// What in a stream is the progress of its item.
pub(super) enum Reports {
    /// The last line that was written.
    LastLine(ProgressReporter),
    /// Lines of their own. They are no output.
    Lines(ProgressLines),
    /// Nothing.
    Nothing,
}

/// The beginning of what a command has written to a stream.
pub(super) type Kept = Arc<Mutex<Vec<u8>>>;

/// What a failing command has said: the beginning, and the last line, in which many programs name the cause.
#[derive(Clone, Debug)]
pub(super) struct Said {
    limit: usize,
    parts: Arc<Mutex<Parts>>,
}

#[derive(Debug, Default)]
struct Parts {
    beginning: Vec<u8>,
    /// The last line that is not blank, as far as it is kept.
    last: Vec<u8>,
}

impl Said {
    /// Of each part, at most `limit` bytes are kept.
    pub(super) fn new(limit: u64) -> Self {
        Self { limit: usize::try_from(limit).unwrap_or(usize::MAX), parts: Arc::default() }
    }

    fn add(&self, output: &[u8]) {
        let parts = &mut *self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let room = self.limit.saturating_sub(parts.beginning.len()).min(output.len());
        parts.beginning.extend_from_slice(&output[..room]);
    }

    fn ends_line(&self, line: &[u8]) {
        let parts = &mut *self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let line = line.trim_ascii();
        if !line.is_empty() {
            parts.last = line[..line.len().min(self.limit).min(MAX_PROGRESS_MESSAGE)].to_owned();
        }
    }

    /// The last line, and below it the beginning, unless that begins with it.
    pub(super) fn text(&self) -> String {
        let Parts { beginning, last } = &*self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let (beginning, last) = (String::from_utf8_lossy(beginning), String::from_utf8_lossy(last));
        let beginning = beginning.trim_end();
        match beginning.trim_start().starts_with(&*last) {
            true => beginning.to_owned(),
            false => format!("{last}\n{beginning}"),
        }
    }
}

/// Reads one stream of a command.
pub(super) struct OutputReader {
    reports: Reports,
    log: Option<LineLog>,
    said: Option<Said>,
    kept: Option<Kept>,
    /// The beginning of the line that is being written.
    line: Vec<u8>,
    /// That line is longer.
    is_cut: bool,
}

impl OutputReader {
    /// `log`: if the lines are logged. `said`: if they are kept.
    pub(super) fn new(reports: Reports, log: Option<LineLog>, said: Option<Said>) -> Self {
        Self { reports, log, said, kept: None, line: Vec::new(), is_cut: false }
    }

    /// Keeps what it reads as the result of the item. So nothing of it is progress.
    pub(super) fn keeping(self, kept: Kept) -> Self {
        Self { kept: Some(kept), reports: Reports::Nothing, ..self }
    }

    /// Reads everything, so that the command never blocks on a full pipe.
    pub(super) async fn read(mut self, mut from: impl AsyncRead + Unpin) {
        let (mut buffer, mut rest) = ([0; 4096], Vec::new());
        // After a read error the output is shorter. The exit code decides the outcome.
        while let Ok(read @ 1..) = from.read(&mut buffer).await {
            if let Some(kept) = &self.kept {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                // One byte more shows that it is too long.
                let room = (MAX_RESULT + 1).saturating_sub(kept.len()).min(read);
                kept.extend_from_slice(&buffer[..room]);
            }
            match &mut self.reports {
                Reports::Lines(lines) => lines.push(&buffer[..read], &mut rest),
                Reports::LastLine(_) | Reports::Nothing => rest.extend_from_slice(&buffer[..read]),
            }
            self.follow(&rest);
            rest.clear();
        }
        if let Reports::Lines(lines) = &mut self.reports {
            let begun = lines.end();
            self.follow(&begun);
        }
        if !self.line.is_empty() {
            self.end_line();
        }
    }

    fn follow(&mut self, output: &[u8]) {
        if let Some(said) = &self.said {
            said.add(output);
        }
        let mut last = Vec::new();
        for part in output.split_inclusive(|byte| *byte == b'\n') {
            let text = part.strip_suffix(b"\n").unwrap_or(part);
            let room = (MAX_LOGGED_LINE - self.line.len()).min(text.len());
            self.line.extend_from_slice(&text[..room]);
            self.is_cut |= room < text.len();
            if text.len() < part.len() {
                let line = self.end_line();
                if !line.trim_ascii().is_empty() {
                    last = line;
                }
            }
        }
        if let Reports::LastLine(reporter) = &self.reports
            && !last.is_empty()
        {
            reporter.report(None, String::from_utf8_lossy(&last).trim());
        }
    }

    /// The line that was being written.
    fn end_line(&mut self) -> Vec<u8> {
        let (line, is_cut) = (std::mem::take(&mut self.line), std::mem::take(&mut self.is_cut));
        if let Some(log) = &mut self.log {
            let _ = log.log(&line, is_cut);
        }
        if let Some(said) = &self.said {
            said.ends_line(&line);
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;
    use proptest::prelude::*;
    use tokio::io::AsyncWriteExt;

    use super::*;
    use crate::{handlers::ProgressNews, testing::Sample};

    /// What is kept of an output that comes in pieces of this size, and the message of the last progress.
    fn read(output: &str, size: usize, limit: u64) -> (String, Option<String>) {
        let (news, id) = (Arc::<ProgressNews>::default(), Sample::new("").build().id);
        let reports = Reports::LastLine(ProgressReporter::new(id, Some(news.clone())));
        let (mut near, far) = tokio::io::duplex(size);
        let write = async move { near.write_all(output.as_bytes()).await.unwrap() };
        let said = Said::new(limit);
        let read = OutputReader::new(reports, None, Some(said.clone())).read(far);
        block_on(async { tokio::join!(write, read) });
        (said.text(), news.take().into_values().next().map(|progress| progress.message))
    }

    proptest! {
        #[test]
        fn the_last_line_that_has_ended_and_is_not_blank_is_the_progress(output in "[ab \n]{0,40}", size in 1..9_usize) {
            let ended = output.rsplit_once('\n').map_or("", |(ended, _)| ended);
            let last = ended.lines().map(str::trim).rfind(|line| !line.is_empty());
            let (said, progress) = read(&output, size, 1_000);
            prop_assert_eq!(progress.as_deref(), last);
            prop_assert!(said.ends_with(output.trim_end()), "{}", said);
            let last = output.lines().map(str::trim).rfind(|line| !line.is_empty());
            prop_assert!(said.trim_start().starts_with(last.unwrap_or_default()), "{}", said);
        }
    }

    #[test]
    fn of_a_long_line_the_beginning_is_the_progress() {
        let long = "x".repeat(10 * MAX_LOGGED_LINE);
        let (said, last) = read(&format!("{long}\n"), 4_000, 5_000);
        assert_eq!((said.len(), last.unwrap()), (5_000, "x".repeat(MAX_PROGRESS_MESSAGE)));
    }

    #[test]
    fn the_last_line_of_a_failing_command_is_put_first() {
        let said = |output, limit| read(output, 7, limit).0;
        let trace = "Traceback (most recent call last):\n  File \"send.py\"\nValueError: no address\n";
        assert_eq!(said(trace, 20), "ValueError: no addre\nTraceback (most rece");
        assert_eq!(said("no such host", 100), "no such host");
        assert_eq!(said("no such host\n\n", 100), "no such host");
        assert_eq!(said(trace, 0), "");
    }
}
