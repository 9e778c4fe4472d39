//! `kvqueue resume`

use std::ffi::OsString;

use anyhow::bail;
use kvqueue_queue::Pause;
use serde_json::json;

use super::{
    client::Client,
    daemon::{At, Daemon},
    globals::Globals,
    output,
    pause::{change, open, told_here, why},
};
use crate::exit::Exit;

/// Resume a paused queue: all daemons take its items again
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The queue
    #[arg(add = super::completions::queue())]
    queue: OsString,
    /// Also if it is frozen: if `migrate` moves its items, or has moved them
    #[arg(long)]
    frozen: bool,
    /// What was paused for the running daemon alone
    #[arg(long, conflicts_with = "frozen")]
    here: bool,
    #[command(flatten)]
    at: At,
}

impl Args {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        if self.here {
            let told = Daemon::find(globals, &self.at)?.pause_here(&self.queue, false)?;
            return told_here(globals, &told, &format!("resumed {} in this daemon", self.queue.display()));
        }
        self.at.only_with_here()?;
        let client = Client::open(globals)?;
        let queue = open(&client, &self.queue)?;
        let name = self.queue.display();
        let before = change(&client, &queue, self.frozen, |tr| queue.resume(tr))?;
        if let Some(Pause { frozen: true, reason, .. }) = &before
            && !self.frozen
        {
            bail!("queue {name:?} is frozen: {}; to take its items all the same, add --frozen", why(reason));
        }
        if before.is_none() {
            client.remark_if_absent(&queue)?;
        }
        let text =
            if before.is_some() { format!("resumed {name}") } else { format!("{name} was not paused") };
        let mut object = output::about(queue.name(), "paused", false);
        object["was_paused"] = json!(before.is_some());
        output::line(globals.json, text.as_bytes(), &object)?;
        Ok(Exit::Done)
    }
}
