//! `kvqueue schedule fire`

use anyhow::{anyhow, bail};
use kvqueue_queue::{ItemId, RetryPolicy, schedule::ByHand};
use serde_json::json;

use super::{UPGRADE, about, refused};
use crate::{
    cli::{client::Client, globals::Globals, output, target::Target},
    consumer::clock,
    exit::Exit,
    schedules::{Refusal, check_firable, gone},
    text::visible,
};

/// Push an item of a schedule now, also if it is paused; it goes on as if nothing had happened
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Fire {
    #[command(flatten)]
    target: Target,
    /// The schedule
    #[arg(value_name = "NAME")]
    name: String,
}

impl Fire {
    pub(super) fn run(self, globals: &Globals) -> anyhow::Result<Exit> {
        let client = Client::open(globals)?;
        let queue = &self.target.find_there(&client)?;
        let name = self.name.as_str();
        let not = |refusal: Refusal| refused(queue, name, "fire", &refusal, UPGRADE);
        // First, so that a refused command leaves no record.
        client.check_not_frozen(queue)?;
        let firable = client.transact(|tr| async {
            let firable = check_firable(&tr, queue, name).await;
            (tr, firable)
        })?;
        let last = firable.map_err(not)?;
        client.store(|record| record.about(queue.name()).with("schedule", name))?;
        let policy = RetryPolicy::default();
        let ttl = self.target.settings(&client).ttl;
        let fired = client.ask_partly(queue.fire_schedule(client.db(), &policy, name, clock::now(), ttl))?;
        let id = match fired {
            ByHand::Fired { id } => id,
            ByHand::Overlaps => bail!(
                "cannot fire schedule \"{}\" of queue \"{}\": its last item{} has not ended, and its items may not overlap; wait until it has ended, or let them overlap (overlap: allow)",
                visible(name),
                queue.name().escape_ascii(),
                last.map(|id| format!(" {id}")).unwrap_or_default()
            ),
            ByHand::Gone => {
                let refusal = client.transact(|tr| async {
                    let refusal = gone(&tr, queue, name).await;
                    (tr, refusal)
                })?;
                return Err(not(refusal));
            }
        };
        let id = id.as_ref().map(ItemId::to_string);
        let text = id.as_deref().unwrap_or("fired; the item is gone already");
        output::line(globals.json, text.as_bytes(), &about(queue, name, "item", json!(id)))
            .map_err(|error| anyhow!("the schedule is fired, which could not be printed: {error}"))?;
        Ok(Exit::Done)
    }
}
