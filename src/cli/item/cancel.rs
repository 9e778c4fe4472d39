//! `kvqueue item cancel`

use std::{ffi::OsString, os::unix::ffi::OsStringExt};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use kvqueue_queue::{ItemId, ItemState};

use super::super::{UsageError, globals::Globals, operation, target::Target, values};
use crate::{
    base::exit::Exit,
    operations::{
        items::{Attribute, CancelItem, CancelItems},
        names::KeyName,
        states::cancelled_at_once,
    },
};

/// Cancel items: they end without being finished, and leave no dead letter
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Cancel items: ready, scheduled, retrying or running ones. They end without being finished, and leave no dead letter; their unique \
    keys are free. The handler of a running item is stopped within a second, and nothing that it writes with an exactly-once delivery is \
    stored. A dead letter stays: purge it.\n\n\
    Items are named by their ids or by a unique key, or all are meant that have a key, an attribute or a state; several of these \
    narrow it down. What is pushed meanwhile stays. It works in pages: if it is stopped, run it again, and it goes on."
)]
#[command(override_usage = "kvqueue item cancel [OPTIONS] <QUEUE> <ID>...\n       \
    kvqueue item cancel [OPTIONS] <QUEUE> --unique <KEY>\n       \
    kvqueue item cancel [OPTIONS] --yes <QUEUE> [--key <KEY>] [--attribute <NAME=VALUE>] [--state <STATE>]\n       \
    kvqueue item cancel [OPTIONS] --yes <QUEUE> --all")]
#[group(id = "which", required = true, multiple = true, args = ["ids", "unique", "key", "attribute", "state", "all"])]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    target: Target,
    /// The items
    #[arg(value_name = "ID", conflicts_with_all = ["unique", "key", "attribute", "state", "all"])]
    ids: Vec<ItemId>,
    /// The item that has this unique key
    #[arg(long, value_name = "KEY", conflicts_with_all = ["key", "attribute", "state", "all"])]
    unique: Option<OsString>,
    /// All items of this key, in a keyed queue
    #[arg(long, value_name = "KEY", conflicts_with = "all")]
    key: Option<OsString>,
    /// All items with this attribute
    #[arg(long, value_name = "NAME=VALUE", value_parser = values::attribute, conflicts_with = "all")]
    attribute: Option<(String, String)>,
    /// All items of this state
    #[arg(long, value_parser = states(), conflicts_with = "all")]
    state: Option<ItemState>,
    /// All items of the queue but dead letters
    #[arg(long)]
    all: bool,
    /// Yes, cancel all of these
    #[arg(long)]
    yes: bool,
}

fn states() -> impl TypedValueParser<Value = ItemState> {
    PossibleValuesParser::new(cancelled_at_once().map(ItemState::as_str))
        .try_map(|text| text.parse::<ItemState>())
}

impl Args {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let target = self.target.of_operation();
        if !self.ids.is_empty() || self.unique.is_some() {
            let which = (&target, &*self.ids, self.unique.as_deref());
            return operation::run_each(which, ("items", "cancelled"), |item| CancelItem { item }, globals);
        }
        let confirm = self.target.queue.to_string_lossy().into_owned();
        if !self.yes {
            let error = format!("this cancels items of queue {confirm:?} for good; repeat it with --yes");
            return Err(UsageError(error).into());
        }
        let key = self.key.clone().map(|key| KeyName(key.into_vec()));
        let state = self.state.map(|state| state.to_string());
        let attribute = self.attribute.clone().map(|(name, value)| Attribute { name, value });
        operation::run(CancelItems { target, confirm, state, key, attribute }, globals)
    }
}
