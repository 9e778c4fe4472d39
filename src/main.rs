//! The program: see `kvqueue --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    kvqueue::cli::main().into()
}
