//! `kvqueue peek`

mod table;

use std::num::NonZeroUsize;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use kvqueue_queue::{Cursor, ItemId, ItemPage, ItemState, Queue};

use self::table::Row;
use super::{UsageError, client::Client, globals::Globals, number, output, target::Target};
use crate::{exit::Exit, json};

/// The most items of one transaction. More could be too much to read within its five seconds.
const GROUP: usize = 250;

/// How many items are printed of a state, unless the command says it.
const OF_A_STATE: NonZeroUsize = NonZeroUsize::new(100).expect("100 is not 0");

/// Print items of a queue and leave them in it
#[derive(Debug, clap::Args)]
#[command(long_about = "Print items of a queue and leave them in it.\n\n\
    Without --state, the payloads of the first ready items are printed, as `kvqueue pop` would print them. With it, a table shows the items \
    of that state:\n\n\
    ready      they can be fetched, in this order\n\
    scheduled  they were pushed for a later time\n\
    retrying   an attempt failed, and the next one is due at a later time\n\
    running    a worker has fetched them: they are on a lease\n\
    dead       dead letters: nobody tries them any more\n\n\
    With --json, each line has all that is known of an item, and its whole payload.")]
pub(super) struct Args {
    #[command(flatten)]
    target: Target,
    /// Show the items of this state, with what is known of them
    #[arg(long, value_parser = states())]
    state: Option<ItemState>,
    /// Number of items to print at most [default: 1; 100 with --state]
    #[arg(short, value_parser = number::items, allow_negative_numbers = true)]
    k: Option<NonZeroUsize>,
    /// Begin behind this place, which an earlier command named
    #[arg(long, value_name = "PLACE", requires = "state")]
    after: Option<String>,
}

fn states() -> impl TypedValueParser<Value = ItemState> {
    PossibleValuesParser::new(ItemState::ALL.map(ItemState::as_str)).try_map(|text| text.parse::<ItemState>())
}

impl Args {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let client = Client::open(globals)?;
        let queue = self.target.find(&client)?;
        match self.state {
            Some(state) => self.of_state(globals, &client, &queue, state),
            None => payloads(globals, &client, &queue, self.k.unwrap_or(NonZeroUsize::MIN)),
        }
    }

    fn of_state(
        &self,
        globals: &Globals,
        client: &Client,
        queue: &Queue,
        state: ItemState,
    ) -> anyhow::Result<Exit> {
        let parse = |text: &String| Cursor::parse(state, text).map_err(|error| UsageError(error.to_string()));
        let (mut after, mut wanted) =
            (self.after.as_ref().map(parse).transpose()?, self.k.unwrap_or(OF_A_STATE).get());
        let limit = self.target.max_attempts(client);
        let (mut rows, mut unreadable, mut more) = (Vec::new(), 0, true);
        while more && let Some(k) = NonZeroUsize::new(wanted.min(GROUP)) {
            let behind = after.as_ref();
            let page: ItemPage = client.transact(|tr| async {
                let page = queue.view(&tr, state, behind, k).await;
                (tr, page)
            })?;
            wanted -= page.items.len();
            unreadable += page.unreadable;
            for view in &page.items {
                match globals.json {
                    true => output::line(true, b"", &json::view_with_limit(view, limit))?,
                    // A table needs no more than the beginning of each payload.
                    false => rows.push(Row::of(view, limit)),
                }
            }
            more = page.next.is_some();
            after = page.next.or(after);
        }
        if !rows.is_empty() {
            output::line(false, table::of(state, &rows).as_bytes(), &serde_json::Value::Null)?;
        }
        if unreadable > 0 {
            output::note(format_args!(
                "kvqueue: leases that cannot be read: {unreadable}; `kvqueue doctor` checks the database"
            ));
        }
        if let Some(place) = after.filter(|_| more) {
            output::note(format_args!("there are more; see them with --after {place}"));
        }
        Ok(Exit::Done)
    }
}

/// Prints the payloads of the first ready items.
fn payloads(globals: &Globals, client: &Client, queue: &Queue, k: NonZeroUsize) -> anyhow::Result<Exit> {
    let (mut wanted, mut after) = (k.get(), None);
    while let Some(k) = NonZeroUsize::new(wanted.min(GROUP)) {
        let behind: Option<&ItemId> = after.as_ref();
        let items = client.transact(|tr| async {
            let items = queue.peek_after(&tr, behind, k).await;
            (tr, items)
        })?;
        let Some(last) = items.last() else { break };
        after = Some(last.id.clone());
        wanted -= items.len();
        output::items(globals.json, &items)?;
    }
    Ok(Exit::Done)
}
