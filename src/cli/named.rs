//! The results for items that were named by their ids: a line for each.

use std::{io, mem};

use anyhow::{anyhow, bail};
use kvqueue_queue::ItemId;
use serde_json::json;

use super::output;
use crate::exit::Exit;

/// Tells of one item after the other. One that could not be printed keeps no others from being decided about.
pub(super) struct Named {
    /// The plural noun, such as "items".
    what: &'static str,
    /// The participle, as in "ID is not requeued".
    done: &'static str,
    json: bool,
    all: usize,
    left: usize,
    told: io::Result<()>,
}

impl Named {
    pub(super) fn new(what: &'static str, done: &'static str, json: bool) -> Self {
        Self { what, done, json, all: 0, left: 0, told: Ok(()) }
    }

    /// Tells of an item; `why` it was not done, if it was not.
    pub(super) fn tell(&mut self, id: &ItemId, why: Option<&str>) {
        self.all += 1;
        self.left += usize::from(why.is_some());
        let mut object = json!({ "id": id.to_string(), self.done: why.is_none() });
        if let Some(why) = why {
            object["why"] = why.into();
            if !self.json {
                output::note(format_args!("kvqueue: {id} is not {}: {why}", self.done));
                return;
            }
        }
        let line = output::line(self.json, format!("{} {id}", self.done).as_bytes(), &object);
        self.told = mem::replace(&mut self.told, Ok(())).and(line);
    }

    pub(super) fn exit(self) -> anyhow::Result<Exit> {
        let Self { what, done, all, left, .. } = self;
        if left > 0 {
            bail!("{what} not {done}: {left} of {all}");
        }
        // Not an io::Error outside: the reader that closed the pipe does not know what was done.
        let items = output::items_of(all);
        self.told
            .map(|()| Exit::Done)
            .map_err(|error| anyhow!("{done} {items}, which could not be printed: {error}"))
    }
}
