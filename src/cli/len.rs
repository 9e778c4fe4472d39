//! `kvqueue len`

use std::ffi::OsString;

use super::{client::Client, globals::Globals, output};
use crate::exit::Exit;

/// Print how many items a queue holds
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The queue; one that was never pushed to is empty
    queue: OsString,
}

impl Args {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let client = Client::open(globals)?;
        let queue = client.queue(&self.queue)?;
        let len = client.transact(|tr| async {
            let len = queue.len(&tr).await;
            (tr, len)
        })?;
        output::line(globals.json, len.to_string().as_bytes(), &output::about(queue.name(), "len", len))?;
        Ok(Exit::Done)
    }
}
