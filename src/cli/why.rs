//! `kvqueue why`

use anyhow::bail;
use kvqueue_queue::ItemId;

use super::{client::Client, globals::Globals, output, target::Target};
use crate::{exit::Exit, json, why::Why};

/// Print what an item waits for
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Print what an item waits for: its turn, a slot of its key, a rate, its time, its worker; and how much comes before it.\n\n\
    Up to 10,000 items and as many keys are counted. To find a running item, all leases are read."
)]
pub(super) struct Args {
    #[command(flatten)]
    target: Target,
    /// The item
    id: ItemId,
}

impl Args {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let client = Client::open(globals)?;
        let queue = self.target.find(&client)?;
        let found = client.transact(|tr| async {
            let found = Why::read(&queue, &tr, &self.id).await;
            (tr, found)
        })?;
        let Some(why) = found else {
            bail!(
                "queue {:?} has no item {}: it is finished, deleted, or was never there",
                self.target.queue.display(),
                self.id
            )
        };
        let mut object = json::view(&why.view);
        why.insert(&mut object);
        output::line(globals.json, why.sentence().as_bytes(), &object)?;
        Ok(Exit::Done)
    }
}
