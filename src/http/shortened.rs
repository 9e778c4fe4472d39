//! Messages that may quote a value of any length.

use std::fmt;

/// The longest message, in characters.
const LONGEST_MESSAGE: usize = 1_000;

/// A message that may quote a value of any length, shortened. Only its beginning is ever in memory.
pub(super) fn shortened(message: &impl fmt::Display) -> String {
    let mut beginning = Beginning { text: String::new(), left: LONGEST_MESSAGE };
    if fmt::write(&mut beginning, format_args!("{message}")).is_err() {
        beginning.text.push_str("...");
    }
    beginning.text
}

/// Takes the first characters that are written, and fails after them.
struct Beginning {
    text: String,
    left: usize,
}

impl fmt::Write for Beginning {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let end = more.char_indices().nth(self.left).map(|(end, _)| end);
        let taken = &more[..end.unwrap_or(more.len())];
        self.left -= taken.chars().count();
        self.text.push_str(taken);
        if end.is_some() { Err(fmt::Error) } else { Ok(()) }
    }
}
