//! Lines for people.

use std::{env, ffi::OsStr, io, io::IsTerminal};

use tracing_subscriber::{fmt, layer::Layer};

use super::{Boxed, out::Out};

/// To this, which is stderr.
pub(super) fn layer(out: Out) -> Boxed {
    let colours = colours(
        io::stderr().is_terminal(),
        env::var_os("NO_COLOR").as_deref(),
        env::var_os("TERM").as_deref(),
    );
    fmt::layer().with_writer(out).with_ansi(colours).with_target(false).boxed()
}

/// Whether lines are coloured: at a terminal that can, unless somebody does not want it (<https://no-color.org>).
fn colours(is_terminal: bool, no_color: Option<&OsStr>, term: Option<&OsStr>) -> bool {
    is_terminal && no_color.is_none_or(OsStr::is_empty) && term.is_none_or(|term| term != "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_for_terminals_whose_users_want_them() {
        let some = |text| Some(OsStr::new(text));
        assert!(colours(true, None, some("xterm")) && colours(true, some(""), None));
        assert!(!colours(false, None, some("xterm")));
        assert!(!colours(true, some("1"), some("xterm")));
        assert!(!colours(true, None, some("dumb")));
    }
}
