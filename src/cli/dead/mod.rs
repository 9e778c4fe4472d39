//! `kvqueue dead`: looking at dead letters, and deciding about them.

mod decide;
mod letter;
mod list;
mod show;

use super::globals::Globals;
use crate::exit::Exit;

/// Look at dead letters, the items that are not tried any more; retry or purge them
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    List(list::Args),
    Show(show::Args),
    Retry(decide::Retry),
    Purge(decide::Purge),
}

impl Command {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        match self {
            Self::List(args) => args.run(globals),
            Self::Show(args) => args.run(globals),
            Self::Retry(args) => args.run(globals),
            Self::Purge(args) => args.run(globals),
        }
    }
}
