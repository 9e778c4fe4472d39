//! Lines of any length from an input of any length, in bounded memory.

use std::{
    fs::File,
    io::{self, BufRead, Read},
    path::Path,
};

/// The name that stands for standard input.
pub(super) const STDIN: &str = "-";

/// Reads a whole file, or standard input: one byte more than `most` at most, which tells that it is too long.
pub(super) fn read_file(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    let (mut text, most) = (Vec::new(), most as u64 + 1);
    match path == Path::new(STDIN) {
        true => io::stdin().take(most).read_to_end(&mut text)?,
        false => File::open(path)?.take(most).read_to_end(&mut text)?,
    };
    Ok(text)
}

/// One line, without its newline.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    Whole(Vec<u8>),
    /// The number of bytes of a line over the limit, which is not kept.
    TooLong(u64),
}

/// Reads the next line, `None` at the end. What follows the last newline is a line unless it is empty.
pub(super) fn next_line(from: &mut impl BufRead, limit: usize) -> io::Result<Option<Line>> {
    let mut line = Vec::new();
    let mut length = 0_u64;
    loop {
        let buffer = match from.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            buffer => buffer?,
        };
        if buffer.is_empty() {
            return Ok((length > 0).then(|| finished(line, length, limit)));
        }
        let newline = buffer.iter().position(|byte| *byte == b'\n');
        let part = &buffer[..newline.unwrap_or(buffer.len())];
        let room = (limit + 1).saturating_sub(line.len()).min(part.len());
        line.extend_from_slice(&part[..room]);
        length += part.len() as u64;
        let used = part.len() + usize::from(newline.is_some());
        from.consume(used);
        if newline.is_some() {
            return Ok(Some(finished(line, length, limit)));
        }
    }
}

fn finished(line: Vec<u8>, length: u64, limit: usize) -> Line {
    if line.len() > limit { Line::TooLong(length) } else { Line::Whole(line) }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    fn lines(text: &str, buffer: usize) -> Vec<Line> {
        let mut reader = BufReader::with_capacity(buffer, text.as_bytes());
        std::iter::from_fn(|| next_line(&mut reader, 4).unwrap()).collect()
    }

    fn whole(text: &str) -> Line {
        Line::Whole(text.into())
    }

    #[test]
    fn a_final_newline_makes_no_item_and_an_empty_line_does() {
        for buffer in [1, 3, 100] {
            assert_eq!(lines("", buffer), []);
            assert_eq!(lines("\n", buffer), [whole("")]);
            assert_eq!(lines("a\nb", buffer), [whole("a"), whole("b")]);
            assert_eq!(lines("a\n\nb\n", buffer), [whole("a"), whole(""), whole("b")]);
        }
    }

    #[test]
    fn a_line_over_the_limit_is_measured_and_skipped() {
        for buffer in [1, 3, 100] {
            assert_eq!(lines("abcd\nabcde\nx\n", buffer), [whole("abcd"), Line::TooLong(5), whole("x")]);
            assert_eq!(lines("abcdefghi", buffer), [Line::TooLong(9)]);
        }
    }
}
