//! `kvqueue bench`: hands over to the program `kvqueue-bench`, which measures.

use std::{ffi::OsString, os::unix::process::CommandExt, path::PathBuf, process::Command};

use anyhow::anyhow;

use super::globals::Globals;
use crate::base::exit::Exit;

/// The program that measures.
const PROGRAM: &str = "kvqueue-bench";

/// Measure how fast pushes and handlers' items are, on this machine and database
#[derive(Debug, clap::Args)]
#[command(
    disable_help_flag = true,
    long_about = "Measure how fast pushes and handlers' items are, on this machine and database.\n\n\
    Without CELL it takes about half a minute and prints a table. `kvqueue bench --help` lists the cells and their options. The program \
    kvqueue-bench does the measuring; it is looked for in the directory of this program and on the PATH."
)]
pub(super) struct Args {
    /// A cell, which is what to measure, and options; --help lists them
    #[arg(value_name = "CELL", trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

impl Args {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let mut command = Command::new(program());
        if let Some(database) = globals.database() {
            command.args(["--database", database]);
        }
        if let Some(config) = globals.config() {
            command.arg("--config").arg(config);
        }
        command.args(globals.json.then_some("--json"));
        command.args((0..globals.verbose).map(|_| "--verbose"));
        command.args(globals.quiet.then_some("--quiet"));
        // This process goes on as that program: signals and exit code are its own.
        let error = command.args(&self.arguments).exec();
        Err(anyhow!(
            "cannot run {PROGRAM}: {error}; it has to be in the directory of this program or on the PATH"
        ))
    }
}

/// It is looked for in the directory of this program, and then on the PATH.
fn program() -> PathBuf {
    let sibling = std::env::current_exe().map(|this| this.with_file_name(PROGRAM));
    sibling.ok().filter(|file| file.is_file()).unwrap_or_else(|| PROGRAM.into())
}
