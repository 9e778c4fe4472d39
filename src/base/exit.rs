//! Exit codes, a contract for scripts and for systemd.

use std::process::ExitCode;

/// How the process ended. The numbers above 2 are those of `sysexits.h`. `docs/config/process.md` has the
/// causes of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum Exit {
    /// Everything asked for was done.
    Done = 0,
    /// It failed while running.
    Failed = 1,
    /// The command line is wrong.
    Usage = 2,
    /// Some of the input was refused.
    Data = 65,
    /// The database's directory is not there any more.
    Gone = 66,
    /// The database cannot be used.
    Unavailable = 69,
    /// A bug in kvqueue itself.
    Internal = 70,
    /// No item was ready, or an item has not ended in time.
    Nothing = 75,
    /// The configuration is wrong.
    Config = 78,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// The table of exit codes, for help and manual.
pub(crate) const TABLE: &[(&str, &str)] = &[
    ("0", "done; for `run`: stopped by a signal after draining, or the queues were empty (`--until-empty`)"),
    (
        "1",
        "it failed while running: an error of the database, output that could not be written, the end of the shutdown timeout; for `doctor`: a problem to fix; for `bench`: lost or repeated items",
    ),
    ("2", "the command line is wrong"),
    (
        "65",
        "some of the input was refused (an item over the size limit, a damaged export, other items under an idempotency key that was used), stderr has the result for the rest; for `migrate`: a queue cannot be moved; for `run --fail-on-dead`: items became dead letters",
    ),
    ("66", "the directory of the embedded database was removed or moved away while `run` used it"),
    (
        "69",
        "the database cannot be used: not there, client library missing, directory damaged, or held by a process that lets no other in; for `status`, `reload`, `work` and the like: no daemon answers, it is not ready, it does not accept the secret or token, or it uses another database",
    ),
    ("70", "a bug in kvqueue itself: a consumer keeps panicking"),
    ("75", "no item was ready: `lease` has leased nothing; for `item wait`: the item has not ended in time"),
    ("78", "the configuration is wrong"),
    ("128 + n", "a second signal n stopped it at once"),
];

/// The codes for the end of a help text, with the first part of what each means.
pub(crate) fn help() -> String {
    let line = |(code, meaning): &(&str, &str)| {
        let end = meaning.find([';', ':']).unwrap_or(meaning.len());
        format!("\n  {code:<9}{}", &meaning[..end])
    };
    TABLE.iter().map(line).fold("Exit codes:".to_owned(), |text, line| text + &line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_lists_the_same_exit_codes() {
        let reference = include_str!("../../docs/config/process.md");
        for (code, meaning) in TABLE {
            let row = format!("| {code} | {meaning} |");
            assert!(reference.contains(&row), "docs/config/process.md lacks {row}");
        }
    }

    #[test]
    fn exit_code_table_has_every_code() {
        let codes: Vec<_> = TABLE.iter().filter_map(|(code, _)| code.parse::<u8>().ok()).collect();
        use Exit::{Config, Data, Done, Failed, Gone, Internal, Nothing, Unavailable, Usage};
        let exits = [Done, Failed, Usage, Data, Gone, Unavailable, Internal, Nothing, Config];
        assert_eq!(codes, exits.map(|exit| exit as u8));
    }
}
