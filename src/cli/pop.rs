//! `kvqueue pop`

use std::num::NonZeroUsize;

use anyhow::{Context, anyhow};
use kvqueue_queue::{Item, Session};

use super::{
    client::{Client, MAX_READ},
    globals::Globals,
    output,
    target::Target,
    values,
};
use crate::base::exit::Exit;

/// Take the first items out of a queue and print them
#[derive(Debug, clap::Args)]
#[command(long_about = "Take the first items out of a queue and print them.\n\n\
    Prints each payload and a newline, with --json an object each. An empty queue gives nothing, and is no error; \
    stderr says \"nothing to pop\". \
    Items are popped at most once: they are gone when they are printed, and a reader that dies has lost them; run a \
    daemon with a handler where that matters. More than 250 items are taken in groups, each in a transaction of its own.")]
pub(super) struct Args {
    #[command(flatten)]
    target: Target,
    /// The most items to pop
    #[arg(short, default_value = "1", value_parser = values::items, allow_negative_numbers = true)]
    k: NonZeroUsize,
}

impl Args {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let client = Client::open(globals)?;
        let queue = self.target.find(&client)?;
        client.check_not_frozen(&queue)?;
        let mut session = Session::new(queue);
        let popped = self.pop(&client, &mut session, globals.json);
        let is_empty = matches!(popped, Ok(0));
        let closed = client.ask(session.close(client.db()));
        if let Ok(left) = &closed {
            // A take whose outcome stayed unknown may have removed these.
            print(globals.json, left)?;
        }
        popped?;
        if is_empty && !globals.quiet && closed.as_ref().is_ok_and(Vec::is_empty) {
            output::note(format_args!("nothing to pop"));
        }
        closed.context("items popped, but the session is not closed; a later sweep removes its token")?;
        Ok(Exit::Done)
    }

    /// Returns how many items it has printed.
    fn pop(&self, client: &Client, session: &mut Session, json: bool) -> anyhow::Result<usize> {
        let mut wanted = self.k.get();
        while let Some(k) = NonZeroUsize::new(wanted.min(MAX_READ)) {
            let taken = client.ask(session.take(client.db(), k))?;
            if taken.got.is_empty() {
                break;
            }
            print(json, &taken.got)?;
            wanted -= taken.got.len();
        }
        Ok(self.k.get() - wanted)
    }
}

fn print(json: bool, items: &[Item]) -> anyhow::Result<()> {
    // Not an io::Error outside: that a closed pipe took items with it is worth a message.
    output::items(json, items).map_err(|error| {
        anyhow!("popped {}, which could not all be printed: {error}", output::items_of(items.len()))
    })
}
