//! Lines for people.

use std::{
    env,
    ffi::OsStr,
    fmt::{Debug, Result},
    io,
    io::IsTerminal,
};

use tracing::field::Field;
use tracing_subscriber::{
    field::MakeExt,
    fmt::{
        self,
        format::{Writer, debug_fn},
    },
    layer::Layer,
};

use super::{Boxed, destination::Out};

/// Writes lines to this, which is stderr.
pub(super) fn layer(out: Out) -> Boxed {
    let colours = colours(
        io::stderr().is_terminal(),
        env::var_os("NO_COLOR").as_deref(),
        env::var_os("TERM").as_deref(),
    );
    let fields = debug_fn(field).delimited(" ");
    fmt::layer().with_writer(out).with_ansi(colours).with_target(false).fmt_fields(fields).boxed()
}

/// Writes `name=value`, the message by itself, and the event's code in brackets. A value is quoted if it
/// has more than one word, in whatever way it was recorded.
fn field(out: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> Result {
    let value = format!("{value:?}");
    match field.name() {
        "message" if value.contains(char::is_control) => out.write_str(&escaped(&value)),
        "message" => out.write_str(&value),
        "event" if out.has_ansi_escapes() => write!(out, "\x1b[2m[{}]\x1b[0m", quoted(&value)),
        "event" => write!(out, "[{}]", quoted(&value)),
        name if out.has_ansi_escapes() => {
            write!(out, "\x1b[3m{name}\x1b[0m\x1b[2m=\x1b[0m{}", quoted(&value))
        }
        name => write!(out, "{name}={}", quoted(&value)),
    }
}

/// The text without characters that would change the terminal.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for it in text.chars() {
        match it {
            '\n' | '\t' => out.push(it),
            it if it.is_control() => out.extend(it.escape_default()),
            it => out.push(it),
        }
    }
    out
}

/// `value` is in the form of `Debug`, which has quotes around a text.
fn quoted(value: &str) -> String {
    let bare = |text: &str| {
        !text.is_empty()
            && !text.contains(|it: char| it.is_whitespace() || it.is_control() || "\"\\=".contains(it))
    };
    match value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(inner) if bare(inner) => inner.to_owned(),
        Some(_) => escaped(value),
        None if bare(value) => value.to_owned(),
        None => format!("{value:?}"),
    }
}

/// Whether lines are coloured: at a terminal that can, unless `NO_COLOR` is set
/// (<https://no-color.org>).
fn colours(is_terminal: bool, no_color: Option<&OsStr>, term: Option<&OsStr>) -> bool {
    is_terminal && no_color.is_none_or(OsStr::is_empty) && term.is_none_or(|term| term != "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_quoted_alike_for_every_way_of_recording() {
        for (value, shown) in [
            ("\"hooks\"", "hooks"),
            ("hooks", "hooks"),
            ("\"two words\"", "\"two words\""),
            ("two words", "\"two words\""),
            ("\"\"", "\"\""),
            ("", "\"\""),
            ("\"a=b\"", "\"a=b\""),
            ("a\u{1b}[2J", "\"a\\u{1b}[2J\""),
            ("17", "17"),
            ("\"say \\\"no\\\"\"", "\"say \\\"no\\\"\""),
        ] {
            assert_eq!(quoted(value), shown, "{value}");
        }
        assert_eq!(escaped("a\u{1b}[2J\nb"), "a\\u{1b}[2J\nb");
    }

    #[test]
    fn log_colours_need_a_terminal_and_no_no_color() {
        let some = |text| Some(OsStr::new(text));
        assert!(colours(true, None, some("xterm")) && colours(true, some(""), None));
        assert!(!colours(false, None, some("xterm")));
        assert!(!colours(true, some("1"), some("xterm")));
        assert!(!colours(true, None, some("dumb")));
    }
}
