//! `kvqueue limits QUEUE held` and `kvqueue limits QUEUE unblock`.

use std::{
    ffi::{OsStr, OsString},
    num::NonZeroUsize,
    os::unix::ffi::OsStringExt,
};

use anyhow::bail;
use comfy_table::Table;
use kvqueue_queue::{HeldBy, HeldKey, ItemId};
use serde_json::{Map, Value};

use super::{empty_table, key_text, open};
use crate::{
    cli::{
        client::{Client, MAX_READ},
        globals::Globals,
        output, values,
    },
    exit::Exit,
    held_keys::{self, HeldPage},
};

/// Print the held keys: ordered keys that wait for an item that is tried again, or for a dead letter
#[derive(Debug, clap::Args)]
pub(super) struct Held {
    /// The most keys to list
    #[arg(short, default_value = "100", value_parser = values::items, allow_negative_numbers = true)]
    n: NonZeroUsize,
    /// Those behind the key of this item, as an earlier list printed it
    #[arg(long, value_name = "ID", value_parser = keyed_id)]
    after: Option<ItemId>,
}

/// Let a held key go on; the item that it waits for stays what it is
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Let a held key go on: its next ready item is served. A dead letter that it waited for stays a dead letter; an item that is tried again runs at its time, \
    perhaps after items that were pushed later. To keep the order, use `kvqueue dead retry` or `kvqueue dead purge` instead."
)]
pub(super) struct Unblock {
    /// The key
    key: OsString,
}

impl Held {
    pub(super) fn run(&self, queue: &OsStr, globals: &Globals) -> anyhow::Result<Exit> {
        let client = Client::open(globals)?;
        let queue = open(&client, queue)?;
        client.note_if_absent(&queue)?;
        client.check_kind(&queue)?;
        let (mut after, mut wanted, mut more) = (self.after.clone(), self.n.get(), true);
        let mut held = Vec::new();
        while more && let Some(limit) = NonZeroUsize::new(wanted.min(MAX_READ)) {
            let page = client.transact(|tr| async {
                let page = HeldPage::read(&queue, &tr, after.as_ref(), limit).await;
                (tr, page)
            })?;
            after = page.next().cloned();
            more = after.is_some();
            wanted -= page.keys.len();
            if globals.json {
                page.keys.iter().try_for_each(|it| output::line(true, b"", &held_keys::object(it)))?;
            } else {
                held.extend(page.keys);
            }
        }
        if !held.is_empty() {
            output::line(false, held_table(&held).to_string().as_bytes(), &Value::Null)?;
        }
        if let Some(last) = after {
            output::note(format_args!("there are more; see them with --after {last}"));
        }
        Ok(Exit::Done)
    }
}

impl Unblock {
    pub(super) fn run(&self, queue: &OsStr, globals: &Globals) -> anyhow::Result<Exit> {
        let client = Client::open(globals)?;
        let queue = &open(&client, queue)?;
        client.expect_there(queue)?;
        client.check_kind(queue)?;
        client.check_not_frozen(queue)?;
        let unblock = &held_keys::Unblock::new(self.key.clone().into_vec());
        let (audit, record) = client.record()?;
        let (audit, record) = (&audit, &unblock.audited(record.about(queue.name())));
        let was_held = client.transact(|tr| async move {
            let was_held = unblock.write(&tr, queue, audit, record).await;
            (tr, was_held)
        })?;
        let key = key_text(&unblock.key);
        if !was_held {
            bail!("key {key} of queue \"{}\" is not held", queue.name().escape_ascii());
        }
        let mut object = Map::new();
        output::insert_bytes(&mut object, "queue", queue.name());
        output::insert_bytes(&mut object, "key", &unblock.key);
        object.insert("unblocked".to_owned(), true.into());
        output::line(globals.json, format!("unblocked {key}").as_bytes(), &Value::Object(object))?;
        Ok(Exit::Done)
    }
}

/// Reads the id of an item that has a key.
fn keyed_id(text: &str) -> Result<ItemId, String> {
    let id: ItemId = text.parse().map_err(|error| format!("{error}"))?;
    id.key().is_some().then_some(id).ok_or_else(|| "this is not the id of an item with a key".to_owned())
}

fn held_table(held: &[HeldKey]) -> Table {
    let mut table = empty_table();
    table.set_header(["key", "waits for", "item"]);
    for it in held {
        let item = it.by.item();
        let waits_for = match it.by {
            HeldBy::Dead(_) => "a dead letter",
            _ => "an item that is tried again",
        };
        table.add_row([output::item_key(item), waits_for.to_owned(), item.to_string()]);
    }
    table
}
