//! Exit codes, a contract for scripts and for systemd.

use std::process::ExitCode;

/// How the process ended. The numbers above 2 are those of `sysexits.h`.
///
/// | code | meaning |
/// |---|---|
/// | 0 | done; for `run`: stopped by a signal after draining, or the queues were empty (`--until-empty`) |
/// | 1 | it failed while running: the database refused, output could not be written, grace ran out; for `doctor`: something has to be done; for `bench`: items were lost or came twice |
/// | 2 | the command line is wrong |
/// | 65 | some of the input was refused (an item over the size limit); the rest was pushed |
/// | 69 | the database cannot be used: client library missing, directory damaged, or held by a process that lets no other in |
/// | 70 | a fault in kvqueue itself: a consumer keeps panicking |
/// | 78 | the configuration is wrong |
/// | 128 + n | a second signal n stopped it at once |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Everything asked for was done.
    Done = 0,
    /// It failed while running.
    Failed = 1,
    /// The command line is wrong.
    Usage = 2,
    /// Some of the input was refused.
    Data = 65,
    /// The database cannot be used.
    Unavailable = 69,
    /// A fault in kvqueue itself.
    Internal = 70,
    /// The configuration is wrong.
    Config = 78,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_reference_has_the_same_table() {
        let reference = include_str!("../docs/CONFIG.md");
        let rows: Vec<_> =
            include_str!("exit.rs").lines().filter_map(|line| line.strip_prefix("/// | ")).collect();
        assert!(rows.len() > 8);
        for row in rows {
            assert!(reference.contains(&format!("| {row}")), "docs/CONFIG.md lacks {row}");
        }
    }
}
