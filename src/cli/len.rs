//! `kvqueue len`

use serde_json::{Value, json};

use super::{api_client::ApiClient, client::Client, globals::Globals, output, target::Target};
use crate::base::{exit::Exit, json};

/// Print how many items of a queue are ready
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Print how many items of a queue are ready: a number. With --json, an object that also says how \
    many are running (on a lease), waiting (scheduled or retrying, not due yet), dead (dead letters) and done (finished so far), and since when and why \
    it is paused, if it is."
)]
pub(super) struct Args {
    #[command(flatten)]
    target: Target,
}

impl Args {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let object = match ApiClient::of_database(globals)? {
            Some(daemon) => daemon.get(&self.target.path_at_daemon("")?)?,
            None => self.count(globals)?,
        };
        output::line(globals.json, object["ready"].to_string().as_bytes(), &object)?;
        Ok(Exit::Done)
    }

    fn count(&self, globals: &Globals) -> anyhow::Result<Value> {
        let client = Client::open(globals)?;
        let queue = self.target.find(&client)?;
        if !globals.json {
            let len = client.transact(|tr| async {
                let len = queue.len(&tr).await;
                (tr, len)
            })?;
            return Ok(json!({ "ready": len }));
        }
        let (counts, pause) = client.transact(|tr| async {
            let found = async { Ok((queue.counts(&tr).await?, queue.paused(&tr).await?)) }.await;
            (tr, found)
        })?;
        Ok(json::counts(queue.name(), counts, pause))
    }
}
