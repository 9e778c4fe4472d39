//! `kvqueue delete`

use anyhow::anyhow;
use kvqueue_queue::{Counts, ItemEffect, ItemId, Queue, RetryPolicy};
use serde_json::json;

use super::{
    UsageError,
    client::Client,
    globals::Globals,
    output::{self, Named},
    target::Target,
};
use crate::{
    audit::Action,
    exit::Exit,
    queue_deletion::{Deleted, QueueDeletion},
};

/// Delete a queue: its items, its schedules and its counters; or only some of its items
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    target: Target,
    /// Delete only this item, which is ready, scheduled, retrying or dead; repeat it for several
    #[arg(long = "item", value_name = "ID")]
    items: Vec<ItemId>,
    /// Yes, delete for good
    #[arg(long)]
    yes: bool,
}

impl Args {
    pub(super) fn audited(&self) -> Action {
        if self.items.is_empty() { Action::QueueDelete } else { Action::ItemDelete }
    }

    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let client = Client::open(globals)?;
        let queue = self.target.find_there(&client)?;
        if !self.yes {
            let name = self.target.queue.display();
            let what = if self.items.is_empty() {
                format!("queue {name:?}, with its items and schedules,")
            } else {
                format!("items of queue {name:?}")
            };
            return Err(UsageError(format!("this deletes {what} for good; repeat it with --yes")).into());
        }
        if self.items.is_empty() {
            whole(&client, &queue, globals)
        } else {
            self.some(&client, &queue, globals)
        }
    }

    /// Deletes each item by itself: if one is refused, the others go on.
    fn some(&self, client: &Client, queue: &Queue, globals: &Globals) -> anyhow::Result<Exit> {
        client.check_not_frozen(queue)?;
        client.store(|record| record.about(queue.name()).with_items(&self.items))?;
        let policy = RetryPolicy::default();
        let mut named = Named::new("items", "deleted", globals.json);
        for id in &self.items {
            let effect = client.ask_partly(queue.delete_item(client.db(), &policy, id))?;
            named.print(
                id,
                match effect {
                    ItemEffect::Done => None,
                    ItemEffect::Running => Some("it is running"),
                    ItemEffect::Ready | ItemEffect::Refused | ItemEffect::Gone => {
                        Some("there is no such item")
                    }
                },
            );
        }
        named.exit()
    }
}

fn whole(client: &Client, queue: &Queue, globals: &Globals) -> anyhow::Result<Exit> {
    let (audit, record) = client.record()?;
    let (audit, record) = (&audit, &record.about(queue.name()));
    let deletion = &QueueDeletion::new(queue, audit, record);
    let deleted = client.transact(|tr| async move {
        let deleted = deletion.write(&tr).await;
        (tr, deleted)
    })?;
    let Deleted { counts: Counts { ready, running, waiting, dead, .. }, schedules } = deleted;
    let mut object = output::about(queue.name(), "deleted", true);
    object["items"] = json!({ "ready": ready, "running": running, "waiting": waiting, "dead": dead });
    object["schedules"] = json!(schedules);
    let name = queue.name().escape_ascii();
    let and = match schedules {
        0 => String::new(),
        1 => ", and 1 schedule".to_owned(),
        more => format!(", and {more} schedules"),
    };
    let text =
        format!("deleted {name}: {ready} ready, {waiting} waiting, {running} running, {dead} dead{and}");
    // Not an io::Error outside: the reader that closed the pipe does not know what was done.
    output::line(globals.json, text.as_bytes(), &object)
        .map_err(|error| anyhow!("the queue is deleted, which could not be printed: {error}"))?;
    Ok(Exit::Done)
}
