//! `kvqueue delete`

use kvqueue_queue::ItemId;

use super::{UsageError, globals::Globals, operation, target::Target};
use crate::{
    base::exit::Exit,
    operations::{items::DeleteItem, queues::DeleteQueue},
};

/// Delete a queue: its items, its schedules and its counters; or only some of its items
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    target: Target,
    /// Delete only this item, which is ready, scheduled, retrying or dead; repeat it for several
    #[arg(long = "item", value_name = "ID")]
    items: Vec<ItemId>,
    /// Also if the queue is frozen: if `migrate` moves its items, or has moved them
    #[arg(long, conflicts_with = "items")]
    frozen: bool,
    /// Yes, delete for good
    #[arg(long)]
    yes: bool,
}

impl Args {
    pub(super) fn run(&self, globals: &Globals) -> anyhow::Result<Exit> {
        let (target, confirm) =
            (self.target.of_operation(), self.target.queue.to_string_lossy().into_owned());
        if !self.yes {
            let what = match self.items.is_empty() {
                true => format!("queue {confirm:?}, with its items and schedules,"),
                false => format!("items of queue {confirm:?}"),
            };
            return Err(UsageError(format!("this deletes {what} for good; repeat it with --yes")).into());
        }
        if self.items.is_empty() {
            return operation::run(DeleteQueue { target, confirm, frozen: self.frozen }, globals);
        }
        let which = (&target, &*self.items, None);
        operation::run_each(which, ("items", "deleted"), |item| DeleteItem { item }, globals)
    }
}
