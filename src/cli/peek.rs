//! `kvqueue peek`

use std::num::NonZeroUsize;

use super::{client::Client, globals::Globals, output, target::Target};
use crate::exit::Exit;

/// Print the first items of a queue and leave them in it
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    target: Target,
    /// So many items, or fewer if there are fewer
    #[arg(short, default_value = "1")]
    k: NonZeroUsize,
}

impl Args {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let client = Client::open(globals)?;
        let queue = self.target.open(&client)?;
        let items = client.transact(|tr| async {
            let items = queue.peek_k(&tr, self.k).await;
            (tr, items)
        })?;
        output::items(globals.json, &items)?;
        Ok(Exit::Done)
    }
}
