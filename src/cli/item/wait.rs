//! `kvqueue item wait`

use std::time::Duration;

use anyhow::{Context, bail};
use kvqueue_queue::{ItemId, ItemPlace, Queue, RetryPolicy, retry};
use tokio::time::{Instant, timeout_at};

use super::{
    super::{client::Client, globals::Globals},
    One,
    show::{State, gone},
};
use crate::{config::duration, exit::Exit, item_wait::ItemWait};

/// The longest time that can be added to a clock without an overflow.
const FOR_EVER: Duration = Duration::from_hours(24 * 365);

/// Wait until an item has ended, or is a dead letter, and print what is known of it
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Wait until an item has ended, or is a dead letter, and print what is known of it, as `item show` does.\n\n\
    How it ended is known if the queue keeps a history, or if it is a dead letter.",
    override_usage = "kvqueue item wait [OPTIONS] <QUEUE> <ID>\n       \
    kvqueue item wait [OPTIONS] <QUEUE> --unique <KEY>",
    after_help = "Exit codes: 0 if the item has ended or is a dead letter, 75 if it has done neither within the time of --for.\n\n\
    Examples:\n  \
    kvqueue item wait emails ID --for 30s\n  \
    kvqueue item wait emails --unique invoice-17 --json"
)]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    one: One,
    /// How long to wait, as in 30s; then print the item as it is and end with 75. Without it: until the item has ended
    #[arg(long = "for", value_name = "TIME", value_parser = duration::parse)]
    limit: Option<Duration>,
}

impl Args {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let client = Client::open(globals)?;
        let until = Instant::now() + self.limit.unwrap_or(FOR_EVER).min(FOR_EVER);
        let queue = self.one.target.find_there(&client)?;
        let id = self.one.id(&client, &queue)?;
        let mut item_wait = ItemWait::default();
        loop {
            let is_over = wait(&client, (&queue, &id), &mut item_wait, until)?;
            let state = match State::read(globals, &client, &self.one.target, &queue, &id)? {
                Some(state) => state,
                None if item_wait.has_seen() => State::left(&id),
                None => bail!(gone(&self.one.target, &id)),
            };
            // A dead letter may have been retried meanwhile.
            if state.has_ended || is_over {
                let exit = state.print(globals)?;
                return Ok(if state.has_ended { exit } else { Exit::Nothing });
            }
        }
    }
}

/// Waits until the item has ended. Returns whether the time is over.
fn wait(
    client: &Client,
    (queue, id): (&Queue, &ItemId),
    item_wait: &mut ItemWait,
    until: Instant,
) -> anyhow::Result<bool> {
    let policy = RetryPolicy::default();
    let look = async |place: Option<ItemPlace>| {
        let look = retry::run(client.db(), &policy, |tr| async move {
            let found = queue.watch_item(&tr, id, place).await;
            (tr, found)
        });
        let found = client.answer(look).await?.context("the database refused")?;
        anyhow::Ok(found.value)
    };
    match client.wait(async { timeout_at(until, item_wait.ended(look)).await }) {
        Ok(ended) => ended.map(|()| false),
        Err(_) => Ok(true),
    }
}
