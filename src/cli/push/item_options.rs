//! Options that apply to each item of a push.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    os::unix::ffi::OsStringExt,
    time::Duration,
};

use kvqueue_queue::{IfTaken, Millis, NewItem, from_millis, item_batch::BatchId};

use crate::{
    cli::{
        UsageError, output,
        values::{self, When},
    },
    telemetry,
};

const HEADING: &str = "What goes with each item";

/// The options that apply to each item.
#[derive(Debug, clap::Args)]
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
    pub(super) fn is_unique(&self) -> bool {
        self.unique.is_some()
    }

    pub(super) fn is_delayed(&self) -> bool {
        self.delay.or(self.at).is_some()
    }

    /// An error if two attributes have the same name.
    pub(super) fn check(&self) -> Result<(), UsageError> {
        let mut names = BTreeSet::new();
        match self.attributes.iter().find(|(name, _)| !names.insert(name)) {
            Some((name, _)) => Err(UsageError(format!(
                "--attr {name}=... is given twice; an item has one value of each attribute"
            ))),
            None => Ok(()),
        }
    }

    /// The time that `--at` names, if it is over.
    pub(super) fn past(&self, now: Millis) -> Option<String> {
        self.at.filter(|when| when.due(now).is_none()).map(|when| output::time(when.time(now)))
    }

    /// An item without a payload that has all this, made at `now`. `ttl` is the queue's.
    pub(super) fn template(self, now: Millis, ttl: Option<Duration>) -> NewItem {
        let attributes: BTreeMap<String, String> = self.attributes.into_iter().collect();
        let (content_type, trace_parent) = (self.content_type, self.trace_parent);
        let when = self.delay.or(self.at);
        let ttl = self.ttl.or(ttl);
        let unique = self.unique.map(OsString::into_vec);
        // An item without options needs no record, and so has no time of its push.
        let says = !attributes.is_empty()
            || content_type.is_some()
            || trace_parent.is_some()
            || unique.is_some()
            || self.batch.is_some()
            || when.is_some()
            || ttl.is_some();
        let mut item = NewItem::new("");
        item.attributes = attributes;
        item.content_type = content_type;
        item.trace_parent = trace_parent;
        item.enqueued_at = says.then(|| from_millis(now));
        item.unique = unique;
        item.unique_until = self.unique_for.and_then(|time| from_millis(now).checked_add(time));
        item.if_taken = if self.replace { IfTaken::Replace } else { IfTaken::Skip };
        item.batch = self.batch;
        item.due = when.and_then(|when| when.due(now)).map(from_millis);
        item.expires = ttl.and_then(|ttl| from_millis(now).checked_add(ttl));
        item.priority = self.priority;
        item.key = self.key.map(OsString::into_vec);
        item
    }
}

fn trace_parent(text: &str) -> Result<String, &'static str> {
    if telemetry::is_trace_parent(text) { Ok(text.to_owned()) } else { Err(telemetry::NO_TRACE_PARENT) }
}
