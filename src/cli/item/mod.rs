//! `kvqueue item`: looks at single items by their ids or unique keys, and changes them.

mod cancel;
mod change;
mod one;
mod show;
mod wait;

use super::globals::Globals;
use crate::base::exit::Exit;

/// Look at single items in any state, wait for their ends, and change them
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    Show(show::Args),
    Wait(wait::Args),
    Cancel(cancel::Args),
    Reschedule(change::Reschedule),
    EditPayload(change::EditPayload),
}

impl Command {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        match self {
            Self::Show(args) => args.run(globals),
            Self::Wait(args) => args.run(globals),
            Self::Cancel(args) => args.run(globals),
            Self::Reschedule(args) => args.run(globals),
            Self::EditPayload(args) => args.run(globals),
        }
    }
}
