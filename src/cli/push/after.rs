//! `kvqueue push --after`: an item that is pushed when others have ended.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    time::Duration,
};

use anyhow::{Context, anyhow};
use clap::builder::TypedValueParser;
use kvqueue_queue::{
    ItemId, NewItem, Queue, QueueError, RetryError, RetryPolicy,
    item_batch::{BatchError, Missing, NewBatch},
};
use serde_json::json;

use crate::{
    batches::Waits,
    causes::with_causes,
    cli::{
        UsageError,
        client::{Client, frozen},
        output, target,
    },
    config::duration,
    consumer::clock,
    exit::Exit,
};

const HEADING: &str = "After other items";

/// The options of a push that waits for other items.
#[derive(Debug, clap::Args)]
pub(super) struct AfterOptions {
    /// Push the item when this one has ended, whichever way; repeat for more. An item of another queue is QUEUE:ID
    #[arg(
        long,
        help_heading = HEADING,
        value_name = "ID",
        value_parser = clap::builder::OsStringValueParser::new().try_map(parse),
        conflicts_with_all = [
            "lines", "idempotency_key", "delay", "at", "ttl", "unique", "unique_for", "replace", "batch", "trace_parent"
        ]
    )]
    after: Vec<Predecessor>,
    /// Push it after this time at the latest, as in 6h [default: wait for them, however long that takes]
    #[arg(long, help_heading = HEADING, value_name = "DURATION", value_parser = duration::parse, requires = "after")]
    deadline: Option<Duration>,
    /// Take an item that is not in its queue, and not in its history, for one that has ended; without this, nothing is pushed then
    #[arg(long, help_heading = HEADING, requires = "after")]
    missing_ok: bool,
}

/// An item that is waited for.
#[derive(Debug, Clone)]
struct Predecessor {
    /// `None`: that of the push.
    queue: Option<OsString>,
    id: ItemId,
}

#[expect(clippy::needless_pass_by_value, reason = "a parser of values gets them so")]
fn parse(text: OsString) -> Result<Predecessor, String> {
    let bytes = text.as_bytes();
    let (queue, id) = match bytes.iter().rposition(|byte| *byte == b':') {
        Some(at) => (Some(OsStr::from_bytes(&bytes[..at]).to_owned()), &bytes[at + 1..]),
        None => (None, bytes),
    };
    let id = String::from_utf8_lossy(id).parse().map_err(|error| format!("{error}"))?;
    Ok(Predecessor { queue, id })
}

impl AfterOptions {
    pub(super) fn is_given(&self) -> bool {
        !self.after.is_empty()
    }

    fn missing(&self) -> Missing {
        if self.missing_ok { Missing::HasEnded } else { Missing::Refused }
    }

    /// Pushes the item after the others, and prints the batch that waits for them.
    pub(super) fn push(
        self,
        client: &Client,
        queue: &Queue,
        callback: NewItem,
        as_json: bool,
    ) -> anyhow::Result<Exit> {
        client.check_kind(queue)?;
        let now = clock::now();
        let after = |time: Duration| now.saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        let batch = NewBatch { callback, deadline: self.deadline.map(after) };
        let (policy, missing) = (RetryPolicy::default(), self.missing());
        let after = others(client, queue, self.after)?;
        let pushed = queue.push_after(client.db(), &policy, &batch, (&after, missing), now);
        let pushed = client.wait(client.answer(pushed));
        let (id, joins) = pushed
            .context("the item may wait all the same; see `kvqueue batch list`")?
            .map_err(|error| failure(queue, &after, error))?;
        let waits = Waits::of(&joins);
        let text = waits.text(&id);
        let mut object = waits.counts();
        object["batch"] = json!(id.to_string());
        output::line(as_json, text.as_bytes(), &object)
            .map_err(|error| anyhow!("{text}, which could not be printed: {error}"))?;
        Ok(Exit::Done)
    }
}

fn failure(queue: &Queue, after: &[(Queue, ItemId)], error: BatchError) -> anyhow::Error {
    match error {
        BatchError::Retry(error) if error.is_maybe_committed() => anyhow::Error::new(error)
            .context("the push failed; the item may wait all the same, see `kvqueue batch list`"),
        BatchError::Retry(RetryError { error: QueueError::Frozen { queue: name, pause }, .. }) => {
            let is_frozen = |queue: &&Queue| queue.name().escape_ascii().to_string() == name;
            let it = after.iter().map(|(queue, _)| queue).find(is_frozen).unwrap_or(queue);
            frozen(it, &pause, None)
        }
        BatchError::Retry(RetryError { error: refused @ QueueError::TooManyBatches { .. }, .. }) => {
            anyhow!("the item is not pushed: {refused}")
        }
        BatchError::Retry(error) => anyhow::Error::new(error).context("the item is not pushed"),
        missing @ BatchError::Missing { .. } => {
            anyhow!("{missing}: add --missing-ok; nothing was pushed")
        }
        error => UsageError(with_causes(&error)).into(),
    }
}

/// The items that are waited for, each once.
fn others(client: &Client, own: &Queue, after: Vec<Predecessor>) -> anyhow::Result<Vec<(Queue, ItemId)>> {
    let mut others: Vec<(Queue, ItemId)> = Vec::new();
    for Predecessor { queue, id } in after {
        let name = queue.map_or_else(|| own.name().to_vec(), OsString::into_vec);
        if others.iter().any(|(queue, other)| queue.name() == name && *other == id) {
            continue;
        }
        let known = others.iter().map(|(queue, _)| queue).chain([own]).find(|queue| queue.name() == name);
        let queue = match known.cloned() {
            Some(queue) => queue,
            None => target::there(client, OsStr::from_bytes(&name))?,
        };
        others.push((queue, id));
    }
    Ok(others)
}
