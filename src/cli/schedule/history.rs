//! `kvqueue schedule history`

use std::num::NonZeroUsize;

use kvqueue_queue::{ItemId, schedule::OccurrenceRecord};

use super::{Which, print, table};
use crate::{
    cli::{
        client::{Client, MAX_READ},
        globals::Globals,
        output, values,
    },
    exit::Exit,
    schedules::{local, outcome_words, record_object},
};

/// Print what became of a schedule's times, the newest first; the last 1,000 records are kept
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct History {
    #[command(flatten)]
    which: Which,
    /// The most records to print
    #[arg(short, default_value = "20", value_parser = values::items, allow_negative_numbers = true)]
    n: NonZeroUsize,
    /// Those before the record of this number, as an earlier list printed it
    #[arg(long, value_name = "NUMBER")]
    before: Option<u64>,
}

impl History {
    pub(super) fn run(self, globals: &Globals) -> anyhow::Result<Exit> {
        let client = Client::open(globals)?;
        let queue = &self.which.open(&client)?;
        let view = self.which.read(&client, queue)?;
        let (mut records, mut before, mut more) = (Vec::new(), self.before, true);
        while more && records.len() < self.n.get() {
            let wanted = (self.n.get() - records.len()).min(MAX_READ);
            // One more than wanted tells whether there are more.
            let limit = NonZeroUsize::MIN.saturating_add(wanted);
            let mut page = client.transact(|tr| async {
                let page = queue.schedule_history(&tr, &view.name, before, limit).await;
                (tr, page)
            })?;
            more = page.len() > wanted;
            page.truncate(wanted);
            before = page.last().map(|record| record.number).or(before);
            records.extend(page);
        }
        if globals.json {
            output::lines(true, records.iter().map(|record| ("", record_object(record))))?;
        } else if !records.is_empty() {
            let zone = view.schedule.as_ref().and_then(|it| it.calendar.zone());
            print(&record_table(&records, zone))?;
        }
        if let Some(last) = before.filter(|_| more) {
            output::note(format_args!("there are older records; see them with --before {last}"));
        }
        Ok(Exit::Done)
    }
}

/// Records as a table, with times on the clock of a zone.
pub(super) fn record_table(records: &[OccurrenceRecord], zone: Option<&str>) -> String {
    let mut table = table();
    table.set_header(["number", "recorded", "time", "outcome", "item"]);
    for record in records {
        table.add_row([
            record.number.to_string(),
            local(record.at, zone),
            nominal(record, zone),
            outcome_words(&record.outcome),
            record.outcome.id().map(ItemId::to_string).unwrap_or_default(),
        ]);
    }
    table.to_string()
}

/// The nominal time of a record, or the first and the last with their number.
fn nominal(record: &OccurrenceRecord, zone: Option<&str>) -> String {
    let (from, to) = (local(record.from, zone), local(record.to, zone));
    match (record.from == record.to, record.is_exact) {
        (true, _) => from,
        (false, true) => format!("{from} to {to}, {} times", record.count),
        (false, false) => format!("{from} to {to}, {} times or more", record.count),
    }
}
