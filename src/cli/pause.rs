//! `kvqueue pause`

use std::{ffi::OsString, os::unix::ffi::OsStrExt};

use anyhow::bail;
use foundationdb::Transaction;
use kvqueue_queue::{Pause, Queue};
use serde_json::{Value, json};

use super::{
    UsageError,
    api_client::{ApiClient, At},
    client::Client,
    globals::Globals,
    output,
};
use crate::{consumer::clock, exit::Exit};

/// Pause a queue: all daemons leave its items where they are, until it is resumed
#[derive(Debug, clap::Args)]
#[command(long_about = "Pause a queue: all daemons leave its items where they are, until it is resumed.\n\n\
    Pushes go on. So does what is in hand: items that a handler has, or that wait for it, are handled and settled, and delayed items become ready \
    at their time. The pause is kept in the database, and outlives daemons. `pop` takes items all the same. A queue that is paused already gets the new reason.")]
pub(super) struct Args {
    /// The queue
    #[arg(add = super::completions::queue())]
    queue: OsString,
    /// Why, for other operators; at most 500 bytes are kept
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
    /// Only for the running daemon, until it ends or resumes the queue
    #[arg(long, conflicts_with = "reason")]
    local: bool,
    #[command(flatten)]
    at: At,
}

impl Args {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        if self.local {
            let answer = ApiClient::find(globals, &self.at)?.pause_locally(&self.queue, true)?;
            return print_local(globals, &answer, &format!("paused {} in this daemon", self.queue.display()));
        }
        self.at.only_with_here()?;
        let client = Client::open_or_create(globals)?;
        let queue = open(&client, &self.queue)?;
        client.remark_if_absent(&queue)?;
        let pause = Pause { at: clock::now(), frozen: false, reason: self.reason.clone() };
        let before = change(&client, &queue, false, |tr| queue.pause(tr, &pause))?;
        if let Some(Pause { frozen: true, reason, .. }) = before {
            bail!("queue {:?} is frozen already: {}", self.queue.display(), why(&reason));
        }
        let mut object = output::about(queue.name(), "paused", true);
        object["since"] = json!(output::time(pause.at));
        object["reason"] = json!(pause.reason);
        output::line(globals.json, format!("paused {}", self.queue.display()).as_bytes(), &object)?;
        Ok(Exit::Done)
    }
}

/// Prints the result of pausing or resuming in one daemon.
pub(super) fn print_local(globals: &Globals, answer: &Value, text: &str) -> anyhow::Result<Exit> {
    output::line(globals.json, text.as_bytes(), answer)?;
    Ok(Exit::Done)
}

/// The queue of a name. Whether it is paused is kept where its layout does not matter.
pub(super) fn open(client: &Client, name: &OsString) -> Result<Queue, UsageError> {
    Queue::new(client.prefix(), name.as_bytes()).map_err(|error| UsageError(error.to_string()))
}

/// Changes a pause, and returns what it was before. One that holds sweepers back, too, stays as it is unless that is said: then something
/// moves the queue, or has.
pub(super) fn change(
    client: &Client,
    queue: &Queue,
    also_frozen: bool,
    write: impl Fn(&Transaction),
) -> anyhow::Result<Option<Pause>> {
    client.transact(|tr| {
        let write = &write;
        async move {
            let before = queue.paused(&tr).await;
            let is_frozen = matches!(before, Ok(Some(Pause { frozen: true, .. })));
            if also_frozen || !is_frozen {
                write(&tr);
            }
            (tr, before)
        }
    })
}

/// The reason of a pause, in a message.
pub(super) fn why(reason: &str) -> &str {
    if reason.is_empty() { "no reason given" } else { reason }
}
