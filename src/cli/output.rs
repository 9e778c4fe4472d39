//! What commands print: data on stdout, as text or as one JSON object per line; notes on stderr.

use std::{
    io::{self, Write},
    mem,
};

use anyhow::{anyhow, bail};
use kvqueue_queue::{Item, ItemId};
use serde_json::{Value, json};

use crate::{
    base::{exit::Exit, text::visible_json},
    telemetry,
};

pub(super) use crate::base::{
    json::{about, insert_bytes, item, time},
    text::items_of,
};

/// Prints `text` and a newline, or `object` as JSON.
pub(super) fn line(json: bool, text: &[u8], object: &Value) -> io::Result<()> {
    let mut out = io::stdout().lock();
    write_line(&mut out, json, text, object)?;
    out.flush()
}

/// Prints many lines in one go, each as [`line`] does.
pub(super) fn lines<T: AsRef<[u8]>>(
    json: bool,
    lines: impl IntoIterator<Item = (T, Value)>,
) -> io::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    for (text, object) in lines {
        write_line(&mut out, json, text.as_ref(), &object)?;
    }
    out.flush()
}

/// Prints items in one go: payload and newline each, or objects as [`item`] makes them.
pub(super) fn items(json: bool, items: &[Item]) -> io::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    for item in items {
        let object = if json { self::item(item) } else { Value::Null };
        write_line(&mut out, json, &item.payload, &object)?;
    }
    out.flush()
}

/// How many columns a table may have: those of the terminal on stdout, or else `COLUMNS`. None if neither is known.
pub(super) fn width() -> Option<u16> {
    let columns = || std::env::var("COLUMNS").ok()?.parse().ok().filter(|columns| *columns > 0);
    terminal_size().map(|(width, _)| width).or_else(columns)
}

/// The columns and rows of the terminal on stdout. None if it is not a terminal, or does not know its size.
pub(super) fn terminal_size() -> Option<(u16, u16)> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col, size.ws_row))
}

/// Prints a message on stderr. A failure to print is ignored.
pub(super) fn note(text: std::fmt::Arguments<'_>) {
    telemetry::note(&text.to_string());
}

fn write_line(out: &mut impl Write, json: bool, text: &[u8], object: &Value) -> io::Result<()> {
    if json {
        writeln!(out, "{}", visible_json(&object.to_string()))
    } else {
        out.write_all(text)?;
        out.write_all(b"\n")
    }
}

/// Prints a line for each item that a command names by its id. The command goes on if a line could not be printed.
pub(super) struct Named {
    /// The plural noun, such as "items".
    what: &'static str,
    /// The participle, as in "ID is not requeued".
    done: &'static str,
    json: bool,
    all: usize,
    left: usize,
    printed: io::Result<()>,
}

impl Named {
    pub(super) fn new(what: &'static str, done: &'static str, json: bool) -> Self {
        Self { what, done, json, all: 0, left: 0, printed: Ok(()) }
    }

    /// Prints the answer of an operation on an item.
    pub(super) fn done(&mut self, text: &str, object: &Value) {
        self.all += 1;
        let line = line(self.json, text.as_bytes(), object);
        self.printed = mem::replace(&mut self.printed, Ok(())).and(line);
    }

    /// Prints why an operation on an item was refused.
    pub(super) fn refused(&mut self, id: &ItemId, why: &str) {
        self.all += 1;
        self.left += 1;
        note(format_args!("kvqueue: {why}"));
        if self.json {
            let line = line(true, b"", &json!({ "id": id.to_string(), "done": null, "why": why }));
            self.printed = mem::replace(&mut self.printed, Ok(())).and(line);
        }
    }

    pub(super) fn exit(self) -> anyhow::Result<Exit> {
        let Self { what, done, all, left, .. } = self;
        if left > 0 {
            // The note about the only one says it all.
            if all == 1 {
                return Ok(Exit::Failed);
            }
            bail!("{what} not {done}: {left} of {all}");
        }
        // Not an io::Error outside: the reader that closed the pipe does not know what was done.
        let items = items_of(all);
        self.printed
            .map(|()| Exit::Done)
            .map_err(|error| anyhow!("{done} {items}, which could not be printed: {error}"))
    }
}
