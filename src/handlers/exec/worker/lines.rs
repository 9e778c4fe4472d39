//! Lines of bounded length.

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

/// A line without its end.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) bytes: Vec<u8>,
    /// It was longer; these are its first bytes.
    pub(super) is_cut: bool,
}

/// Reads lines of at most this many bytes, and the beginning of longer ones.
pub(super) struct Lines<R> {
    from: BufReader<R>,
    most: usize,
    begun: Vec<u8>,
    /// The rest of this line is passed over: its beginning was returned.
    is_cut: bool,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(super) fn new(from: R, most: usize) -> Self {
        Self { from: BufReader::new(from), most, begun: Vec::new(), is_cut: false }
    }

    /// The next line; `None` at the end. The last one need not have an end. Nothing is lost if this
    /// is dropped half-way.
    pub(super) async fn next(&mut self) -> Option<Line> {
        loop {
            // An error of a pipe is its end.
            let chunk = self.from.fill_buf().await.unwrap_or_default();
            if chunk.is_empty() {
                let rest = std::mem::take(&mut self.begun);
                return (!rest.is_empty()).then_some(Line { bytes: rest, is_cut: false });
            }
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let part = &chunk[..end.unwrap_or(chunk.len())];
            let read = end.map_or(part.len(), |end| end + 1);
            let was_cut = self.is_cut;
            let room = self.most - self.begun.len();
            if !was_cut {
                self.begun.extend_from_slice(&part[..part.len().min(room)]);
            }
            let is_too_long = !was_cut && part.len() > room;
            self.is_cut = (was_cut || is_too_long) && end.is_none();
            self.from.consume(read);
            if is_too_long || (end.is_some() && !was_cut) {
                return Some(Line { bytes: std::mem::take(&mut self.begun), is_cut: is_too_long });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::io::AsyncWriteExt;

    use super::*;

    /// The lines of these pieces, which are written one after the other.
    fn read(pieces: Vec<Vec<u8>>, most: usize) -> Vec<(Vec<u8>, bool)> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (mut near, far) = tokio::io::duplex(8);
            let write = async move {
                for piece in pieces {
                    near.write_all(&piece).await.unwrap();
                }
            };
            let read = async {
                let (mut lines, mut found) = (Lines::new(far, most), Vec::new());
                while let Some(Line { bytes, is_cut }) = lines.next().await {
                    found.push((bytes, is_cut));
                }
                found
            };
            tokio::join!(write, read).1
        })
    }

    #[test]
    fn a_line_that_is_too_long_is_cut_and_the_next_one_is_whole() {
        let lines = read(vec![b"abcdef\n12345\n\n123456789".to_vec()], 5);
        let expected = [("abcde", true), ("12345", false), ("", false), ("12345", true)];
        assert_eq!(lines, expected.map(|(text, is_cut)| (text.as_bytes().to_vec(), is_cut)));
    }

    proptest! {
        #[test]
        fn lines_are_those_of_the_text_however_it_arrives(
            pieces in prop::collection::vec(prop::collection::vec(prop::sample::select(vec![b'a', b'b', b'\n']), 0..9), 0..9),
        ) {
            let text = pieces.concat();
            let mut expected: Vec<_> = text.split(|byte| *byte == b'\n').collect();
            if expected.last().is_some_and(|last| last.is_empty()) {
                expected.pop();
            }
            let expected: Vec<_> =
                expected.iter().map(|line| (line[..line.len().min(4)].to_vec(), line.len() > 4)).collect();
            prop_assert_eq!(read(pieces, 4), expected);
        }
    }
}
