//! `kvqueue resume`

use std::{ffi::OsString, time::Duration};

use anyhow::bail;
use kvqueue_queue::Pause;
use serde_json::json;

use super::{
    api_client::{ApiClient, At},
    client::Client,
    globals::Globals,
    output,
    pause::{change, open, print_local, why},
    status,
};
use crate::exit::Exit;

/// How long a daemon may take to say whether it has paused the queue for itself. The queue is resumed by then.
const PATIENCE: Duration = Duration::from_secs(3);

/// Resume a paused queue: all daemons take its items again
#[derive(Debug, clap::Args)]
pub(super) struct Args {
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

impl Args {
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
        let name = self.queue.display();
        let before = change(&client, &queue, self.frozen, |tr| queue.resume(tr))?;
        if let Some(Pause { frozen: true, reason, .. }) = &before
            && !self.frozen
        {
            bail!("queue {name:?} is frozen: {}; to take its items all the same, add --frozen", why(reason));
        }
        if before.is_none() {
            client.remark_if_absent(&queue)?;
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
