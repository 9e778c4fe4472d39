//! `kvqueue item reschedule` and `edit-payload`

use std::{ffi::OsString, path::PathBuf};

use anyhow::{Context, bail};
use kvqueue_queue::PAYLOAD_CEILING;

use super::{
    super::{
        globals::Globals,
        line_reader::read_file,
        values::{self, When},
    },
    one::One,
};
use crate::{
    base::{exit::Exit, json::time, times::whole_millis},
    operations::{
        items::{EditPayload as Edit, RescheduleItem},
        names::Payload,
    },
};

/// Give a ready, scheduled or retrying item another time at which it becomes ready
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "kvqueue item reschedule [OPTIONS] <QUEUE> <ID> <--delay <DURATION>|--at <TIME>|--now>\n       \
    kvqueue item reschedule [OPTIONS] <QUEUE> --unique <KEY> <--delay <DURATION>|--at <TIME>|--now>"
)]
#[group(id = "when", required = true, multiple = false, args = ["delay", "at", "now"])]
pub(in crate::cli) struct Reschedule {
    #[command(flatten)]
    one: One,
    /// Not before this delay is over, as in 5s or "1h 30m"
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = values::delay)]
    delay: Option<When>,
    /// Not before this time: RFC 3339, or seconds since 1970
    #[arg(long, value_name = "TIME", value_parser = values::at)]
    at: Option<When>,
    /// Now
    #[arg(long)]
    now: bool,
}

impl Reschedule {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let (delay_ms, at) = match self.delay.or(self.at) {
            Some(When::After(delay)) => (Some(whole_millis(delay)), None),
            Some(When::At(at)) => (None, Some(time(at))),
            None => (None, None),
        };
        self.one.run(globals, |item| RescheduleItem { item, delay_ms, at, now: self.now })
    }
}

/// Give an item another payload: ready, scheduled, retrying or a dead letter
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "kvqueue item edit-payload [OPTIONS] <QUEUE> <ID> <--payload <TEXT>|--file <PATH>>\n       \
    kvqueue item edit-payload [OPTIONS] <QUEUE> --unique <KEY> <--payload <TEXT>|--file <PATH>>"
)]
#[group(id = "what", required = true, multiple = false, args = ["payload", "file"])]
pub(in crate::cli) struct EditPayload {
    #[command(flatten)]
    one: One,
    /// The new payload
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    payload: Option<OsString>,
    /// The file that has the new payload; - for stdin
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
}

impl EditPayload {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let payload = Payload(self.read()?);
        self.one.run(globals, |item| Edit { item, payload })
    }

    fn read(&self) -> anyhow::Result<Vec<u8>> {
        if let Some(payload) = &self.payload {
            return Ok(payload.as_encoded_bytes().to_vec());
        }
        let Some(path) = &self.file else { bail!("no payload is given; add --payload or --file") };
        read_file(path, PAYLOAD_CEILING).with_context(|| format!("cannot read {}", path.display()))
    }
}
