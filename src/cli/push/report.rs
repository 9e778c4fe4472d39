//! What a push reports: the acknowledged items on stdout, refused items on stderr.

use std::iter;

use kvqueue_queue::{ItemId, PushEffect};
use serde_json::{Value, json};

use crate::{
    base::exit::Exit,
    cli::output::{self, note},
};

/// The most ids that are printed.
const MAX_IDS: usize = 10_000;

/// As many ids are printed in any case.
const FEW_IDS: usize = 20;

/// What was pushed, in numbers, and the first ids.
#[derive(Debug, Default)]
pub(super) struct PushCounts {
    /// Items that are stored by this command.
    pub(super) acknowledged: u64,
    /// Items that were not pushed since one of their unique key was there.
    duplicates: u64,
    /// Items that replaced one that waited.
    replaced: u64,
    /// The number of items that an earlier push with the same idempotency key added, if there was one.
    repeated: Option<usize>,
    /// The first ids, of duplicates too.
    ids: Vec<ItemId>,
}

impl PushCounts {
    /// Counts the items of a push. `repeated`: a push with the same idempotency key had added them before.
    pub(super) fn add(&mut self, repeated: bool, items: impl Iterator<Item = (PushEffect, Option<ItemId>)>) {
        let mut before = 0;
        for (effect, id) in items {
            match effect {
                PushEffect::Added => self.acknowledged += 1,
                PushEffect::Duplicate => self.duplicates += 1,
                PushEffect::Replaced => self.replaced += 1,
                PushEffect::Repeated => before += 1,
            }
            if self.ids.len() < MAX_IDS {
                self.ids.extend(id);
            }
        }
        if repeated {
            self.repeated = Some(before);
        }
    }

    /// For people: the sum, and the ids if they are few. A single one stands in the same line, and each of several in one of its own.
    pub(super) fn text(&self) -> String {
        let ids = self.ids.iter().map(ItemId::to_string);
        match self.ids.len() {
            1 => format!("{}: {}", self.sum(), self.ids[0]),
            2..=FEW_IDS => iter::once(self.sum()).chain(ids).collect::<Vec<_>>().join("\n"),
            _ => self.sum(),
        }
    }

    /// The numbers alone.
    pub(super) fn sum(&self) -> String {
        let mut text = format!("pushed {}", output::items_of(self.acknowledged));
        if self.duplicates > 0 {
            text += &format!("; {} not pushed: an item with this key is there", self.duplicates);
        }
        if self.replaced > 0 {
            text += &format!("; replaced {}", output::items_of(self.replaced));
        }
        if let Some(items) = self.repeated {
            text += &format!("; a push with this key was done before, with {}", output::items_of(items));
        }
        text
    }

    /// For programs. `ids`: whether to print ids; few are always printed.
    pub(super) fn object(&self, queue: &[u8], refused: u64, ids: bool) -> Value {
        let mut object = output::about(queue, "acknowledged", self.acknowledged);
        object["duplicates"] = self.duplicates.into();
        if self.replaced > 0 {
            object["replaced"] = self.replaced.into();
        }
        object["refused"] = refused.into();
        object["repeated"] = self.repeated.is_some().into();
        if let Some(items) = self.repeated {
            object["acknowledged_before"] = items.into();
        }
        if ids || (1..=FEW_IDS).contains(&self.ids.len()) {
            object["ids"] = json!(self.ids.iter().map(ItemId::to_string).collect::<Vec<_>>());
        }
        object
    }
}

/// The most that are named one by one.
const NAMED: u64 = 20;

/// Counts refused items, and says which they are.
#[derive(Debug)]
pub(super) struct Refusals {
    /// The longest item in bytes.
    limit: usize,
    count: u64,
}

impl Refusals {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, count: 0 }
    }

    /// Refuses an item.
    pub(super) fn refuse(&mut self, what: &str, bytes: u64) {
        self.count += 1;
        if self.count <= NAMED {
            let limit = self.limit;
            note(format_args!("kvqueue: {what} not pushed: it has {bytes} bytes, an item at most {limit}"));
        }
    }

    /// Counts an item that a daemon has refused: its queue has a limit of its own.
    pub(super) fn refuse_by_daemon(&mut self, bytes: usize) {
        self.count += 1;
        if self.count <= NAMED {
            note(format_args!(
                "kvqueue: an item of {bytes} bytes not pushed: the queue has a lower max-payload, or the daemon a lower http.max-body"
            ));
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Sums up; the exit code of a push that otherwise went well.
    pub(super) fn exit(&self, rest: &str) -> Exit {
        if self.count == 0 {
            return Exit::Done;
        }
        note(format_args!("kvqueue: items refused: {}; {rest}", self.count));
        Exit::Data
    }
}
