//! `kvqueue item`: looks at single items by their ids or unique keys, and changes them.

mod cancel;
mod change;
mod show;
mod wait;

use std::{ffi::OsString, os::unix::ffi::OsStrExt};

use anyhow::bail;
use kvqueue_queue::{ItemChange, ItemId, Queue};
use serde_json::json;

use super::{client::Client, globals::Globals, output, target::Target};
use crate::{audit::Action, exit::Exit, refusal::Operation};

/// Look at single items in any state, wait for their ends, and cancel, reschedule, retry or edit them
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    Show(show::Args),
    Wait(wait::Args),
    Cancel(cancel::Args),
    Reschedule(change::Reschedule),
    Retry(change::Retry),
    EditPayload(change::EditPayload),
}

impl Command {
    pub(super) fn audited(&self) -> Option<Action> {
        match self {
            Self::Show(_) | Self::Wait(_) => None,
            Self::Cancel(args) => Some(args.audited()),
            Self::Reschedule(_) => Some(Action::ItemReschedule),
            Self::Retry(_) => Some(Action::ItemRetry),
            Self::EditPayload(_) => Some(Action::ItemEdit),
        }
    }

    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        match self {
            Self::Show(args) => args.run(globals),
            Self::Wait(args) => args.run(globals),
            Self::Cancel(args) => args.run(globals),
            Self::Reschedule(args) => args.run(globals),
            Self::Retry(args) => args.run(globals),
            Self::EditPayload(args) => args.run(globals),
        }
    }
}

/// An item of a queue.
#[derive(Debug, clap::Args)]
#[group(skip)]
struct One {
    #[command(flatten)]
    target: Target,
    /// The item
    #[arg(value_name = "ID", required_unless_present = "unique")]
    id: Option<ItemId>,
    /// The item that has this unique key; a dead letter has none
    #[arg(long, value_name = "KEY", conflicts_with = "id")]
    unique: Option<OsString>,
}

impl One {
    /// The item's id.
    fn id(&self, client: &Client, queue: &Queue) -> anyhow::Result<ItemId> {
        match (&self.id, &self.unique) {
            (Some(id), _) => Ok(id.clone()),
            (None, unique) => by_unique(client, queue, unique.as_deref().unwrap_or_default()),
        }
    }
}

/// The id of the item that has a unique key.
fn by_unique(client: &Client, queue: &Queue, key: &std::ffi::OsStr) -> anyhow::Result<ItemId> {
    let found = client.transact(|tr| async {
        let found = queue.unique_item(&tr, key.as_bytes()).await;
        (tr, found)
    })?;
    match found {
        Some(id) => Ok(id),
        None => bail!(
            "queue {:?} has no item with the unique key {:?}: it has ended or is a dead letter, or was never there",
            String::from_utf8_lossy(queue.name()),
            key.display()
        ),
    }
}

/// Prints the result of a change of one item.
fn print(id: &ItemId, operation: Operation, change: &ItemChange, json: bool) -> anyhow::Result<Exit> {
    let past = operation.past();
    match operation.result(change) {
        Ok(before) => {
            let object = json!({ "id": id.to_string(), past: true, "state_before": before.as_str() });
            let text = format!("{past} {id}, which was {before}");
            // Not an io::Error outside: the reader that closed the pipe does not know what was done.
            output::line(json, text.as_bytes(), &object)
                .map_err(|error| anyhow::anyhow!("{text}, which could not be printed: {error}"))?;
            Ok(Exit::Done)
        }
        Err(refusal) => bail!("{id} is not {past}: {}; {}", refusal.why, refusal.fix),
    }
}
