//! `kvqueue history`

use std::num::NonZeroUsize;

use comfy_table::{ContentArrangement, Table, presets::UTF8_FULL_CONDENSED};
use kvqueue_queue::{EndedItem, Ending, HistoryCursor, HistoryFilter, Millis, Queue};

use super::{
    client::{Client, MAX_READ},
    globals::Globals,
    output::{self, time},
    target::Target,
    values,
};
use crate::{
    exit::Exit,
    item_history::{self, moment},
    json,
};

/// The most characters of a reason in the table. `--json` has all of it.
const REASON: usize = 100;

/// Print which items have ended, how and when; the newest first
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Print which items have ended, how and when; the newest first.\n\n\
    A queue keeps ended items, without their payloads, for the time that its setting `history` names; without the setting it keeps none.",
    after_help = "Examples:\n  \
    kvqueue history emails --outcome dead --since 2h\n  \
    kvqueue history emails --attribute customer=ann -n 10\n  \
    kvqueue item show emails ID"
)]
pub(super) struct Args {
    #[command(flatten)]
    target: Target,
    /// Only items that ended so: done, dead, cancelled, expired or taken
    #[arg(long)]
    outcome: Option<Ending>,
    /// Only items with this attribute, as in customer=ann; with several, items that have all of them
    #[arg(long = "attribute", value_name = "NAME=VALUE", value_parser = values::attribute)]
    attributes: Vec<(String, String)>,
    /// Only items that this schedule pushed
    #[arg(long, value_name = "NAME")]
    schedule: Option<String>,
    /// Only items that ended then or later: a time ago, as in 2h, or a time in RFC 3339
    #[arg(long, value_name = "TIME", value_parser = moment)]
    since: Option<Millis>,
    /// Only items that ended before: a time ago, as in 2h, or a time in RFC 3339
    #[arg(long, value_name = "TIME", value_parser = moment)]
    until: Option<Millis>,
    /// The most items to print: the newest
    #[arg(short, default_value = "50", value_parser = values::items, allow_negative_numbers = true)]
    n: NonZeroUsize,
    /// Only items before this place, as an earlier list printed it
    #[arg(long, value_name = "CURSOR")]
    before: Option<HistoryCursor>,
}

impl Args {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let client = Client::open(globals)?;
        let queue = self.target.find(&client)?;
        let (items, next) = self.read(&client, &queue)?;
        if globals.json {
            output::lines(true, items.iter().map(|item| (b"", json::ended(item))))?;
        } else if !items.is_empty() {
            output::line(false, table(&items).to_string().as_bytes(), &serde_json::Value::Null)?;
        }
        if let Some(next) = next.filter(|_| !globals.quiet) {
            output::note(format_args!("there are more; see them with --before {next}"));
        }
        if items.is_empty() && !globals.quiet {
            self.note_if_off(&client, &queue)?;
        }
        Ok(Exit::Done)
    }

    fn filter(&self) -> HistoryFilter {
        HistoryFilter {
            ending: self.outcome,
            attributes: self.attributes.clone(),
            schedule: self.schedule.clone(),
            since: self.since,
            until: self.until,
        }
    }

    /// As many items as are wanted, and where others follow.
    fn read(
        &self,
        client: &Client,
        queue: &Queue,
    ) -> anyhow::Result<(Vec<EndedItem>, Option<HistoryCursor>)> {
        let filter = &self.filter();
        let page = |before: Option<HistoryCursor>, most| {
            let place = before.as_ref();
            client.transact(|tr| async move {
                let page = queue.history(&tr, filter, place, most).await;
                (tr, page)
            })
        };
        let (mut items, mut before) = (Vec::new(), self.before.clone());
        while let Some(left) = NonZeroUsize::new((self.n.get() - items.len()).min(MAX_READ)) {
            let read = page(before, left)?;
            items.extend(read.items);
            if read.next.is_none() {
                return Ok((items, None));
            }
            before = read.next;
        }
        // One look tells whether the page was the last one by chance. It does not read all of a long history for items that the filter finds.
        let rest = page(before.clone(), NonZeroUsize::MIN)?;
        let is_last = rest.items.is_empty() && rest.next.is_none();
        Ok((items, before.filter(|_| !is_last)))
    }

    fn note_if_off(&self, client: &Client, queue: &Queue) -> anyhow::Result<()> {
        let kept = client.transact(|tr| async {
            let kept = queue.history_kept(&tr).await;
            (tr, kept)
        })?;
        if kept.is_none() && client.note(queue)?.is_none() {
            let queue = self.target.queue.display();
            output::note(format_args!(
                "kvqueue: queue {queue:?} keeps no history; set {} in its configuration",
                item_history::EXAMPLE
            ));
        }
        Ok(())
    }
}

fn table(items: &[EndedItem]) -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
    if let Some(width) = output::width() {
        table.set_width(width);
    }
    table.set_header(["ended", "id", "outcome", "attempts", "took", "reason"]);
    for item in items {
        let took = item_history::took(item).unwrap_or_default();
        let reason = item.reason.as_deref().map(|text| output::one_line(text, REASON)).unwrap_or_default();
        let (id, outcome) = (item.id.to_string(), item.ending.to_string());
        table.add_row([time(item.ended), id, outcome, item.attempts.to_string(), took, reason]);
    }
    table
}
