//! `kvqueue batch new`

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
    time::Duration,
};

use anyhow::{Context, anyhow};
use kvqueue_queue::Queue;

use crate::{
    base::{exit::Exit, times::whole_millis},
    cli::{
        UsageError,
        api_client::ApiClient,
        client::Client,
        globals::Globals,
        output,
        target::{self, path_at_daemon},
        values,
    },
    config::duration,
    operations::{
        QueueName,
        batches::{MadeBatch, MakeBatch, NewBatchBody},
        push::{ItemFields, Object},
        target::{Layout, Target},
    },
};

const HEADING: &str = "What is pushed in the end";

/// Make a batch, and print its id
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Make a batch, and print its id: one item is pushed when all members of the batch have ended.\n\n\
    The item gets the attributes batch, batch-outcome (complete or deadline), batch-members, batch-done, batch-dead, batch-cancelled, batch-expired and batch-taken. The batch waits until \
    it is committed. At its deadline it calls back as it is, committed or not."
)]
pub(in crate::cli) struct New {
    /// The queue and the item that is pushed onto it in the end: what follows the first colon
    #[arg(long, value_name = "QUEUE:PAYLOAD")]
    then: OsString,
    /// Call back after this time at the latest, as in 1h [default: wait for the members, however long that takes]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    deadline: Option<Duration>,
    /// An attribute; repeat for more
    #[arg(long = "attr", help_heading = HEADING, value_name = "NAME=VALUE", value_parser = values::attribute)]
    attributes: Vec<(String, String)>,
    /// The payload's media type
    #[arg(long, help_heading = HEADING, value_name = "TYPE")]
    content_type: Option<String>,
    /// The item's key, in a keyed queue
    #[arg(long, help_heading = HEADING, value_name = "KEY")]
    key: Option<OsString>,
    /// The item's priority, in a priority queue
    #[arg(long, help_heading = HEADING, value_name = "NUMBER", default_value_t = 0, allow_negative_numbers = true)]
    priority: i64,
}

impl New {
    pub(super) fn run(self, globals: &Globals) -> anyhow::Result<Exit> {
        let then = self.then.as_bytes();
        let colon = then.iter().position(|byte| *byte == b':').filter(|at| *at > 0).ok_or_else(|| {
            UsageError(
                "--then is QUEUE:PAYLOAD, as in --then 'reports:all done'; put a colon between them"
                    .to_owned(),
            )
        })?;
        let (queue, payload) = (OsStr::from_bytes(&then[..colon]).to_owned(), &then[colon + 1..]);
        let (key, key_base64) = values::texts(self.key);
        let fields = ItemFields {
            attributes: values::attributes(self.attributes)?,
            content_type: self.content_type,
            key,
            key_base64,
            priority: Some(self.priority),
            ..ItemFields::default()
        };
        let deadline_ms = self.deadline.map(whole_millis);
        let then = Object(fields.with_payload(payload));
        let batch = NewBatchBody { then, deadline_ms, after: None, missing: None };
        let made = match ApiClient::of_database(globals)? {
            Some(daemon) => make_at(&daemon, &queue, &batch)?,
            None => {
                let client = Client::open_or_create(globals, None)?;
                make_in(&client, &target::configured(&client, &queue)?, Layout::default(), batch)?
            }
        };
        print_made(&made, globals)
    }
}

/// Has a daemon make a batch.
pub(in crate::cli) fn make_at(
    daemon: &ApiClient,
    queue: &OsStr,
    batch: &NewBatchBody,
) -> anyhow::Result<MadeBatch> {
    let path = format!("{}/batches", path_at_daemon(queue)?);
    let made = daemon.send("POST", &path, Some(&serde_json::to_value(batch)?))?;
    serde_json::from_value(made).context("the daemon answers in a way that this program does not know")
}

/// Makes a batch in the database.
pub(in crate::cli) fn make_in(
    client: &Client,
    queue: &Queue,
    layout: Layout,
    batch: NewBatchBody,
) -> anyhow::Result<MadeBatch> {
    let target = Target { queue: QueueName(queue.name().to_vec()), layout };
    client.wait(MakeBatch { target, batch }.run(client))
}

pub(in crate::cli) fn print_made(made: &MadeBatch, globals: &Globals) -> anyhow::Result<Exit> {
    output::line(globals.json, made.text().as_bytes(), &serde_json::to_value(made)?)
        .map_err(|error| anyhow!("batch {} is made, which could not be printed: {error}", made.id))?;
    Ok(Exit::Done)
}
