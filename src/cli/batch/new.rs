//! `kvqueue batch new`

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    time::Duration,
};

use anyhow::{Context, anyhow};
use kvqueue_queue::{
    NewItem, RetryPolicy,
    item_batch::{BatchError, NewBatch},
};
use serde_json::json;

use crate::{
    causes::with_causes,
    cli::{
        UsageError,
        client::{Client, frozen},
        globals::Globals,
        output, target, values,
    },
    config::duration,
    consumer::clock,
    exit::Exit,
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
        let now = clock::now();
        let (name, batch) = self.parse(now)?;
        let client = Client::open_or_create(globals, None)?;
        let queue = target::configured(&client, &name)?;
        client.check_kind(&queue)?;
        let policy = RetryPolicy::default();
        let made = client.wait(client.answer(queue.create_batch(client.db(), &policy, &batch, now)));
        let id = match made.context("the batch may be there all the same, without members")? {
            Ok(id) => id,
            Err(BatchError::Retry(error)) => {
                return Err(match error.error.frozen() {
                    Some(pause) => frozen(&queue, pause, None),
                    None => anyhow::Error::new(error).context("cannot make a batch"),
                });
            }
            Err(error) => return Err(UsageError(with_causes(&error)).into()),
        };
        let object = json!({ "id": id.to_string() });
        output::line(globals.json, id.to_string().as_bytes(), &object)
            .map_err(|error| anyhow!("batch {id} is made, which could not be printed: {error}"))?;
        Ok(Exit::Done)
    }

    fn parse(self, now: u64) -> Result<(OsString, NewBatch), UsageError> {
        let then = self.then.as_bytes();
        let colon = then.iter().position(|byte| *byte == b':').filter(|at| *at > 0).ok_or_else(|| {
            UsageError(
                "--then is QUEUE:PAYLOAD, as in --then 'reports:all done'; put a colon between them"
                    .to_owned(),
            )
        })?;
        let (name, payload) = (OsStr::from_bytes(&then[..colon]).to_owned(), then[colon + 1..].to_vec());
        let mut callback = NewItem::new(payload);
        let mut attributes = BTreeMap::new();
        for (name, value) in self.attributes {
            if attributes.insert(name.clone(), value).is_some() {
                let problem =
                    format!("--attr {name}=... is given twice; an item has one value of each attribute");
                return Err(UsageError(problem));
            }
        }
        callback.attributes = attributes;
        callback.content_type = self.content_type;
        callback.key = self.key.map(OsString::into_vec);
        callback.priority = self.priority;
        let after = |time: Duration| now.saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        Ok((name, NewBatch { callback, deadline: self.deadline.map(after) }))
    }
}
