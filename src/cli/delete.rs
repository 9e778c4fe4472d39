//! `kvqueue delete`

use std::future::ready;

use anyhow::anyhow;

use super::{UsageError, client::Client, globals::Globals, output, target::Target};
use crate::exit::Exit;

/// Delete a queue: its items and its counters
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    target: Target,
    /// Yes, delete every item for good
    #[arg(long)]
    yes: bool,
}

impl Args {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        if !self.yes {
            let name = self.target.queue.display();
            return Err(
                UsageError(format!("this deletes queue {name:?} for good; repeat it with --yes")).into()
            );
        }
        let client = Client::open(globals)?;
        let queue = self.target.open(&client)?;
        client.transact(|tr| {
            queue.delete(&tr);
            ready((tr, Ok(())))
        })?;
        if globals.json {
            // Not an io::Error outside: whoever has closed the pipe does not know what was done.
            output::line(true, b"", &output::about(queue.name(), "deleted", true))
                .map_err(|error| anyhow!("the queue is deleted, which could not be printed: {error}"))?;
        }
        Ok(Exit::Done)
    }
}
