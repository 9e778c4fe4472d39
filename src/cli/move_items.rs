//! `kvqueue move`

use std::num::NonZeroUsize;

use anyhow::{Context, anyhow, bail};
use kvqueue_queue::{Counts, Movable, MoveCounts, Mover, Queue, RetryPolicy};
use serde_json::{Map, Value};

use super::{
    UsageError,
    client::Client,
    globals::Globals,
    output,
    progress::{Progress, Size},
    target::{Destination, Target},
    values,
};
use crate::{database::NoAnswer, exit::Exit};

/// Move items to another queue of the same database
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Move items to another queue of the same database, in the order in which they would be taken. At every moment an item is in \
    one of the two, also if this is killed: repeat it then, and it goes on.\n\n\
    An item gets a new id and a place behind the others there; payload, attributes, attempts and failures go with it. One whose unique key \
    another item has there stays, and the exit code is 1. Waiting and running items stay where they are, and so does what is pushed \
    meanwhile."
)]
#[command(override_usage = "kvqueue move [OPTIONS] <QUEUE> <TO> <-n <N>|--all>")]
#[group(id = "many", required = true, multiple = false)]
pub(super) struct Args {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    destination: Destination,
    /// The most items to move
    #[arg(short, group = "many", value_parser = values::items, allow_negative_numbers = true)]
    n: Option<NonZeroUsize>,
    /// All that are there now
    #[arg(long, group = "many")]
    all: bool,
    /// Dead letters, not ready items; they become ready there, with all their attempts before them
    #[arg(long)]
    dead: bool,
}

impl Args {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let client = Client::open(globals)?;
        let (from, to) = (self.target.find_there(&client)?, self.destination.open(&client)?);
        client.check_not_frozen(&from)?;
        client.check_not_frozen(&to)?;
        let from = if self.all { from.in_order_for(&to) } else { from };
        let what = if self.dead { Movable::Dead } else { Movable::Ready };
        let mut mover =
            Mover::new(from.clone(), to.clone(), what).map_err(|error| UsageError(error.to_string()))?;
        client.store(|record| {
            record.about(from.name()).with_move(to.name(), self.n.map(NonZeroUsize::get), self.dead)
        })?;
        let counts = client.transact(|tr| async {
            let counts = from.counts(&tr).await;
            (tr, counts)
        })?;
        let mut progress = Progress::new(globals, "moved", Size::Items(self.size(&counts)));
        let mut moved = MoveCounts::default();
        let done = client.wait(self.pages(&client, &mut mover, &mut moved, &mut progress));
        progress.finish();
        let text = format!("moved {} to {}", output::items_of(moved.moved), self.destination.to.display());
        let left = if self.all && done.is_ok() { left(&client, &from)? } else { String::new() };
        let text = text + &left;
        // Not an io::Error outside: the reader that closed the pipe does not know what was moved.
        let printed = output::line(globals.json, text.as_bytes(), &object(&moved, &from, &to))
            .map_err(|error| anyhow!("{text}, which could not be printed: {error}"));
        done.map_err(|error| {
            let what = if error.is::<NoAnswer>() { "" } else { ", and then the database refused" };
            error.context(format!("moved {}{what}", output::items_of(moved.moved)))
        })?;
        client.ask(mover.close(client.db(), &RetryPolicy::default())).context("moved, but a mark is left")?;
        printed?;
        self.exit(&moved)
    }

    /// How many there are to move.
    fn size(&self, counts: &Counts) -> u64 {
        let there = u64::try_from(if self.dead { counts.dead } else { counts.ready }).unwrap_or(0);
        self.n.map_or(there, |n| there.min(n.get() as u64))
    }

    async fn pages(
        &self,
        client: &Client,
        mover: &mut Mover,
        moved: &mut MoveCounts,
        progress: &mut Progress,
    ) -> anyhow::Result<()> {
        let policy = RetryPolicy::default();
        loop {
            let left = self.n.map_or(usize::MAX, |n| n.get().saturating_sub(moved.moved));
            let Some(limit) = NonZeroUsize::new(left) else {
                return Ok(());
            };
            let Some(page) = client.answer(mover.page(client.db(), &policy, limit)).await?? else {
                return Ok(());
            };
            add(moved, page);
            progress.done(moved.moved as u64, 0);
        }
    }

    fn exit(&self, counts: &MoveCounts) -> anyhow::Result<Exit> {
        let to = self.destination.to.display();
        match (counts.refused, counts.unreadable) {
            (0, 0) => Ok(Exit::Done),
            (refused, 0) => {
                bail!("items not moved, since others have their unique keys in queue {to}: {refused}")
            }
            (0, unreadable) => {
                bail!("dead letters not moved, since what is known of them cannot be read: {unreadable}")
            }
            (refused, unreadable) => bail!(
                "items not moved: {refused}, since others have their unique keys in queue {to}; and {unreadable}, since what is known of \
                 them cannot be read"
            ),
        }
    }
}

/// The items that stay in a queue after all were to be moved.
fn left(client: &Client, from: &Queue) -> anyhow::Result<String> {
    let Counts { ready, running, waiting, dead, .. } = client.transact(|tr| async {
        let counts = from.counts(&tr).await;
        (tr, counts)
    })?;
    let running = i64::try_from(running).unwrap_or(i64::MAX);
    let states = [(ready, "ready"), (waiting, "waiting"), (running, "running"), (dead, "dead")];
    let there: Vec<_> = states
        .iter()
        .filter(|(items, _)| *items > 0)
        .map(|(items, state)| format!("{items} {state}"))
        .collect();
    Ok(if there.is_empty() { String::new() } else { format!("; left: {}", there.join(", ")) })
}

fn add(counts: &mut MoveCounts, page: MoveCounts) {
    counts.moved += page.moved;
    counts.refused += page.refused;
    counts.unreadable += page.unreadable;
}

fn object(counts: &MoveCounts, from: &Queue, to: &Queue) -> Value {
    let mut object = Map::new();
    output::insert_bytes(&mut object, "queue", from.name());
    output::insert_bytes(&mut object, "to", to.name());
    object.insert("moved".to_owned(), counts.moved.into());
    object.insert("refused".to_owned(), counts.refused.into());
    object.insert("unreadable".to_owned(), counts.unreadable.into());
    Value::Object(object)
}
