//! `kvqueue dead`: looks at dead letters, and purges them.

use std::num::NonZeroUsize;

use anyhow::bail;
use comfy_table::{ContentArrangement, Table, presets::UTF8_FULL_CONDENSED};
use kvqueue_queue::{DeadLetter, ItemId, Queue};

use super::{
    UsageError,
    client::{Client, MAX_READ},
    globals::Globals,
    item_text,
    operation::{self, Place},
    output::{self, time},
    target::Target,
    values,
};
use crate::{
    exit::Exit,
    json::letter as letter_object,
    operations::{
        Operation,
        items::{ItemTarget, PurgeLetter, PurgeLetters},
    },
};

/// Look at dead letters, the items that are not tried any more, and purge them; `kvqueue requeue` tries them again
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    List(List),
    Show(Show),
    Purge(Purge),
}

impl Command {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        match self {
            Self::List(args) => args.run(globals),
            Self::Show(args) => args.run(globals),
            Self::Purge(args) => args.run(globals),
        }
    }
}

/// The most characters of a reason in the table. `dead show` has all of it.
const REASON: usize = 200;

/// Print the dead letters of a queue, without their payloads
#[derive(Debug, clap::Args)]
pub(super) struct List {
    #[command(flatten)]
    target: Target,
    /// The most letters to list
    #[arg(short, default_value = "100", value_parser = values::items, allow_negative_numbers = true)]
    n: NonZeroUsize,
    /// Those behind the letter of this id, as an earlier list printed it
    #[arg(long, value_name = "ID")]
    after: Option<ItemId>,
}

impl List {
    fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let client = Client::open(globals)?;
        let queue = self.target.find(&client)?;
        let (mut after, mut wanted, mut more) = (self.after.clone(), self.n.get(), true);
        let mut letters = Vec::new();
        while more && wanted > 0 {
            let group = wanted.min(MAX_READ);
            // One more than wanted tells whether there are more.
            let limit = NonZeroUsize::MIN.saturating_add(group);
            let mut page = client.transact(|tr| async {
                let page = queue.dead_list(&tr, after.as_ref(), limit).await;
                (tr, page)
            })?;
            more = page.len() > group;
            page.truncate(group);
            wanted -= page.len();
            after = page.last().map(|letter| letter.id.clone()).or(after);
            if globals.json {
                page.iter().try_for_each(|it| output::line(true, b"", &letter_object(it)))?;
            } else {
                letters.extend(page);
            }
        }
        // The oldest dead letters come first, if all of them are here.
        if self.after.is_none() && !more {
            letters.sort_by_key(|letter| letter.died_at);
        }
        if !letters.is_empty() {
            println(&table(&letters))?;
        } else if self.after.is_none() && after.is_none() {
            self.note_waiting(&client, &queue)?;
        }
        if let Some(last) = after.filter(|_| more) {
            output::note(format_args!("there are more; see them with --after {last}"));
        }
        Ok(Exit::Done)
    }

    /// Who misses an item among the dead letters may look for one that is to be tried again.
    fn note_waiting(&self, client: &Client, queue: &Queue) -> anyhow::Result<()> {
        let waiting = client.transact(|tr| async {
            let counts = queue.counts(&tr).await;
            (tr, counts.map(|it| it.waiting))
        })?;
        if waiting > 0 {
            output::note(format_args!(
                "no dead letters; {waiting} waiting for a retry or their time: kvqueue peek {} --state retrying",
                self.target.queue.display()
            ));
        }
        Ok(())
    }
}

fn table(letters: &[DeadLetter]) -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
    if let Some(width) = output::width() {
        table.set_width(width);
    }
    let keyed = letters.iter().any(|it| it.id.key().is_some());
    let key = keyed.then(|| "key".to_owned());
    let heads = ["died", "attempts", "reason"].map(str::to_owned);
    table.set_header(["id".to_owned()].into_iter().chain(key).chain(heads));
    for it in letters {
        let attempts = it.meta.attempts.to_string();
        let cells = [time(it.died_at), attempts, output::one_line(&it.reason, REASON)];
        let key = keyed.then(|| output::item_key(&it.id));
        table.add_row([it.id.to_string()].into_iter().chain(key).chain(cells));
    }
    table
}

fn println(table: &Table) -> std::io::Result<()> {
    output::line(false, table.to_string().as_bytes(), &serde_json::Value::Null)
}

/// Print all that is known of a dead letter: how its attempts ended, what was pushed with it, its payload
#[derive(Debug, clap::Args)]
pub(super) struct Show {
    #[command(flatten)]
    target: Target,
    /// The letter
    id: ItemId,
}

impl Show {
    fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let client = Client::open(globals)?;
        let queue = self.target.find(&client)?;
        let found = client.transact(|tr| async {
            let found = queue.dead_get(&tr, &self.id).await;
            (tr, found)
        })?;
        let Some(found) = found else {
            bail!("queue {:?} has no dead letter {}", self.target.queue.display(), self.id)
        };
        output::line(globals.json, &letter_text(&found), &letter_object(&found))?;
        match &found.unreadable {
            None => Ok(Exit::Done),
            Some(why) => bail!("cannot show the payload of dead letter {}: {why}", self.id),
        }
    }
}

/// All fields of a dead letter as lines, then an empty line and the payload.
fn letter_text(letter: &DeadLetter) -> Vec<u8> {
    let meta = &letter.meta;
    let mut lines = vec![
        ("id", letter.id.to_string()),
        ("died", time(letter.died_at)),
        ("reason", letter.reason.clone()),
        ("attempts", meta.attempts.to_string()),
    ];
    lines.extend(item_text::about(&letter.id, Some(meta), meta.enqueued_at));
    let payload = letter.payload.as_deref().unwrap_or_default();
    item_text::text(lines, letter.unreadable.is_none().then_some(payload))
}

/// Delete dead letters for good
#[derive(Debug, clap::Args)]
#[command(override_usage = "kvqueue dead purge [OPTIONS] --yes <QUEUE> <ID>...\n       \
    kvqueue dead purge [OPTIONS] --yes <QUEUE> --all")]
pub(super) struct Purge {
    #[command(flatten)]
    target: Target,
    /// The letters
    #[arg(required_unless_present = "all", value_name = "ID")]
    ids: Vec<ItemId>,
    /// All letters of the queue
    #[arg(long, conflicts_with = "ids")]
    all: bool,
    /// Yes, delete them for good
    #[arg(long)]
    yes: bool,
}

impl Purge {
    fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let (target, confirm) =
            (self.target.of_operation(), self.target.queue.to_string_lossy().into_owned());
        if !self.yes {
            let error =
                format!("this deletes dead letters of queue {confirm:?} for good; repeat it with --yes");
            return Err(UsageError(error).into());
        }
        if self.all {
            return operation::run(PurgeLetters { target, confirm }, globals);
        }
        let place = Place::open_for(PurgeLetter::ROUTE.audit, globals)?;
        let purge =
            |id: &ItemId| (id.clone(), PurgeLetter { item: ItemTarget::new(target.clone(), id.clone()) });
        operation::run_each(&place, ("dead letters", "purged"), self.ids.iter().map(purge), globals)
    }
}
