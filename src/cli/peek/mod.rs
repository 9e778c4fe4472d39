//! `kvqueue peek`

use std::num::NonZeroUsize;

use kvqueue_queue::ItemId;

use super::{client::Client, globals::Globals, output, target::Target};
use crate::exit::Exit;

/// The most items of one transaction. More could be too much to read within its five seconds.
const GROUP: usize = 250;

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
        let (mut wanted, mut after) = (self.k.get(), None);
        while let Some(k) = NonZeroUsize::new(wanted.min(GROUP)) {
            let behind: Option<&ItemId> = after.as_ref();
            let items = client.transact(|tr| async {
                let items = queue.peek_after(&tr, behind, k).await;
                (tr, items)
            })?;
            let Some(last) = items.last() else { break };
            after = Some(last.id.clone());
            wanted -= items.len();
            output::items(globals.json, &items)?;
        }
        Ok(Exit::Done)
    }
}
