//! `kvqueue extend`

use serde_json::json;

use super::{
    daemons::{PATIENCE, Until, Urls},
    queue_path, runtime,
};
use crate::{
    base::{exit::Exit, lease_text::LeaseText},
    cli::{completions, globals::Globals, output},
};

/// Extend a lease: it lasts its whole length from now on
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    /// The queue
    #[arg(add = completions::queue())]
    queue: String,
    /// The lease, as `kvqueue lease` prints it
    lease: LeaseText,
    #[command(flatten)]
    urls: Urls,
}

impl Args {
    pub(in crate::cli) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let daemons =
            self.urls.daemons(globals, globals.start_to_ask(self.urls.are_given())?, "kvqueue-extend")?;
        let path = format!("{}/leases/{}/extend", queue_path(&self.queue), self.lease);
        let patience = globals.timeout().unwrap_or(PATIENCE);
        let answer = runtime()?.block_on(daemons.change(&path, &json!({}), patience, Until::RoundEnds))?;
        let open = output::items_of(&answer["open"]);
        output::line(globals.json, format!("extended; {open} not acknowledged").as_bytes(), &answer)?;
        Ok(Exit::Done)
    }
}
