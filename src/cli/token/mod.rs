//! `kvqueue token`: the access tokens of the HTTP API.

mod list;
mod new;
mod revoke;

use super::globals::Globals;
use crate::exit::Exit;

/// Make, list and revoke access tokens, with which programs use the HTTP API
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    New(new::Args),
    List(list::Args),
    Revoke(revoke::Args),
}

impl Command {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        match self {
            Self::New(args) => args.run(globals),
            Self::List(args) => args.run(globals),
            Self::Revoke(args) => args.run(globals),
        }
    }
}
