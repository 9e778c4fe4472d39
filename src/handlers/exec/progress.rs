//! Lines in the error output of a command that report the progress of its item, as in `kvqueue-progress 50% halfway`.

use crate::handlers::ProgressReporter;

/// Begins such a line.
const MARK: &[u8] = b"kvqueue-progress ";

/// The longest such line. A longer one is ordinary output.
const LONGEST: usize = 1_024;

/// Takes the lines about progress out of an output.
pub(super) struct ProgressLines {
    reporter: ProgressReporter,
    /// The beginning of a line that may be one.
    line: Vec<u8>,
    /// The rest of the line is ordinary output.
    passes: bool,
}

impl ProgressLines {
    pub(super) fn new(reporter: ProgressReporter) -> Self {
        Self { reporter, line: Vec::new(), passes: false }
    }

    /// Adds the rest of the output to `rest`, and reports what the lines say.
    pub(super) fn push(&mut self, output: &[u8], rest: &mut Vec<u8>) {
        for part in output.split_inclusive(|byte| *byte == b'\n') {
            let ends = part.ends_with(b"\n");
            if self.passes {
                rest.extend_from_slice(part);
            } else {
                self.line.extend_from_slice(part);
                let begins = self.line.iter().zip(MARK).all(|(byte, mark)| byte == mark);
                if !begins || self.line.len() > LONGEST || (ends && self.line.len() <= MARK.len()) {
                    rest.append(&mut self.line);
                    self.passes = true;
                } else if ends {
                    let (percent, message) = parse(&self.line[MARK.len()..]);
                    self.reporter.report(percent, &message);
                    self.line.clear();
                }
            }
            if ends {
                self.passes = false;
            }
        }
    }

    /// What was written of a line that did not end.
    pub(super) fn end(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.line)
    }
}

/// The percentage, if the first word is one, and the message.
fn parse(line: &[u8]) -> (Option<u8>, String) {
    let text = String::from_utf8_lossy(line);
    let text = text.trim();
    let (first, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let number = first.strip_suffix('%').unwrap_or(first);
    match number.parse::<u8>() {
        Ok(percent @ 0..=100) => (Some(percent), rest.trim_start().to_owned()),
        _ => (None, text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::{handlers::ProgressNews, testing::Sample};

    /// The output without the lines about progress, in parts of this size, and the last progress.
    fn read(output: &str, size: usize) -> (String, Option<(Option<u8>, String)>) {
        let (news, id) = (Arc::<ProgressNews>::default(), Sample::new("").build().id);
        let mut lines = ProgressLines::new(ProgressReporter::new(id, Some(news.clone())));
        let mut rest = Vec::new();
        output.as_bytes().chunks(size).for_each(|part| lines.push(part, &mut rest));
        rest.append(&mut lines.end());
        let last = news.take().into_values().next().map(|progress| (progress.percent, progress.message));
        (String::from_utf8(rest).unwrap(), last)
    }

    #[test]
    fn lines_about_progress_are_taken_out_of_the_output() {
        let some = |percent, message: &str| Some((percent, message.to_owned()));
        for size in [1, 3, 1_000] {
            assert_eq!(
                read("a\nkvqueue-progress 50% half way\nb\n", size),
                ("a\nb\n".to_owned(), some(Some(50), "half way"))
            );
            assert_eq!(read("kvqueue-progress 7\n", size), (String::new(), some(Some(7), "")));
            assert_eq!(read("kvqueue-progress loading\n", size), (String::new(), some(None, "loading")));
            assert_eq!(read("kvqueue-progress 101 files\n", size), (String::new(), some(None, "101 files")));
            // Not at the beginning of a line, without a space, not ended, or too long.
            let long = format!("kvqueue-progress {}\n", "x".repeat(LONGEST));
            for other in
                ["x kvqueue-progress 1\n", "kvqueue-progress\n", "kvqueue-progress 5", "kvqueue", &long]
            {
                assert_eq!(read(other, size), (other.to_owned(), None), "{other}");
            }
        }
    }

    proptest! {
        #[test]
        fn other_output_is_unchanged(output: String, size in 1..9_usize) {
            let output = output.replace("kvqueue-progress ", "");
            prop_assert_eq!(read(&output, size).0, output);
        }
    }
}
