//! `kvqueue item reschedule`, `retry` and `edit-payload`

use std::{ffi::OsString, path::PathBuf};

use anyhow::{Context, bail};
use kvqueue_queue::{ItemId, PAYLOAD_CEILING, Queue, RetryPolicy, from_millis};

use super::{
    super::{
        DataError,
        client::Client,
        globals::Globals,
        line_reader::read_file,
        values::{self, When},
    },
    One, print,
};
use crate::{consumer::clock::now, exit::Exit, refusal::Operation};

/// Give a ready, scheduled or retrying item another time at which it becomes ready
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "kvqueue item reschedule [OPTIONS] <QUEUE> <ID> <--delay <DURATION>|--at <TIME>|--now>\n       \
    kvqueue item reschedule [OPTIONS] <QUEUE> --unique <KEY> <--delay <DURATION>|--at <TIME>|--now>"
)]
#[group(id = "when", required = true, multiple = false, args = ["delay", "at", "now"])]
pub(in crate::cli) struct Reschedule {
    #[command(flatten)]
    one: One,
    /// Not before this delay is over, as in 5s or "1h 30m"
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = values::delay)]
    delay: Option<When>,
    /// Not before this time: RFC 3339, or seconds since 1970
    #[arg(long, value_name = "TIME", value_parser = values::at)]
    at: Option<When>,
    /// Now
    #[arg(long)]
    now: bool,
}

impl Reschedule {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let (client, queue, id) = open(&self.one, globals)?;
        let due = self.delay.or(self.at).and_then(|when| when.due(now())).map(from_millis);
        client.store(|record| {
            let record = record.about(queue.name()).with_items(std::slice::from_ref(&id));
            match due {
                Some(due) => record.with("due", crate::json::time(kvqueue_queue::millis(due))),
                None => record.with("due", "now"),
            }
        })?;
        let policy = RetryPolicy::default();
        let change = client.ask_partly(queue.reschedule_item(client.db(), &policy, &id, due))?;
        print(&id, Operation::Reschedule, &change, globals.json)
    }
}

/// Make a scheduled or retrying item ready now, or a dead letter with all its attempts before it
#[derive(Debug, clap::Args)]
#[command(override_usage = "kvqueue item retry [OPTIONS] <QUEUE> <ID>\n       \
    kvqueue item retry [OPTIONS] <QUEUE> --unique <KEY>")]
pub(in crate::cli) struct Retry {
    #[command(flatten)]
    one: One,
}

impl Retry {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let (client, queue, id) = open(&self.one, globals)?;
        client.store(|record| record.about(queue.name()).with_items(std::slice::from_ref(&id)))?;
        let policy = RetryPolicy::default();
        let change = client.ask_partly(queue.retry_item(client.db(), &policy, &id))?;
        print(&id, Operation::Retry, &change, globals.json)
    }
}

/// Give an item another payload: ready, scheduled, retrying or a dead letter
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "kvqueue item edit-payload [OPTIONS] <QUEUE> <ID> <--payload <TEXT>|--file <PATH>>\n       \
    kvqueue item edit-payload [OPTIONS] <QUEUE> --unique <KEY> <--payload <TEXT>|--file <PATH>>"
)]
#[group(id = "what", required = true, multiple = false, args = ["payload", "file"])]
pub(in crate::cli) struct EditPayload {
    #[command(flatten)]
    one: One,
    /// The new payload
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    payload: Option<OsString>,
    /// The file that has the new payload; - for stdin
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
}

impl EditPayload {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let payload = self.read()?;
        let (client, queue, id) = open(&self.one, globals)?;
        let most = self.one.target.max_payload(&client);
        if payload.len() > most {
            return Err(DataError(format!(
                "the payload has {} bytes, at most {most} are allowed; raise `max-payload` of the queue, or store it elsewhere",
                payload.len()
            ))
            .into());
        }
        client.store(|record| {
            let record = record.about(queue.name()).with_items(std::slice::from_ref(&id));
            record.with("bytes", payload.len())
        })?;
        let policy = RetryPolicy::default();
        let change = client.ask_partly(queue.edit_item(client.db(), &policy, &id, &payload))?;
        print(&id, Operation::EditPayload, &change, globals.json)
    }

    fn read(&self) -> anyhow::Result<Vec<u8>> {
        if let Some(payload) = &self.payload {
            return Ok(payload.as_encoded_bytes().to_vec());
        }
        let Some(path) = &self.file else { bail!("no payload is given; add --payload or --file") };
        read_file(path, PAYLOAD_CEILING).with_context(|| format!("cannot read {}", path.display()))
    }
}

/// Opens the database, and finds the item.
fn open(one: &One, globals: &Globals) -> anyhow::Result<(Client, Queue, ItemId)> {
    let client = Client::open(globals)?;
    let queue = one.target.find_there(&client)?;
    client.check_not_frozen(&queue)?;
    let id = one.id(&client, &queue)?;
    Ok((client, queue, id))
}
