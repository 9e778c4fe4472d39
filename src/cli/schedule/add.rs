//! `kvqueue schedule add`

use std::{
    collections::BTreeMap,
    ffi::OsString,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, anyhow};
use base64::{Engine, prelude::BASE64_STANDARD};
use clap::ArgGroup;
use kvqueue_queue::schedule::{MAX_SCHEDULE_PAYLOAD, PutEffect, Schedule};
use serde_json::json;

use super::{
    Fixes, about,
    change::write,
    refused,
    times::{Times, wrong},
};
use crate::{
    cli::{
        DataError, UsageError,
        client::{Client, Create},
        globals::Globals,
        line_reader::read_file,
        output,
        target::Target,
        values::attribute,
    },
    config::duration,
    consumer::clock,
    exit::Exit,
    schedules::{
        Change, Effect, Firing, MissedName, OverlapName, ScheduleChange, ScheduleDefinition, firings,
        from_now, local,
    },
    text::visible,
};

const FIXES: Fixes = [
    "change it there and reload its daemons, or choose another name",
    "upgrade kvqueue, or choose another name",
];

const HEADING: &str = "What is pushed";

/// Make a schedule, or replace one that was made so
#[derive(Debug, clap::Args)]
#[command(
    group(ArgGroup::new("when").required(true).args(["cron", "every"])),
    long_about = "Make a schedule, or replace one that was made so: at each of its times, an item is pushed.\n\n\
    The options replace the whole definition. The history stays, and so does the next time if the calendar is the same. A schedule that belongs to a configuration \
    is refused; change it there, and reload.",
    after_help = "Examples:\n  \
    kvqueue schedule add reports nightly --cron '0 3 * * *' --zone Europe/Berlin 'make the report'\n  \
    kvqueue schedule add feeds poll --every 5m --overlap skip"
)]
pub(in crate::cli) struct Add {
    #[command(flatten)]
    target: Target,
    /// The schedule
    #[arg(value_name = "NAME")]
    name: String,
    /// The item [default: an empty one]
    #[arg(value_name = "PAYLOAD")]
    payload: Option<OsString>,
    #[command(flatten)]
    times: Times,
    /// Push the whole of FILE, - for stdin
    #[arg(long, help_heading = HEADING, value_name = "FILE", conflicts_with = "payload")]
    file: Option<PathBuf>,
    /// An attribute; repeat for more
    #[arg(long = "attr", help_heading = HEADING, value_name = "NAME=VALUE", value_parser = attribute)]
    attributes: Vec<(String, String)>,
    /// The payload's media type
    #[arg(long, help_heading = HEADING, value_name = "TYPE")]
    content_type: Option<String>,
    /// The items' key, in a keyed queue
    #[arg(long, help_heading = HEADING, value_name = "KEY")]
    key: Option<OsString>,
    /// The items' priority, in a priority queue
    #[arg(long, help_heading = HEADING, value_name = "NUMBER", default_value_t = 0, allow_negative_numbers = true)]
    priority: i64,
    /// What fires after an outage of the times in it: none, the newest, or all
    #[arg(long, value_name = "POLICY", value_enum, default_value_t)]
    missed: MissedName,
    /// How old a missed time may be to fire, as in 6h [default: any age]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    missed_window: Option<Duration>,
    /// With --missed all: how many fire after one outage at most [default: 100]
    #[arg(long, value_name = "N")]
    missed_max: Option<u32>,
    /// What happens at a time while the last item has not ended: it is pushed all the same, skipped, or waits
    #[arg(long, value_name = "POLICY", value_enum, default_value_t)]
    overlap: OverlapName,
    /// Fire later than the times, always by the same time, which is less than this; for many schedules of the same times
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    jitter: Option<Duration>,
    #[command(flatten)]
    create: Create,
}

impl Add {
    pub(super) fn run(self, globals: &Globals) -> anyhow::Result<Exit> {
        let definition = self.definition()?;
        // Before a database is made.
        definition.schedule(self.name.as_str(), None).map_err(wrong)?;
        let client = Client::open_to_change(globals, &self.target.queue, self.create.create)?;
        let queue = &self.target.open_quietly(&client)?;
        client.expect_queue(queue, &self.create)?;
        client.check_kind(queue)?;
        client.check_not_frozen(queue)?;
        let schedule = definition.checked(self.name.as_str(), None, queue.kind()).map_err(wrong)?;
        let now = clock::now();
        let change = ScheduleChange::new(Change::Put(Box::new(schedule.clone())), now);
        let effect = match write(&client, queue, &change)? {
            Effect::Put(effect) => effect,
            Effect::Refused(refusal) => {
                return Err(refused(queue, &self.name, "replace", &refusal, FIXES));
            }
            Effect::Done | Effect::Same => unreachable!("the effect of a put is of a put"),
        };
        let next = firings(&schedule, queue.name(), now).next();
        let (done, code) = match effect {
            PutEffect::Created => ("is added", "created"),
            PutEffect::Replaced { .. } => ("is replaced", "replaced"),
            PutEffect::Unchanged => ("is unchanged", "unchanged"),
        };
        let mut object = about(queue, &self.name, "effect", code);
        object["description"] = schedule.calendar.description().into();
        object["next"] = json!(next.map(Firing::json));
        let (name, of) = (visible(&self.name), queue.name().escape_ascii());
        let text = format!("schedule {name} of queue {of} {done}: {}", described(&schedule, next, now));
        output::line(globals.json, text.as_bytes(), &object)?;
        Ok(Exit::Done)
    }

    fn definition(&self) -> anyhow::Result<ScheduleDefinition> {
        let mut attributes = BTreeMap::new();
        for (name, value) in &self.attributes {
            if attributes.insert(name.clone(), value.clone()).is_some() {
                let problem =
                    format!("--attr {name}=... is given twice; an item has one value of each attribute");
                return Err(UsageError(problem).into());
            }
        }
        let payload = match (&self.payload, &self.file) {
            (_, Some(file)) => read(file)?,
            (payload, None) => payload.clone().unwrap_or_default().into_vec(),
        };
        let (payload, payload_base64) = text(payload);
        let (key, key_base64) = self.key.clone().map_or((None, None), |key| text(key.into_vec()));
        let defaults = self.times.definition();
        Ok(ScheduleDefinition {
            payload: payload.filter(|payload| !payload.is_empty()),
            payload_base64,
            attributes,
            content_type: self.content_type.clone(),
            key,
            key_base64,
            priority: self.priority,
            missed: self.missed,
            missed_window: self.missed_window,
            missed_max: self.missed_max.unwrap_or(defaults.missed_max),
            overlap: self.overlap,
            jitter: self.jitter.unwrap_or_default(),
            ..defaults
        })
    }
}

/// Bytes as a text, or else in base 64.
fn text(bytes: Vec<u8>) -> (Option<String>, Option<String>) {
    match String::from_utf8(bytes) {
        Ok(text) => (Some(text), None),
        Err(error) => (None, Some(BASE64_STANDARD.encode(error.as_bytes()))),
    }
}

/// The whole of a file, which is no longer than a payload may be.
fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    let payload = read_file(path, MAX_SCHEDULE_PAYLOAD);
    let payload = payload.with_context(|| format!("cannot read {}", path.display()))?;
    if payload.len() > MAX_SCHEDULE_PAYLOAD {
        let problem = format!(
            "{} is longer than {MAX_SCHEDULE_PAYLOAD} bytes, which a schedule's payload may have; store it elsewhere, and push where it is",
            path.display()
        );
        return Err(anyhow!(DataError(problem)));
    }
    Ok(payload)
}

/// When it fires, and when next.
fn described(schedule: &Schedule, next: Option<Firing>, now: u64) -> String {
    let description = schedule.calendar.description();
    let Some(Firing { fires, .. }) = next else { return description };
    let next = local(fires, schedule.calendar.zone());
    format!("{description}; next at {next}, {}", from_now(fires, now))
}
