//! `kvqueue batch`: makes batches, commits and cancels them, and shows them.

pub(super) mod new;

use kvqueue_queue::item_batch::BatchId;

use super::{globals::Globals, operation};
use crate::{
    base::exit::Exit,
    operations::batches::{BatchTarget, CancelBatch, CommitBatch, ListBatches, ShowBatch},
};

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
    /// Commit a batch after the last push: it calls back when all its members have ended
    #[command(
        long_about = "Commit a batch after the last push: it calls back when all its members have ended.\n\n\
        A committed batch gets no more members. To commit it once more changes nothing. A batch without members calls back at once."
    )]
    Commit(Which),
    /// Print a batch: how many members have ended, and what is pushed in the end
    Show(Which),
    List(ListBatches),
    /// Cancel a batch: it does not call back, and its members go on
    Cancel(Which),
}

/// A batch by its id.
#[derive(Debug, clap::Args)]
pub(super) struct Which {
    /// The batch, as `kvqueue batch new` printed it
    #[arg(value_name = "ID")]
    id: BatchId,
}

impl Command {
    pub(super) fn run(self, globals: &Globals) -> anyhow::Result<Exit> {
        let batch = |which: Which| BatchTarget::new(which.id);
        match self {
            Self::New(args) => args.run(globals),
            Self::Commit(which) => operation::run(CommitBatch { batch: batch(which) }, globals),
            Self::Show(which) => operation::run(ShowBatch { batch: batch(which) }, globals),
            Self::List(list) => operation::run(list, globals),
            Self::Cancel(which) => operation::run(CancelBatch { batch: batch(which) }, globals),
        }
    }
}
