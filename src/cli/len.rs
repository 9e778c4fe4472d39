//! `kvqueue len`

use super::{client::Client, globals::Globals, output, target::Target};
use crate::exit::Exit;

/// Print how many items a queue holds
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    target: Target,
}

impl Args {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let client = Client::open(globals)?;
        let queue = self.target.open(&client)?;
        let len = client.transact(|tr| async {
            let len = queue.len(&tr).await;
            (tr, len)
        })?;
        output::line(globals.json, len.to_string().as_bytes(), &output::about(queue.name(), "len", len))?;
        Ok(Exit::Done)
    }
}
