//! `kvqueue schedule show`

use std::num::NonZeroUsize;

use kvqueue_queue::{
    Queue,
    schedule::{OccurrenceRecord, Schedule, ScheduleView},
};
use serde_json::{Value, json};

use super::{
    Which,
    history::record_table,
    list::{calendar, standing},
    next::firing_table,
};
use crate::{
    cli::{client::Client, globals::Globals, output},
    config::duration,
    consumer::clock,
    exit::Exit,
    schedules::{
        Firing, ScheduleDefinition, Standing, firings, from, from_now, local, record_object, schedule_object,
    },
    text::visible,
};

/// How many next times and records are shown.
const SOME: usize = 5;

/// The most characters of a payload in the text. `--json` has all of it.
const PAYLOAD: usize = 200;

/// Print all that is known of a schedule: its definition, how it stands, its next times and its last records
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Show {
    #[command(flatten)]
    which: Which,
}

impl Show {
    pub(super) fn run(self, globals: &Globals) -> anyhow::Result<Exit> {
        let client = Client::open(globals)?;
        let queue = &self.which.open(&client)?;
        let view = self.which.read(&client, queue)?;
        let some = NonZeroUsize::new(SOME).unwrap_or(NonZeroUsize::MIN);
        let records = client.transact(|tr| async {
            let records = queue.schedule_history(&tr, &view.name, None, some).await;
            (tr, records)
        })?;
        let now = clock::now();
        let next: Vec<_> = match (&view.schedule, &view.state) {
            (Some(schedule), Some(state)) => {
                firings(schedule, queue.name(), from(state, now)).take(SOME).collect()
            }
            _ => Vec::new(),
        };
        let mut object = schedule_object(queue.name(), &view, now, true);
        object["times"] = next.iter().map(|it| it.json()).collect();
        object["history"] = records.iter().map(record_object).collect();
        let text = if globals.json { String::new() } else { text(queue, &view, &next, &records) };
        output::line(globals.json, text.as_bytes(), &object)?;
        Ok(Exit::Done)
    }
}

/// All fields as lines, then the next times and the last records.
fn text(queue: &Queue, view: &ScheduleView, next: &[Firing], records: &[OccurrenceRecord]) -> String {
    let now = clock::now();
    let zone = view.schedule.as_ref().and_then(|it| it.calendar.zone());
    let mut lines =
        vec![("queue", queue.name().escape_ascii().to_string()), ("schedule", visible(&view.name))];
    if let Some(schedule) = &view.schedule {
        definition(&mut lines, schedule, queue);
    }
    lines.push(("state", standing(Standing::of(view, queue.name(), now), zone)));
    if let Some(state) = &view.state {
        lines.push(("items", state.occurrences.to_string()));
        let last = state.last.as_ref();
        lines.extend(
            last.map(|(at, id)| ("last", format!("{}, {}, item {id}", local(*at, zone), from_now(*at, now)))),
        );
    }
    let mut text: String = lines.iter().map(|(name, value)| format!("{name:14}{value}\n")).collect();
    if let Some(schedule) = view.schedule.as_ref().filter(|_| !next.is_empty()) {
        text += &format!("\nnext times\n{}\n", firing_table(schedule, next, Some(now)));
    }
    if !records.is_empty() {
        text += &format!("\nlast records\n{}\n", record_table(records, zone));
    }
    text.truncate(text.trim_end().len());
    text
}

fn definition(lines: &mut Vec<(&'static str, String)>, schedule: &Schedule, queue: &Queue) {
    let item = &schedule.item;
    lines.push(("calendar", calendar(schedule)));
    lines.extend(schedule.calendar.zone().map(|zone| ("zone", zone.to_owned())));
    lines.push(("description", schedule.calendar.description()));
    let owner = schedule.owner.as_deref();
    lines.push(("owner", owner.map_or("none: it was made at run time".to_owned(), visible)));
    lines.push(("payload", payload(&item.payload)));
    let attributes = item.attributes.iter();
    lines.extend(attributes.map(|(name, value)| ("attribute", visible(&format!("{name}={value}")))));
    lines.extend(item.content_type.as_deref().map(|text| ("content type", visible(text))));
    lines.extend(item.key.as_ref().map(|key| ("key", key.escape_ascii().to_string())));
    lines.extend((item.priority != 0).then(|| ("priority", item.priority.to_string())));
    // The names of the policies are those of the definition.
    let named = json!(ScheduleDefinition::from(schedule));
    let name = |field: &str| named[field].as_str().unwrap_or_default().to_owned();
    lines.push(("missed", missed(name("missed"), &named)));
    lines.push(("overlap", name("overlap")));
    if !schedule.jitter.is_zero() {
        let offset = std::time::Duration::from_millis(schedule.offset(queue.name()));
        let (jitter, offset) = (duration::format(schedule.jitter), duration::format(offset));
        lines.push(("jitter", format!("{jitter}: it fires {offset} after its times")));
    }
}

fn missed(mut text: String, definition: &Value) -> String {
    if let Some(window) = definition["missed_window"].as_str() {
        text += &format!(", not older than {window}");
    }
    if text.starts_with("all") {
        let default = ScheduleDefinition::default().missed_max;
        text += &format!(", at most {}", definition["missed_max"].as_u64().unwrap_or(default.into()));
    }
    text
}

fn payload(payload: &[u8]) -> String {
    let bytes = format!("{} bytes", payload.len());
    match std::str::from_utf8(payload) {
        Ok("") => "empty".to_owned(),
        Ok(text) => format!("{bytes}: {}", output::one_line(text, PAYLOAD)),
        Err(_) => format!("{bytes} that are not text"),
    }
}
