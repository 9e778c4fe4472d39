//! `kvqueue schedule`: shows the schedules of queues, and changes them.

mod add;
mod change;
mod fire;
mod history;
mod list;
mod next;
mod show;
mod times;

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
};

use anyhow::anyhow;
use comfy_table::{ContentArrangement, Table, presets::UTF8_FULL_CONDENSED};
use kvqueue_queue::{Queue, schedule::ScheduleView};
use serde_json::Value;

use super::{UsageError, client::Client, completions, globals::Globals, output};
use crate::{
    audit::Action,
    causes::with_causes,
    exit::Exit,
    schedules::{Refusal, gone},
    text::visible,
};

/// Show schedules, which push items again and again; make, change and remove them
#[derive(Debug, clap::Subcommand)]
#[command(long_about = "Show schedules, which push items again and again; make, change and remove them.\n\n\
    A schedule belongs to a queue, and is kept in the database. A daemon that processes the queue fires it: it pushes the item at the times of a cron expression, or \
    every so often. Each time is fired once, however many daemons there are. docs/SCHEDULES.md has the rules of expressions, daylight saving and outages.")]
pub(super) enum Command {
    List(list::List),
    Show(show::Show),
    Next(next::Next),
    Add(add::Add),
    Remove(change::Remove),
    Pause(change::Pause),
    Resume(change::Resume),
    Fire(fire::Fire),
    History(history::History),
}

impl Command {
    pub(super) fn audited(&self) -> Option<Action> {
        match self {
            Self::Add(_) => Some(Action::SchedulePut),
            Self::Remove(_) => Some(Action::ScheduleRemove),
            Self::Pause(_) => Some(Action::SchedulePause),
            Self::Resume(_) => Some(Action::ScheduleResume),
            Self::Fire(_) => Some(Action::ScheduleFire),
            Self::List(_) | Self::Show(_) | Self::Next(_) | Self::History(_) => None,
        }
    }

    pub(super) fn run(self, globals: &Globals) -> anyhow::Result<Exit> {
        match self {
            Self::List(args) => args.run(globals),
            Self::Show(args) => args.run(globals),
            Self::Next(args) => args.run(globals),
            Self::Add(args) => args.run(globals),
            Self::Remove(args) => args.run(globals),
            Self::Pause(args) => args.run(globals),
            Self::Resume(args) => args.run(globals),
            Self::Fire(args) => args.run(globals),
            Self::History(args) => args.run(globals),
        }
    }
}

/// A schedule by its name.
#[derive(Debug, clap::Args)]
struct Which {
    /// The queue
    #[arg(add = completions::queue())]
    queue: OsString,
    /// The schedule
    #[arg(value_name = "NAME")]
    name: String,
}

impl Which {
    /// The queue, which has to be there.
    fn open(&self, client: &Client) -> anyhow::Result<Queue> {
        let queue = open(client, &self.queue)?;
        client.expect_there(&queue)?;
        Ok(queue)
    }

    /// The schedule, which has to be there.
    fn read(&self, client: &Client, queue: &Queue) -> anyhow::Result<ScheduleView> {
        let found = client.transact(|tr| async {
            let found = async {
                Ok(match queue.schedule(&tr, &self.name).await? {
                    Some(view) => Ok(view),
                    None => Err(gone(&tr, queue, &self.name).await?),
                })
            };
            let found = found.await;
            (tr, found)
        })?;
        found.map_err(|refusal| refused(queue, &self.name, "read", &refusal, UPGRADE))
    }
}

/// The queue of a name. Its schedules have the same keys in every layout.
fn open(client: &Client, name: &OsStr) -> Result<Queue, UsageError> {
    Queue::new(client.prefix(), name.as_bytes()).map_err(|error| UsageError(error.to_string()))
}

/// What to do about a schedule of a configuration, and about one that cannot be read.
type Fixes = [&'static str; 2];

const UPGRADE: Fixes = ["upgrade kvqueue"; 2];

/// The error for a schedule that `verb` cannot be done to.
fn refused(
    queue: &Queue,
    name: &str,
    verb: &str,
    refusal: &Refusal,
    [configured, unreadable]: Fixes,
) -> anyhow::Error {
    let (queue, name) = (queue.name().escape_ascii(), visible(name));
    match refusal {
        Refusal::Gone { near: Some(near) } => {
            anyhow!("queue \"{queue}\" has no schedule \"{name}\"; did you mean \"{}\"?", visible(near))
        }
        Refusal::Gone { near: None } => anyhow!(
            "queue \"{queue}\" has no schedule \"{name}\"; `kvqueue schedule list {queue}` shows which there are"
        ),
        Refusal::Schedule(error) => {
            anyhow!("cannot {verb} schedule \"{name}\" of queue \"{queue}\": {}", with_causes(error))
        }
        Refusal::Configured { .. } | Refusal::Unreadable => {
            let fix = if matches!(refusal, Refusal::Unreadable) { unreadable } else { configured };
            let why = visible(&refusal.to_string());
            anyhow!("cannot {verb} schedule \"{name}\" of queue \"{queue}\": {why}; {fix}")
        }
    }
}

/// An object that begins with the names of queue and schedule.
fn about(queue: &Queue, name: &str, key: &str, value: impl Into<Value>) -> Value {
    let mut object = output::about(queue.name(), "schedule", name);
    object[key] = value.into();
    object
}

/// An empty table as wide as the terminal.
fn table() -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
    if let Some(width) = output::width() {
        table.set_width(width);
    }
    table
}

fn print(text: &str) -> std::io::Result<()> {
    output::line(false, text.as_bytes(), &Value::Null)
}
