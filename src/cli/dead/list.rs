//! `kvqueue dead list`

use std::num::NonZeroUsize;

use comfy_table::{ContentArrangement, Table, presets::UTF8_FULL_CONDENSED};
use kvqueue_queue::{DeadLetter, ItemId};

use super::letter;
use crate::{
    cli::{client::Client, globals::Globals, number, output, target::Target},
    exit::Exit,
};

/// The most letters of one transaction. More could be too much to read within its five seconds.
const GROUP: usize = 250;

/// The most characters of a reason in the table. `dead show` has all of it.
const REASON: usize = 200;

/// Print the dead letters of a queue, without their payloads
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    target: Target,
    /// The most letters to list
    #[arg(short, default_value = "100", value_parser = number::items, allow_negative_numbers = true)]
    n: NonZeroUsize,
    /// Those behind the letter of this id, as an earlier list printed it
    #[arg(long, value_name = "ID")]
    after: Option<ItemId>,
}

impl Args {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let client = Client::open(globals)?;
        let queue = self.target.find(&client)?;
        let (mut after, mut wanted, mut more) = (self.after.clone(), self.n.get(), true);
        let mut letters = Vec::new();
        while more && wanted > 0 {
            let group = wanted.min(GROUP);
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
                page.iter().try_for_each(|it| output::line(true, b"", &letter::object(it)))?;
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
        }
        if let Some(last) = after.filter(|_| more) {
            output::note(format_args!("there are more; see them with --after {last}"));
        }
        Ok(Exit::Done)
    }
}

fn table(letters: &[DeadLetter]) -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
    if let Some(width) = output::width() {
        table.set_width(width);
    }
    table.set_header(["id", "died", "attempts", "reason"]);
    for it in letters {
        let attempts = it.meta.attempts.to_string();
        table.add_row([
            it.id.to_string(),
            output::time(it.died_at),
            attempts,
            output::one_line(&it.reason, REASON),
        ]);
    }
    table
}

fn println(table: &Table) -> std::io::Result<()> {
    output::line(false, table.to_string().as_bytes(), &serde_json::Value::Null)
}
