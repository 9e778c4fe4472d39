//! `kvqueue schedule add`

use std::{
    ffi::OsString,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, anyhow};
use clap::ArgGroup;
use kvqueue_queue::schedule::MAX_SCHEDULE_PAYLOAD;

use super::times::{Times, wrong};
use crate::{
    audit::Action,
    base::exit::Exit,
    cli::{
        DataError,
        api_client::encoded,
        client::{Client, Create},
        globals::Globals,
        line_reader::read_file,
        operation::Runner,
        output,
        target::Target,
        values,
    },
    config::{MissedName, OverlapName, ScheduleDefinition, duration},
    operations::{names::fields, schedules::PutSchedule},
};

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
    #[arg(long = "attr", help_heading = HEADING, value_name = "NAME=VALUE", value_parser = values::attribute)]
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
        let (queue, create) = (&self.target.queue, self.create.create);
        let runner = Runner::open_with(globals, Some(Action::SCHEDULE_PUT), || {
            Client::open_to_change(globals, queue, create)
        })?;
        let stored = match &runner {
            Runner::Here(client) => {
                let kind = self.target.open_quietly(client)?.kind();
                definition.checked(self.name.as_str(), None, kind).map_err(wrong)?;
                let put = PutSchedule {
                    target: self.target.of_operation(),
                    name: self.name.clone(),
                    definition,
                    create,
                };
                let stored = client.wait(put.run(&**client));
                client.check_record(stored.is_ok());
                stored?
            }
            Runner::Daemon(daemon) => {
                let path = self.target.path_at_daemon("/schedules/")?;
                let path = format!("{path}{}?create={create}", encoded(&self.name));
                serde_json::from_value(daemon.send(
                    "PUT",
                    &path,
                    Some(&serde_json::to_value(&definition)?),
                )?)?
            }
        };
        output::line(globals.json, stored.text().as_bytes(), &serde_json::to_value(&stored)?)
            .map_err(|error| anyhow!("it is done, and the answer could not be printed: {error}"))?;
        Ok(Exit::Done)
    }

    fn definition(&self) -> anyhow::Result<ScheduleDefinition> {
        let attributes = values::attributes(self.attributes.clone())?;
        let payload = match (&self.payload, &self.file) {
            (_, Some(file)) => read(file)?,
            (payload, None) => payload.clone().unwrap_or_default().into_vec(),
        };
        let (payload, payload_base64) = fields(&payload);
        let (key, key_base64) = values::texts(self.key.clone());
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
