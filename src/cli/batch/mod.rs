//! `kvqueue batch`: makes batches, commits and cancels them, and shows them.

mod change;
mod new;
mod show;

use anyhow::anyhow;
use kvqueue_queue::{Queue, item_batch::BatchId};

use super::{UsageError, client::Client, globals::Globals};
use crate::{audit::Action, batches::gone, exit::Exit};

/// Push an item when all items of a batch have ended: make, commit, show and cancel batches
#[derive(Debug, clap::Subcommand)]
#[command(
    long_about = "Push an item when all items of a batch have ended: make, commit, show and cancel batches.\n\n\
    `new` prints the id of a batch. Items that are pushed with `--batch ID`, onto any queues, are its members. After the last push, `commit` it. When all members have ended, \
    whichever way, one item is pushed with the counts as attributes: the callback. A daemon that processes the queue of the callback pushes it, exactly once. docs/BATCHES.md has more. It is not a workflow \
    engine: a batch has one callback, and no other steps.",
    after_help = "Example:\n  \
    id=$(kvqueue batch new --then reports:'all images are resized')\n  \
    kvqueue push resize --batch \"$id\" a.png b.png\n  \
    kvqueue push resize-large --batch \"$id\" c.png\n  \
    kvqueue batch commit \"$id\""
)]
pub(super) enum Command {
    New(new::New),
    Commit(change::Commit),
    Show(show::Show),
    List(show::List),
    Cancel(change::Cancel),
}

impl Command {
    pub(super) fn audited(&self) -> Option<Action> {
        match self {
            Self::Cancel(_) => Some(Action::BatchCancel),
            // They belong to pushes.
            Self::New(_) | Self::Commit(_) => None,
            Self::Show(_) | Self::List(_) => None,
        }
    }

    pub(super) fn run(self, globals: &Globals) -> anyhow::Result<Exit> {
        match self {
            Self::New(args) => args.run(globals),
            Self::Commit(args) => args.run(globals),
            Self::Show(args) => args.run(globals),
            Self::List(args) => args.run(globals),
            Self::Cancel(args) => args.run(globals),
        }
    }
}

/// A batch by its id.
#[derive(Debug, clap::Args)]
struct Which {
    /// The batch, as `kvqueue batch new` printed it
    #[arg(value_name = "ID")]
    id: BatchId,
}

impl Which {
    /// The queue of its callback. Batches have the same keys in every layout.
    fn home(&self, client: &Client) -> Result<Queue, UsageError> {
        Queue::new(client.prefix(), self.id.home()).map_err(|error| UsageError(error.to_string()))
    }

    fn gone(&self) -> anyhow::Error {
        let queue = self.id.home().escape_ascii();
        anyhow!("{}; `kvqueue batch list {queue}` shows which there are", gone(&self.id))
    }
}
