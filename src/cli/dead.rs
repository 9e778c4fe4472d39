//! `kvqueue dead`: looks at dead letters, and retries or purges them.

use std::num::NonZeroUsize;

use anyhow::{Context, anyhow, bail};
use comfy_table::{ContentArrangement, Table, presets::UTF8_FULL_CONDENSED};
use kvqueue_queue::{DeadLetter, DeadLetterEffect, ItemId, Queue, RetryPolicy};
use serde_json::json;

use super::{
    UsageError,
    client::{Client, MAX_READ},
    globals::Globals,
    item_text,
    output::{self, Named, time},
    target::Target,
    values,
};
use crate::{exit::Exit, json::letter as letter_object};

/// Look at dead letters, the items that are not tried any more; retry or purge them
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    List(List),
    Show(Show),
    Retry(Retry),
    Purge(Purge),
}

impl Command {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        match self {
            Self::List(args) => args.run(globals),
            Self::Show(args) => args.run(globals),
            Self::Retry(args) => args.run(globals),
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

/// Make dead letters items again, each at its own place, with all its attempts before it
#[derive(Debug, clap::Args)]
#[command(override_usage = "kvqueue dead retry [OPTIONS] <QUEUE> <ID>...\n       \
    kvqueue dead retry [OPTIONS] <QUEUE> --all")]
pub(super) struct Retry {
    #[command(flatten)]
    which: Which,
}

/// Delete dead letters for good
#[derive(Debug, clap::Args)]
#[command(override_usage = "kvqueue dead purge [OPTIONS] --yes <QUEUE> <ID>...\n       \
    kvqueue dead purge [OPTIONS] --yes <QUEUE> --all")]
pub(super) struct Purge {
    #[command(flatten)]
    which: Which,
    /// Yes, delete them for good
    #[arg(long)]
    yes: bool,
}

/// Which letters.
#[derive(Debug, clap::Args)]
struct Which {
    #[command(flatten)]
    target: Target,
    /// The letters
    #[arg(required_unless_present = "all", value_name = "ID")]
    ids: Vec<ItemId>,
    /// All letters of the queue
    #[arg(long, conflicts_with = "ids")]
    all: bool,
}

/// What to do with dead letters.
#[derive(Clone, Copy)]
enum Decision {
    Retry,
    Purge,
}

impl Decision {
    fn past(self) -> &'static str {
        match self {
            Self::Retry => "retried",
            Self::Purge => "purged",
        }
    }
}

impl Retry {
    fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        self.which.run(globals, Decision::Retry)
    }
}

impl Purge {
    fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        if !self.yes {
            let name = self.which.target.queue.display();
            let error = format!("this deletes dead letters of queue {name:?} for good; repeat it with --yes");
            return Err(UsageError(error).into());
        }
        self.which.run(globals, Decision::Purge)
    }
}

impl Which {
    fn run(&self, globals: &Globals, decision: Decision) -> anyhow::Result<Exit> {
        let client = Client::open(globals)?;
        let queue = self.target.find_there(&client)?;
        client.check_not_frozen(&queue)?;
        client.store(|record| match self.all {
            true => record.about(queue.name()).with("all", true),
            false => record.about(queue.name()).with_items(&self.ids),
        })?;
        if self.all {
            all(&client, &queue, decision, globals.json)
        } else {
            self.some(&client, &queue, decision, globals.json)
        }
    }

    /// Decides about each letter by itself: if one is refused, the others go on.
    fn some(&self, client: &Client, queue: &Queue, decision: Decision, json: bool) -> anyhow::Result<Exit> {
        let mut named = Named::new("dead letters", decision.past(), json);
        for id in &self.ids {
            named.print(
                id,
                match one(client, queue, decision, id)? {
                    DeadLetterEffect::Moved => None,
                    DeadLetterEffect::Gone => {
                        Some("there is no such dead letter; kvqueue item show says where the item is")
                    }
                    DeadLetterEffect::Refused => Some("another item has its unique key"),
                },
            );
        }
        named.exit()
    }
}

fn one(client: &Client, queue: &Queue, decision: Decision, id: &ItemId) -> anyhow::Result<DeadLetterEffect> {
    let (db, policy) = (client.db(), RetryPolicy::default());
    let effect = client.answer(async {
        match decision {
            Decision::Retry => queue.retry_dead(db, &policy, id).await,
            Decision::Purge => queue.purge_dead(db, &policy, id).await,
        }
    });
    client.wait(effect)?.context("the database refused")
}

fn all(client: &Client, queue: &Queue, decision: Decision, json: bool) -> anyhow::Result<Exit> {
    let (db, policy) = (client.db(), RetryPolicy::default());
    let all = client.ask_partly(async {
        match decision {
            Decision::Retry => queue.retry_all_dead(db, &policy, None).await,
            Decision::Purge => queue.purge_all_dead(db, &policy, None).await,
        }
    });
    let all = all?;
    let mut object = output::about(queue.name(), decision.past(), all.moved);
    object["refused"] = json!(all.refused);
    object["unreadable"] = json!(all.unreadable);
    let text = format!("{} {}", decision.past(), output::items_of(all.moved));
    // Not an io::Error outside: the reader that closed the pipe does not know what was done.
    output::line(json, text.as_bytes(), &object)
        .map_err(|error| anyhow!("{text}, which could not be printed: {error}"))?;
    let reasons = [
        (all.refused, "since other items have their unique keys"),
        (all.unreadable, "since they cannot be read"),
    ];
    let left: Vec<_> = reasons.iter().filter(|(n, _)| *n > 0).map(|(n, why)| format!("{why}: {n}")).collect();
    match left[..] {
        [] => Ok(Exit::Done),
        _ => bail!("dead letters not {}, {}", decision.past(), left.join(", ")),
    }
}
