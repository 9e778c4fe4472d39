//! `kvqueue push --after`: an item that is pushed when others have ended.

use std::{ffi::OsString, time::Duration};

use clap::builder::TypedValueParser;
use kvqueue_queue::ItemId;

use crate::{
    base::times::whole_millis,
    config::duration,
    operations::{
        batches::{MissingWord, NewBatchBody, Predecessor},
        push::{ItemFields, Object},
    },
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

#[expect(clippy::needless_pass_by_value, reason = "a parser of values gets them so")]
fn parse(text: OsString) -> Result<Predecessor, String> {
    let text = text.to_str().ok_or("the name of its queue has to be UTF-8")?;
    let (queue, id) = text.rsplit_once(':').map_or((None, text), |(queue, id)| (Some(queue.to_owned()), id));
    let id = id.parse::<ItemId>().map_err(|error| error.to_string())?.to_string();
    Ok(Predecessor { id, queue })
}

impl AfterOptions {
    pub(super) fn is_given(&self) -> bool {
        !self.after.is_empty()
    }

    /// The batch that pushes an item with these fields after the others.
    pub(super) fn batch(&self, fields: ItemFields) -> NewBatchBody {
        NewBatchBody {
            then: Object(fields),
            deadline_ms: self.deadline.map(whole_millis),
            after: Some(self.after.iter().cloned().map(Object).collect()),
            missing: self.missing_ok.then_some(MissingWord::Ended),
        }
    }
}
