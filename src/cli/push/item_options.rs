//! Options that apply to each item of a push.

use std::{
    ffi::OsString,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use kvqueue_queue::{item_batch::BatchId, millis};

use crate::{
    base::times::whole_millis,
    cli::{
        UsageError, output,
        values::{self, When},
    },
    operations::push::ItemFields,
    telemetry,
};

const HEADING: &str = "What goes with each item";

/// The options that apply to each item.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ItemOptions {
    /// Not before this delay is over, as in 5s or "1h 30m"
    #[arg(long, help_heading = HEADING, value_name = "DURATION", allow_hyphen_values = true, value_parser = values::delay, conflicts_with = "at")]
    delay: Option<When>,
    /// Not before this time: RFC 3339, or seconds since 1970
    #[arg(long, help_heading = HEADING, value_name = "TIME", value_parser = values::at)]
    at: Option<When>,
    /// Expires if no attempt has begun within this time, as in 30s or 1h; without it, the queue's ttl in the configuration
    #[arg(long, help_heading = HEADING, value_name = "DURATION", value_parser = values::ttl)]
    ttl: Option<Duration>,
    /// Not if an item with this key waits, is delayed or is being handled; for a single item
    #[arg(long, help_heading = HEADING, value_name = "KEY")]
    unique: Option<OsString>,
    /// The unique key is taken for this time, as in 30s or 1h, whether or not its item has ended by then
    #[arg(long, help_heading = HEADING, value_name = "DURATION", value_parser = values::unique_for, requires = "unique")]
    unique_for: Option<Duration>,
    /// If the item with the unique key waits, it gets this payload and what goes with it; if it is being handled, a new item is pushed
    #[arg(long, help_heading = HEADING, requires = "unique", conflicts_with = "unique_for")]
    replace: bool,
    /// Make the items members of this batch; see `kvqueue batch`
    #[arg(long, help_heading = HEADING, value_name = "ID")]
    batch: Option<BatchId>,
    /// An attribute; repeat for more
    #[arg(long = "attr", help_heading = HEADING, value_name = "NAME=VALUE", value_parser = values::attribute)]
    attributes: Vec<(String, String)>,
    /// The payload's media type
    #[arg(long, help_heading = HEADING, value_name = "TYPE")]
    content_type: Option<String>,
    /// The W3C traceparent of what the item is for
    #[arg(long, help_heading = HEADING, value_name = "TRACEPARENT", value_parser = trace_parent)]
    trace_parent: Option<String>,
    /// The item's key, in a keyed queue
    #[arg(long, help_heading = HEADING, value_name = "KEY")]
    key: Option<OsString>,
    /// The item's priority, in a priority queue
    #[arg(long, help_heading = HEADING, value_name = "NUMBER", default_value_t = 0, allow_negative_numbers = true)]
    priority: i64,
}

impl ItemOptions {
    /// The time that `--at` names, if it is over.
    pub(super) fn past(&self, now: SystemTime) -> Option<String> {
        self.at.filter(|when| when.due(now).is_none()).map(|when| output::time(when.time(now)))
    }

    /// The fields of an item without a payload.
    ///
    /// # Errors
    /// Two attributes have the same name.
    pub(super) fn fields(self) -> Result<ItemFields, UsageError> {
        let delay_ms = self.delay.map(|delay| millis(delay.time(UNIX_EPOCH)));
        let (key, key_base64) = values::texts(self.key);
        let (unique, unique_base64) = values::texts(self.unique);
        Ok(ItemFields {
            attributes: values::attributes(self.attributes)?,
            content_type: self.content_type,
            trace_parent: self.trace_parent,
            unique,
            unique_base64,
            unique_for_ms: self.unique_for.map(whole_millis),
            replace: self.replace.then_some(true),
            delay_ms,
            at: self.at.map(|at| output::time(at.time(UNIX_EPOCH))),
            ttl_ms: self.ttl.map(whole_millis),
            priority: Some(self.priority).filter(|priority| *priority != 0),
            key,
            key_base64,
            batch: self.batch.map(|batch| batch.to_string()),
            ..ItemFields::default()
        })
    }
}

fn trace_parent(text: &str) -> Result<String, &'static str> {
    if telemetry::is_trace_parent(text) { Ok(text.to_owned()) } else { Err(telemetry::NO_TRACE_PARENT) }
}
