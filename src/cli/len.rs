//! `kvqueue len`

use kvqueue_queue::Queue;
use serde_json::json;

use super::{client::Client, globals::Globals, output, target::Target};
use crate::exit::Exit;

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
        let client = Client::open(globals)?;
        let queue = self.target.find(&client)?;
        if globals.json {
            Self::counts(&client, &queue)?;
        } else {
            let len = client.transact(|tr| async {
                let len = queue.len(&tr).await;
                (tr, len)
            })?;
            output::line(false, len.to_string().as_bytes(), &json!(len))?;
        }
        Ok(Exit::Done)
    }

    fn counts(client: &Client, queue: &Queue) -> anyhow::Result<()> {
        let (counts, pause) = client.transact(|tr| async {
            let found = async { Ok((queue.counts(&tr).await?, queue.paused(&tr).await?)) }.await;
            (tr, found)
        })?;
        let object = output::counts(queue.name(), "len", counts, pause);
        output::line(true, b"", &object)?;
        Ok(())
    }
}
