//! The program: see `kvqueue --help`.

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// Threads of the client, the engine and the callbacks allocate for each other: docs/decisions/0038-allocator.md.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    kvqueue::cli::main().into()
}
