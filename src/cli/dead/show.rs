//! `kvqueue dead show`

use anyhow::bail;
use kvqueue_queue::ItemId;

use super::letter;
use crate::{
    cli::{client::Client, globals::Globals, output, target::Target},
    exit::Exit,
};

/// Print all that is known of a dead letter: how its attempts ended, what was pushed with it, its payload
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    target: Target,
    /// The letter
    id: ItemId,
}

impl Args {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let client = Client::open(globals)?;
        let queue = self.target.find(&client)?;
        let found = client.transact(|tr| async {
            let found = queue.dead_get(&tr, &self.id).await;
            (tr, found)
        })?;
        let Some(found) = found else {
            bail!("queue {:?} has no dead letter {}", self.target.queue.display(), self.id)
        };
        output::line(globals.json, &letter::text(&found), &letter::object(&found))?;
        match &found.unreadable {
            None => Ok(Exit::Done),
            Some(why) => bail!("cannot show the payload of dead letter {}: {why}", self.id),
        }
    }
}
