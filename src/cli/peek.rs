//! `kvqueue peek`

use std::num::NonZeroUsize;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use comfy_table::{ContentArrangement, Table, presets::UTF8_FULL_CONDENSED};
use kvqueue_queue::{Cursor, Item, ItemId, ItemPage, ItemState, ItemView, LeaseView, Meta, Queue};

use super::{
    UsageError,
    client::{Client, MAX_READ},
    globals::Globals,
    holders::Holders,
    output,
    target::Target,
    values,
};
use crate::{
    exit::Exit,
    json::{self, enqueued_at, last_failure},
};

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
    #[arg(short, value_parser = values::items, allow_negative_numbers = true)]
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
        let mut holders = None;
        while more && let Some(k) = NonZeroUsize::new(wanted.min(MAX_READ)) {
            let behind = after.as_ref();
            let page: ItemPage = client.transact(|tr| async {
                let page = queue.view(&tr, state, behind, k).await;
                (tr, page)
            })?;
            wanted -= page.items.len();
            unreadable += page.unreadable;
            for view in &page.items {
                let holders = match view.lease {
                    Some(_) => {
                        holders.get_or_insert_with(|| Holders::ask(globals, client, &self.target.queue))
                    }
                    None => &Holders::default(),
                };
                if globals.json {
                    let mut object = json::view_with_limit(view, limit);
                    holders.insert(view.lease.as_ref(), &mut object);
                    output::line(true, b"", &object)?;
                } else {
                    // A table needs no more than the beginning of each payload.
                    rows.push(Row::of(view, limit, holders));
                }
            }
            more = page.next.is_some();
            after = page.next.or(after);
        }
        if !rows.is_empty() {
            output::line(false, table(state, &rows).as_bytes(), &serde_json::Value::Null)?;
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
    while let Some(k) = NonZeroUsize::new(wanted.min(MAX_READ)) {
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

/// The most characters of a payload, and of a reason.
const MOST: usize = 60;

/// An item's row.
struct Row {
    id: String,
    /// Its key, if it is in a keyed queue.
    key: Option<String>,
    /// A text for each further column.
    cells: Vec<String>,
}

/// The table of these items.
fn table(state: ItemState, rows: &[Row]) -> String {
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
    let keyed = rows.iter().any(|row| row.key.is_some());
    table.set_header(["id"].into_iter().chain(keyed.then_some("key")).chain(heads(state).iter().copied()));
    for Row { id, key, cells } in rows {
        table.add_row([id].into_iter().chain(key).chain(cells));
    }
    table.to_string()
}

/// The columns behind the id and the key.
fn heads(state: ItemState) -> &'static [&'static str] {
    match state {
        ItemState::Ready => &["pushed", "attempt", "payload"],
        ItemState::Scheduled => &["due", "pushed", "payload"],
        ItemState::Retrying => &["due", "attempts", "last reason", "payload"],
        ItemState::Running => &["attempt", "worker", "lease", "payload"],
        ItemState::Dead => &["died", "attempts", "reason", "payload"],
    }
}

impl Row {
    /// `limit`: how many attempts an item of the queue has, if that is known.
    fn of(view: &ItemView, limit: Option<u32>, holders: &Holders) -> Self {
        let item = view.item.as_ref().ok();
        let meta = item.and_then(|item| item.meta.as_deref());
        let text = |text: Option<String>| text.unwrap_or_default();
        let due = || text(view.due.map(output::time));
        let pushed = || text(enqueued_at(view).map(output::time));
        let attempt = || text(item.map(|item| of_limit(item.attempt, limit)));
        let spent = || of_limit(view.attempts(), limit);
        let reason = || text(meta.and_then(last_failure).map(|last| output::one_line(&last.reason, MOST)));
        let died = |meta: &Meta| meta.death.as_ref().map(|death| output::time(death.at));
        let died = || text(meta.and_then(died));
        let payload = match &view.item {
            Ok(item) => beginning(item),
            Err(why) => format!("cannot be read: {why}"),
        };
        let cells = match view.state {
            ItemState::Ready => vec![pushed(), attempt()],
            ItemState::Scheduled => vec![due(), pushed()],
            ItemState::Retrying => vec![due(), spent(), reason()],
            ItemState::Running => {
                vec![
                    attempt(),
                    text(view.lease.map(|lease| holders.of(&lease))),
                    text(view.lease.map(|it| lease(&it))),
                ]
            }
            ItemState::Dead => vec![died(), spent(), reason()],
        };
        let key = view.id.key().map(|_| output::item_key(&view.id));
        Self { id: view.id.to_string(), key, cells: [cells, vec![payload]].concat() }
    }
}

fn of_limit(attempts: u32, limit: Option<u32>) -> String {
    limit.map_or_else(|| attempts.to_string(), |limit| format!("{attempts} of {limit}"))
}

fn lease(lease: &LeaseView) -> String {
    let extended = lease.extended.as_secs();
    match lease.left {
        Some(left) => format!("extended {extended} s ago, {} s left", left.as_secs()),
        None => format!("expired, extended {extended} s ago"),
    }
}

fn beginning(item: &Item) -> String {
    // A character has up to four bytes.
    let part = &item.payload[..item.payload.len().min(4 * MOST)];
    output::one_line(&String::from_utf8_lossy(part), MOST)
}
