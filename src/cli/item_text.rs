//! One item as text: a line for each field, an empty line, and the payload.

use std::{borrow::Cow, io::IsTerminal};

use crate::base::text::visible_lines;

/// A field's name and its value.
type Line = (&'static str, String);

/// The fields; and behind an empty line what a producer or a handler wrote.
pub(super) fn text(lines: &[Line], bytes: Option<&[u8]>) -> Vec<u8> {
    let mut text = fields(lines).into_bytes();
    match bytes {
        Some(bytes) => {
            text.push(b'\n');
            text.extend_from_slice(&for_reader(bytes));
        }
        None => drop(text.pop()),
    }
    text
}

/// The width of the names of fields.
const NAMES: usize = 13;

/// A line for each field, and more for a value of several lines. Others wrote the values: what would move the cursor is shown as its code.
fn fields(lines: &[Line]) -> String {
    let indent = " ".repeat(NAMES);
    lines
        .iter()
        .map(|(name, value)| format!("{name:NAMES$}{}\n", visible_lines(value.trim_end(), &indent)))
        .collect()
}

/// Bytes of others for standard output: as they are, but on a terminal without what would control it.
fn for_reader(bytes: &[u8]) -> Cow<'_, [u8]> {
    match std::io::stdout().is_terminal() {
        true => visible_lines(&String::from_utf8_lossy(bytes), "").into_bytes().into(),
        false => bytes.into(),
    }
}
