//! `kvqueue schedule remove`, `pause` and `resume`

use kvqueue_queue::Queue;

use super::{Fixes, UPGRADE, Which, about, refused};
use crate::{
    cli::{client::Client, globals::Globals, output},
    consumer::clock,
    exit::Exit,
    schedules::{Change, Effect, ScheduleChange},
    text::visible,
};

/// Remove a schedule with its history; the items that it has pushed stay
#[derive(Debug, clap::Args)]
#[command(long_about = "Remove a schedule with its history; the items that it has pushed stay.\n\n\
    A schedule that belongs to a configuration is removed there: a daemon that has it in its configuration would make it again. --force removes it all the same, for a configuration \
    that no daemon uses any more.")]
pub(in crate::cli) struct Remove {
    #[command(flatten)]
    which: Which,
    /// Also if it belongs to a configuration, or if this version cannot read it
    #[arg(long)]
    force: bool,
}

/// Pause a schedule: it does not fire until it is resumed
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Pause a schedule: it does not fire until it is resumed, and what is due in the pause is skipped.\n\n\
    The pause is kept in the database, and outlives daemons and reloads. The queue's items are handled all the same; `kvqueue pause` pauses the queue."
)]
pub(in crate::cli) struct Pause {
    #[command(flatten)]
    which: Which,
}

/// Resume a paused schedule: it fires from now on; times of the pause are skipped
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Resume a paused schedule: it fires from now on; times of the pause are skipped, and recorded.\n\n\
    --restart mends a schedule that a clock far ahead has silenced. Set the clock right before."
)]
pub(in crate::cli) struct Resume {
    #[command(flatten)]
    which: Which,
    /// Begin now, also if it is not paused; times after now that have fired already fire again
    #[arg(long)]
    restart: bool,
}

impl Remove {
    pub(super) fn run(self, globals: &Globals) -> anyhow::Result<Exit> {
        let Self { which, force } = self;
        let change = Change::Remove { name: which.name.clone(), force };
        let fixes = [
            "remove it there and reload its daemons; if no daemon has it in its configuration any more, add --force",
            "upgrade kvqueue, or remove it all the same with --force",
        ];
        make(globals, &which, change, ("remove", fixes), |_| ("removed", true, "is removed"))
    }
}

impl Pause {
    pub(super) fn run(self, globals: &Globals) -> anyhow::Result<Exit> {
        let change = Change::Pause { name: self.which.name.clone() };
        let done = |is_change| ("paused", true, if is_change { "is paused" } else { "was paused already" });
        make(globals, &self.which, change, ("pause", UPGRADE), done)
    }
}

impl Resume {
    pub(super) fn run(self, globals: &Globals) -> anyhow::Result<Exit> {
        let restart = self.restart;
        let change = Change::Resume { name: self.which.name.clone(), restart };
        let done = |is_change| {
            let text = match is_change {
                true if restart => "begins now",
                true => "is resumed",
                false => "was not paused",
            };
            ("paused", false, text)
        };
        make(globals, &self.which, change, ("resume", UPGRADE), done)
    }
}

/// Makes the change with its record, and prints its effect: `done` gives the key and the value for programs, and the text.
fn make(
    globals: &Globals,
    which: &Which,
    change: Change,
    (verb, fixes): (&str, Fixes),
    done: impl Fn(bool) -> (&'static str, bool, &'static str),
) -> anyhow::Result<Exit> {
    let client = Client::open(globals)?;
    let queue = &which.open(&client)?;
    client.check_not_frozen(queue)?;
    let is_change = match write(&client, queue, &ScheduleChange::new(change, clock::now()))? {
        Effect::Put(_) | Effect::Done => true,
        Effect::Same => false,
        Effect::Refused(refusal) => return Err(refused(queue, &which.name, verb, &refusal, fixes)),
    };
    let (key, value, text) = done(is_change);
    let mut object = about(queue, &which.name, key, value);
    object["changed"] = is_change.into();
    let text = format!("schedule {} of queue {} {text}", visible(&which.name), queue.name().escape_ascii());
    output::line(globals.json, text.as_bytes(), &object)?;
    Ok(Exit::Done)
}

/// Makes a change with its record.
pub(super) fn write(client: &Client, queue: &Queue, change: &ScheduleChange) -> anyhow::Result<Effect> {
    let (audit, record) = client.record()?;
    let (audit, record) = (&audit, &change.audited(record.about(queue.name())));
    client.transact(|tr| async move {
        let effect = change.write(&tr, queue, audit, record).await;
        (tr, effect)
    })
}
