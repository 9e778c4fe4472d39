//! `kvqueue item cancel`

use std::{
    ffi::OsString,
    os::unix::ffi::{OsStrExt, OsStringExt},
};

use anyhow::{anyhow, bail};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use kvqueue_queue::{CancelCounts, CancelFilter, Canceller, Counts, ItemId, ItemState, Queue, RetryPolicy};

use super::{
    super::{
        UsageError,
        client::Client,
        globals::Globals,
        output::{self, Named},
        progress::{Progress, Size},
        target::Target,
        values,
    },
    by_unique,
};
use crate::{audit::Action, database::NoAnswer, exit::Exit, refusal::Operation};

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
    let states = ItemState::ALL.into_iter().filter(|state| *state != ItemState::Dead);
    PossibleValuesParser::new(states.map(ItemState::as_str)).try_map(|text| text.parse::<ItemState>())
}

impl Args {
    fn is_of_some(&self) -> bool {
        !self.ids.is_empty() || self.unique.is_some()
    }

    pub(super) fn audited(&self) -> Action {
        if self.is_of_some() { Action::ItemCancel } else { Action::QueueCancel }
    }

    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        if !self.is_of_some() && !self.yes {
            let name = self.target.queue.display();
            let error = format!("this cancels items of queue {name:?} for good; repeat it with --yes");
            return Err(UsageError(error).into());
        }
        let client = Client::open(globals)?;
        let queue = self.target.find_there(&client)?;
        client.check_not_frozen(&queue)?;
        if self.is_of_some() { self.some(&client, &queue, globals) } else { self.many(&client, &queue, globals) }
    }

    /// Each item by itself: if one is refused, the others are cancelled all the same.
    fn some(&self, client: &Client, queue: &Queue, globals: &Globals) -> anyhow::Result<Exit> {
        let ids = match &self.unique {
            Some(key) => vec![by_unique(client, queue, key)?],
            None => self.ids.clone(),
        };
        client.store(|record| record.about(queue.name()).with_items(&ids))?;
        let (policy, operation) = (RetryPolicy::default(), Operation::Cancel);
        let mut named = Named::new("items", operation.past(), globals.json);
        for id in &ids {
            let change = client.ask_partly(queue.cancel_item(client.db(), &policy, id))?;
            let refusal = operation.result(&change).err();
            named.print(id, refusal.map(|refusal| format!("{}; {}", refusal.why, refusal.fix)).as_deref());
        }
        named.exit()
    }

    fn filter(&self) -> CancelFilter {
        CancelFilter {
            state: self.state,
            key: self.key.clone().map(OsString::into_vec),
            attribute: self.attribute.clone(),
        }
    }

    /// All that match.
    fn many(&self, client: &Client, queue: &Queue, globals: &Globals) -> anyhow::Result<Exit> {
        client.store(|record| {
            let mut record = record.about(queue.name());
            if let Some(key) = &self.key {
                record = record.with_name("key", key.as_bytes());
            }
            if let Some((name, value)) = &self.attribute {
                record = record.with("attribute", format!("{name}={value}"));
            }
            match self.state {
                Some(state) => record.with("state", state.as_str()),
                None => record,
            }
        })?;
        let counts = client.transact(|tr| async {
            let counts = queue.counts(&tr).await;
            (tr, counts)
        })?;
        let mut progress = Progress::new(globals, "cancelled", Size::Items(self.size(&counts)));
        let mut canceller = Canceller::new(queue.clone(), self.filter());
        let mut all = CancelCounts::default();
        let done = client.wait(pages(client, &mut canceller, &mut all, &mut progress));
        progress.finish();
        let text = format!("cancelled {}", output::items_of(all.cancelled));
        let mut object = output::about(queue.name(), "cancelled", all.cancelled);
        object["unreadable"] = all.unreadable.into();
        // Not an io::Error outside: the reader that closed the pipe does not know what was done.
        let printed = output::line(globals.json, text.as_bytes(), &object)
            .map_err(|error| anyhow!("{text}, which could not be printed: {error}"));
        done.map_err(|error| {
            let what = if error.is::<NoAnswer>() { "" } else { ", and then the database refused" };
            error.context(format!("{text}{what}; run it again for the rest"))
        })?;
        // The items are cancelled, even if this fails: sweepers clear the mark later.
        let _ = client.ask(canceller.close(client.db(), &RetryPolicy::default()));
        printed?;
        match all.unreadable {
            0 => Ok(Exit::Done),
            n => bail!("items not cancelled, since what is known of them cannot be read: {n}"),
        }
    }

    /// How many items may match at most.
    fn size(&self, counts: &Counts) -> u64 {
        let number = |n: i64| u64::try_from(n).unwrap_or(0);
        let Counts { ready, running, waiting, .. } = *counts;
        match self.state {
            Some(ItemState::Ready) => number(ready),
            Some(ItemState::Running) => running as u64,
            Some(_) => number(waiting),
            None => number(ready) + number(waiting) + running as u64,
        }
    }
}

async fn pages(
    client: &Client,
    canceller: &mut Canceller,
    all: &mut CancelCounts,
    progress: &mut Progress,
) -> anyhow::Result<()> {
    let policy = RetryPolicy::default();
    while let Some(page) = client.answer(canceller.page(client.db(), &policy)).await?? {
        all.cancelled += page.cancelled;
        // An item that cannot be read is found again in each round.
        all.unreadable = all.unreadable.max(page.unreadable);
        progress.done(all.cancelled as u64, 0);
    }
    Ok(())
}
