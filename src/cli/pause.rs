//! `kvqueue pause` and `kvqueue resume`.

use std::{ffi::OsString, os::unix::ffi::OsStrExt, time::Duration};

use anyhow::bail;
use kvqueue_queue::{Pause, Queue};
use serde_json::{Value, json};

use super::{
    UsageError,
    api_client::{ApiClient, At},
    client::{Client, Create},
    globals::Globals,
    output, status,
};
use crate::{audit::Action, consumer::clock, exit::Exit, pause_change::PauseChange};

/// Pause a queue: all daemons leave its items where they are, until it is resumed
#[derive(Debug, clap::Args)]
#[command(long_about = "Pause a queue: all daemons leave its items where they are, until it is resumed.\n\n\
    Pushes go on. Items that were fetched before are still handled and acknowledged. Scheduled items become ready when they are due. The pause is kept in the database, and outlives daemons. `pop` takes items all the same. A queue that is paused already \
    gets the new reason.")]
pub(super) struct PauseArgs {
    /// The queue
    #[arg(add = super::completions::queue())]
    queue: OsString,
    /// Why, for other operators; at most 500 bytes are kept
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
    /// Only for the running daemon, until it ends or resumes the queue
    #[arg(long, conflicts_with_all = ["reason", "create"])]
    local: bool,
    #[command(flatten)]
    create: Create,
    #[command(flatten)]
    at: At,
}

impl PauseArgs {
    /// A daemon that pauses the queue for itself writes the record.
    pub(super) fn audited(&self) -> Option<Action> {
        (!self.local).then_some(Action::QueuePause)
    }

    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        if self.local {
            let answer = ApiClient::find(globals, &self.at)?.pause_locally(&self.queue, true)?;
            return print_local(globals, &answer, &format!("paused {} in this daemon", self.queue.display()));
        }
        self.at.only_with_here()?;
        let client = Client::open_to_change(globals, &self.queue, self.create.create)?;
        let queue = open(&client, &self.queue)?;
        client.expect_queue(&queue, &self.create)?;
        let pause = Pause { at: clock::now(), frozen: false, reason: self.reason.clone() };
        let before = make(&client, &queue, &PauseChange::Pause(pause.clone()))?;
        if let Some(Pause { frozen: true, reason, .. }) = &before {
            bail!("queue {:?} is frozen already: {}", self.queue.display(), why(reason));
        }
        // A pause for the same reason goes on.
        let since =
            before.filter(|before| before.reason == pause.reason).map_or(pause.at, |before| before.at);
        let mut object = output::about(queue.name(), "paused", true);
        object["since"] = json!(output::time(since));
        object["reason"] = json!(pause.reason);
        output::line(globals.json, format!("paused {}", self.queue.display()).as_bytes(), &object)?;
        Ok(Exit::Done)
    }
}

/// Prints the result of pausing or resuming in one daemon.
fn print_local(globals: &Globals, answer: &Value, text: &str) -> anyhow::Result<Exit> {
    output::line(globals.json, text.as_bytes(), answer)?;
    Ok(Exit::Done)
}

/// The queue of a name. Its pause has the same key in every layout.
fn open(client: &Client, name: &OsString) -> Result<Queue, UsageError> {
    Queue::new(client.prefix(), name.as_bytes()).map_err(|error| UsageError(error.to_string()))
}

/// Makes the change with its record, and returns the pause before.
fn make(client: &Client, queue: &Queue, change: &PauseChange) -> anyhow::Result<Option<Pause>> {
    let (audit, record) = client.record()?;
    let (audit, record) = (&audit, &change.audited(record.about(queue.name())));
    client.transact(|tr| async move {
        let before = change.write(&tr, queue, audit, record).await;
        (tr, before)
    })
}

/// The reason of a pause, in a message.
fn why(reason: &str) -> &str {
    if reason.is_empty() { "no reason given" } else { reason }
}

/// How long a daemon may take to report whether it has paused the queue for itself. The queue is already resumed then.
const PATIENCE: Duration = Duration::from_secs(3);

/// Resume a paused queue: all daemons take its items again
#[derive(Debug, clap::Args)]
pub(super) struct ResumeArgs {
    /// The queue
    #[arg(add = super::completions::queue())]
    queue: OsString,
    /// Also if it is frozen: if `migrate` moves its items, or has moved them
    #[arg(long)]
    frozen: bool,
    /// Only for the running daemon: end its own pause
    #[arg(long, conflicts_with = "frozen")]
    local: bool,
    #[command(flatten)]
    at: At,
}

impl ResumeArgs {
    /// A daemon that ends its own pause writes the record.
    pub(super) fn audited(&self) -> Option<Action> {
        (!self.local).then_some(Action::QueueResume)
    }

    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        if self.local {
            let answer = ApiClient::find(globals, &self.at)?.pause_locally(&self.queue, false)?;
            return print_local(
                globals,
                &answer,
                &format!("resumed {} in this daemon", self.queue.display()),
            );
        }
        self.at.only_with_here()?;
        let client = Client::open(globals)?;
        let queue = open(&client, &self.queue)?;
        client.expect_there(&queue)?;
        let name = self.queue.display();
        let before = make(&client, &queue, &PauseChange::Resume { also_frozen: self.frozen })?;
        if let Some(Pause { frozen: true, reason, .. }) = &before
            && !self.frozen
        {
            bail!("queue {name:?} is frozen: {}; to take its items all the same, add --frozen", why(reason));
        }
        let local = self.paused_locally(globals, &client);
        let text = match (&before, &local) {
            (Some(_), _) => format!("resumed {name}"),
            (None, Some(_)) => format!("{name} was not paused for all daemons"),
            (None, None) => format!("{name} was not paused"),
        };
        let mut object = output::about(queue.name(), "paused", false);
        object["was_paused"] = json!(before.is_some());
        if let Some(daemon) = local {
            object["paused_locally"] = json!(true);
            output::note(format_args!(
                "kvqueue: the daemon at {daemon} alone has it paused; to have that take its items: kvqueue resume {name} --local"
            ));
        }
        output::line(globals.json, text.as_bytes(), &object)?;
        Ok(Exit::Done)
    }

    /// The running daemon, if it has paused the queue for itself.
    fn paused_locally(&self, globals: &Globals, client: &Client) -> Option<ApiClient> {
        let patience = globals.timeout().map_or(PATIENCE, |limit| limit.min(PATIENCE));
        let daemon = ApiClient::of(globals, client.config()).ok()?.within(patience);
        let (_, figures) = status::ask(&daemon).ok()?;
        let is_paused = figures.queues.iter().any(|it| it.paused_locally && *it.queue == *self.queue);
        is_paused.then_some(daemon)
    }
}
