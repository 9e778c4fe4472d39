//! Which cells the suite has: what a person asks first, in about half a minute.

/// A cell of the suite.
pub(super) struct Cell {
    /// As the table has it.
    pub(super) name: &'static str,
    /// Behind `kvqueue bench`.
    pub(super) arguments: &'static [&'static str],
}

const fn cell(name: &'static str, arguments: &'static [&'static str]) -> Cell {
    Cell { name, arguments }
}

/// In this order.
pub(super) const CELLS: &[Cell] = &[
    cell("push, 1 client", &["push"]),
    cell("push, 32 clients", &["push", "--clients", "32"]),
    cell("push, 1 client, 100 items a transaction", &["push", "--batch", "100"]),
    cell("process, K = 1", &["burn", "--workers", "16", "--k", "1"]),
    cell("process, K = 10", &["burn", "--workers", "16", "--k", "10"]),
    cell("process, K = 100", &["burn", "--workers", "16", "--k", "100"]),
    cell("at most once, K = 10", &["burn", "--workers", "16", "--k", "10", "--delivery", "at-most-once"]),
    cell("exactly once, K = 10", &["burn", "--workers", "16", "--k", "10", "--delivery", "exactly-once"]),
    cell("workers over HTTP, K = 10", &["pull"]),
    cell("process with 32 producers, K = 10", &["flood", "--producers", "32"]),
    cell("1000 items a second, K = 10", &["sustained"]),
    cell("one item every 200 ms", &["pickup"]),
    cell("an idle daemon", &["idle"]),
];

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::Args;

    #[test]
    fn command_line_accepts_the_arguments_of_each_cell() {
        for cell in CELLS {
            let arguments = ["bench"].iter().chain(cell.arguments);
            assert!(Args::try_parse_from(arguments).is_ok(), "{:?}", cell.arguments);
        }
    }
}
